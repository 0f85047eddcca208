//! Child's side of a hot restart: what it gets from its parent, and what it hears from it as long as that lives.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use causeway_access::keys::groups::PeerLimits;
use causeway_access::keys::limits::ClientLimits;
use causeway_sync::threads;
use thiserror::Error;

use super::link::BrokerLink;
use super::relatives::Relatives;
use super::sockets::InheritedSockets;
use crate::admission::Admission;
use crate::broker::clients::AcceptedClients;
use crate::broker::exports::Exported;
use crate::broker::monitor::Monitor;
use crate::broker::shared::Shared;
use crate::broker::spawn::Spawner;
use crate::protocol::messages::{
    ControlError, PROTOCOL, RemainingSession, RestartMessage, RestartQuery, RestartReply,
};

/// Why a broker cannot take another one's place.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// The way to it fails.
    #[error("cannot contact the server that this one is to replace: {0}")]
    Control(#[from] ControlError),
    /// It does not want to.
    #[error("the running server does not hand over: {0}")]
    Refused(String),
    /// It says something else.
    #[error("unexpected message from the running server during a restart")]
    Unexpected,
}

/// What a child gets.
pub struct Inheritance {
    link: Arc<BrokerLink>,
    /// Listening sockets.
    pub sockets: InheritedSockets,
    users: Vec<u32>,
    sessions: Vec<RemainingSession>,
}

impl Inheritance {
    /// Asks the parent at the other end of `control` for all that it has; it accepts nobody any more when this returns.
    pub fn receive(control: OwnedFd) -> Result<Self, TakeOverError> {
        let link = Arc::new(BrokerLink::new(control).map_err(ControlError::from)?);
        link.send(&RestartMessage::TakeOver { protocol: PROTOCOL }, None)?;
        let mut inheritance =
            Self { link, sockets: InheritedSockets::default(), users: Vec::new(), sessions: Vec::new() };
        // One may end before it is told.
        let mut ended = HashSet::new();
        loop {
            match inheritance.link.receive()? {
                (RestartMessage::Listener(address), Some(socket)) => inheritance.sockets.add(address, socket),
                (RestartMessage::Users(users), _) => inheritance.users.extend(users),
                (RestartMessage::Session(session), _) => inheritance.sessions.push(session),
                (RestartMessage::Ended { worker }, _) => drop(ended.insert(worker)),
                (RestartMessage::HandedOver, _) => break,
                (RestartMessage::Refused { text }, _) => return Err(TakeOverError::Refused(text)),
                _ => return Err(TakeOverError::Unexpected),
            }
        }
        inheritance.sessions.retain(|session| !ended.contains(&session.worker.worker));
        Ok(inheritance)
    }

    /// Counts the parent's sessions among this broker's, and keeps its processes' users from others.
    pub fn into_relatives(
        self,
        (admission, clients): (&Admission, &AcceptedClients),
        spawner: &Spawner,
        monitor: &Monitor,
    ) -> Relatives {
        tracing::info!(
            sessions = self.sessions.len(),
            "taking over from the running server, which continues to serve its sessions"
        );
        let held = self.sessions.into_iter().map(|session| {
            monitor.session_started(session.worker.clone(), session.source);
            // There may be more than this broker's configuration lets there be.
            let group = clients.limits(session.source).group_name();
            let group = group.map(|name| (name, ClientLimits::default()));
            let limits = PeerLimits { group, ..PeerLimits::default() };
            let slot = admission.take_session(session.source, &limits).ok();
            (session, slot)
        });
        let held: Vec<_> = held.collect();
        Relatives::of_child(self.link, held, spawner.plan().reserve_users(&self.users))
    }
}

/// Tells the parent that callers are accepted, and hears from then on what it says.
pub fn follow_parent(shared: &Arc<Shared>) -> io::Result<()> {
    let Some(link) = shared.relatives.parent().cloned() else { return Ok(()) };
    let watched = Arc::downgrade(shared);
    threads::spawn("parent", {
        let link = Arc::clone(&link);
        move || receive_requests(&link, &watched)
    })?;
    link.send(&RestartMessage::Listening, None).map_err(io::Error::other)
}

fn receive_requests(link: &BrokerLink, shared: &Weak<Shared>) {
    loop {
        let message = link.receive();
        // The broker may have been stopped meanwhile.
        let Some(shared) = shared.upgrade() else { return };
        match message {
            Ok((RestartMessage::Ended { worker }, _)) => {
                shared.monitor.session_ended(worker);
                shared.relatives.session_of_parent_ends(worker);
            }
            Ok((RestartMessage::Reply { number, reply }, descriptor)) => {
                link.deliver(number, reply, descriptor)
            }
            Ok((RestartMessage::Query { number, query: RestartQuery::Export(token) }, _)) => {
                let found = shared.exports.find(&token);
                reply_with_export(link, number, found.or_else(|| shared.relatives.export_of_child(&token)));
            }
            Ok(_) => {
                tracing::warn!("unexpected message from the server that this one replaced")
            }
            Err(_) => {
                for worker in shared.relatives.parent_ends() {
                    shared.monitor.session_ended(worker);
                }
                return tracing::info!("the server that this one replaced has ended");
            }
        }
    }
}

/// Answers what is exported under a token.
pub fn reply_with_export(link: &BrokerLink, number: u32, found: Option<Exported>) {
    let descriptor = found.as_ref().and_then(|exported| exported.descriptor.clone());
    let reply = RestartReply::Export(found.map(|exported| exported.bytes));
    // Whoever has gone waits for nothing.
    let _ = link.send(&RestartMessage::Reply { number, reply }, descriptor.as_deref());
}
