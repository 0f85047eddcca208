//! Parent and child of a broker, whose sessions belong to the same server.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use causeway_connection::channel::Connection;
use causeway_sandbox::User;
use causeway_wire::handshake::{LaneToken, TicketId};
use causeway_wire::status::SessionStatus;

use super::link::BrokerLink;
use crate::admission::SessionSlot;
use crate::broker::exports::Exported;
use crate::locks::{Monitor, Mutex, rank};
use crate::protocol::messages::{
    self, ControlError, RemainingSession, RestartMessage, RestartQuery, RestartReply, SessionRequest, Token,
};

/// What a broker has of its relatives.
#[derive(Default)]
pub struct Relatives {
    parent: Option<Parent>,
    child: Mutex<rank::ChildBroker, Option<Arc<BrokerLink>>>,
}

/// A session of the parent's, and the slot that it has among all.
type Held = (RemainingSession, Option<SessionSlot>);

/// The broker whose place this one has taken.
struct Parent {
    link: Arc<BrokerLink>,
    /// Its sessions by their workers, each with its part of all; nothing once it has ended.
    sessions: Monitor<rank::Leaf, Option<HashMap<u32, Held>>>,
    /// Its processes' users, which new ones must not have.
    users: Mutex<rank::Leaf, Vec<User>>,
}

impl Relatives {
    /// Those of a broker that takes another one's place.
    pub fn of_child(
        link: Arc<BrokerLink>,
        sessions: impl IntoIterator<Item = Held>,
        users: Vec<User>,
    ) -> Self {
        let sessions = sessions.into_iter().map(|held| (held.0.worker.worker, held));
        let parent =
            Parent { link, sessions: Monitor::new(Some(sessions.collect())), users: Mutex::new(users) };
        Self { parent: Some(parent), child: Mutex::default() }
    }

    /// The way to the parent.
    pub fn parent(&self) -> Option<&Arc<BrokerLink>> {
        self.parent.as_ref().map(|parent| &parent.link)
    }

    fn child(&self) -> Option<Arc<BrokerLink>> {
        self.child.lock().clone()
    }

    /// There is a child from now on, or none any more; `change` happens before it is notified of any end of a session.
    pub fn set_child<R>(&self, child: Option<Arc<BrokerLink>>, change: impl FnOnce() -> R) -> R {
        let mut known = self.child.lock();
        let result = change();
        *known = child;
        result
    }

    /// A session of this broker's ends: `end` releases what it had, and the child is notified.
    pub fn session_ends(&self, worker: u32, end: impl FnOnce()) {
        let child = {
            let child = self.child.lock();
            end();
            child.clone()
        };
        if let Some(child) = child {
            // A child that has gone need not know.
            let _ = child.send(&RestartMessage::Ended { worker }, None);
        }
    }

    /// A session of the parent's has ended.
    pub fn session_of_parent_ends(&self, worker: u32) {
        let Some(parent) = &self.parent else { return };
        let ended = parent.sessions.change(|sessions| sessions.as_mut()?.remove(&worker));
        self.session_ends(worker, || drop(ended));
    }

    /// The parent has ended, and what it had is free.
    pub fn parent_ends(&self) -> Vec<u32> {
        let Some(parent) = &self.parent else { return Vec::new() };
        parent.link.end();
        let sessions = parent.sessions.change(Option::take).unwrap_or_default();
        parent.users.lock().clear();
        let workers = sessions.keys().copied().collect();
        for (worker, session) in sessions {
            self.session_ends(worker, || drop(session));
        }
        workers
    }

    /// The sessions of the parent that have not ended.
    pub fn remaining(&self) -> Vec<RemainingSession> {
        let Some(parent) = &self.parent else { return Vec::new() };
        let sessions = parent.sessions.lock();
        sessions.iter().flatten().map(|(_, (session, _))| session.clone()).collect()
    }

    /// Has the parent end its sessions, for this broker stops.
    pub fn stop_parent(&self) {
        if let Some(parent) = &self.parent {
            // One that has ended has none.
            let _ = parent.link.send(&RestartMessage::Stop, None);
        }
    }

    /// This broker has no sessions any more: the child need not wait for it.
    pub fn leave_child(&self) {
        if let Some(child) = self.child() {
            child.shut_down();
        }
    }

    /// Waits until the parent has ended, or the time is over.
    pub fn wait_for_parent(&self, limit: Duration) {
        if let Some(parent) = &self.parent {
            parent.sessions.wait_for(limit, |sessions| sessions.is_none().then_some(()));
        }
    }

    /// A ticket of one of the parent's sessions.
    pub fn ticket(&self, id: TicketId) -> Option<LaneToken> {
        match self.parent()?.ask(RestartQuery::Ticket(id))? {
            (RestartReply::Ticket(ticket), _) => ticket,
            _ => None,
        }
    }

    /// The open sessions of the parent.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let mut all = Vec::new();
        let Some(parent) = self.parent() else { return all };
        loop {
            let skipped = u32::try_from(all.len()).unwrap_or(u32::MAX);
            match parent.ask(RestartQuery::Sessions { skipped }) {
                Some((RestartReply::Sessions(sessions), _)) if !sessions.is_empty() => all.extend(sessions),
                _ => return all,
            }
        }
    }

    /// What a session of the parent's has exported.
    pub fn export_of_parent(&self, token: &Token) -> Option<Exported> {
        export_of(self.parent()?, token)
    }

    /// What a session of the child's has exported.
    pub fn export_of_child(&self, token: &Token) -> Option<Exported> {
        export_of(&*self.child()?, token)
    }

    /// Hands the connection of somebody who wants to get to a session to the parent; the connection itself where
    /// there is none.
    pub fn forward(&self, request: SessionRequest, connection: Connection) -> Result<(), Forward> {
        let Some(parent) = self.parent() else { return Err(Forward::NoParent(Box::new(connection))) };
        let (socket, keys) = messages::take_apart(connection).map_err(ControlError::from)?;
        Ok(parent.send(&RestartMessage::Caller { request, keys }, Some(&socket))?)
    }
}

/// Why a connection has not been handed to the parent.
pub enum Forward {
    /// There is none.
    NoParent(Box<Connection>),
    /// It cannot be known.
    Failed(ControlError),
}

impl From<ControlError> for Forward {
    fn from(error: ControlError) -> Self {
        Self::Failed(error)
    }
}

fn export_of(link: &BrokerLink, token: &Token) -> Option<Exported> {
    match link.ask(RestartQuery::Export(*token))? {
        (RestartReply::Export(bytes), descriptor) => {
            Some(Exported { bytes: bytes?, descriptor: descriptor.map(Arc::<OwnedFd>::new) })
        }
        _ => None,
    }
}
