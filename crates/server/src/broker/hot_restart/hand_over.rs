//! Parent's side of a hot restart: what it gives its child, and what it does for it as long as its own sessions last.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use causeway_connection::channel::Connection;
use causeway_sync::threads;
use crossbeam_channel::{Receiver, bounded};
use std::net::TcpStream;
use thiserror::Error;

use super::link::BrokerLink;
use super::take_over::reply_with_export;
use crate::broker::ending;
use crate::broker::listen::lead_to_session;
use crate::broker::listeners::Listeners;
use crate::broker::shared::Shared;
use crate::protocol::messages::{
    ControlError, PROTOCOL, RestartMessage, RestartQuery, RestartReply, SessionRequest,
};

/// How long callers that shake hands may take when nobody else is accepted. Others wait meanwhile.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval at which they are asked whether they are done.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Sessions in one reply, which are far fewer bytes than a message may have.
const SESSIONS_IN_REPLY: usize = 32;
/// Callers of the child's that are led to sessions at the same time; more are hung up on.
const MAX_SUCCESSORS: usize = 64;

/// Why a server goes on instead of a new one.
#[derive(Debug, Error)]
pub enum HandOverError {
    /// The new one has ended before it could serve.
    #[error("the new server did not start; see its messages above")]
    NotStarted,
    /// The new one speaks another version.
    #[error(
        "the new server uses version {child} of the handover protocol, and this one version {PROTOCOL}: end \
         this one's sessions (`causeway drain`), then start the new one"
    )]
    OtherProtocol {
        /// The new one's version.
        child: u32,
    },
    /// The new one has begun to take over and does not go on.
    #[error("the new server ended while it took over: {0}")]
    Ended(ControlError),
    /// The system refuses something.
    #[error("cannot hand over sockets: {0}")]
    System(#[from] io::Error),
}

/// Hands all over to a child, as soon as it asks for that at the other end of `control`. What is received says whether
/// it has been done; if not, the broker goes on as before.
pub fn hand_over(
    listeners: Arc<Listeners>,
    shared: Arc<Shared>,
    control: OwnedFd,
) -> io::Result<Receiver<Result<(), HandOverError>>> {
    let link = Arc::new(BrokerLink::new(control)?);
    let (sender, receiver) = bounded(1);
    threads::spawn("child", move || {
        let outcome = try_hand_over(&listeners, &shared, &link);
        let is_done = outcome.is_ok();
        // Whoever asked may have ended.
        let _ = sender.send(outcome);
        if is_done {
            drop(listeners);
            serve_child(&shared, &link);
        }
    })?;
    Ok(receiver)
}

fn try_hand_over(
    listeners: &Listeners,
    shared: &Arc<Shared>,
    link: &Arc<BrokerLink>,
) -> Result<(), HandOverError> {
    match link.receive() {
        Ok((RestartMessage::TakeOver { protocol: PROTOCOL }, _)) => {}
        Ok((RestartMessage::TakeOver { protocol: child }, _)) => {
            let error = HandOverError::OtherProtocol { child };
            // It ends either way.
            let _ = link.send(&RestartMessage::Refused { text: error.to_string() }, None);
            return Err(error);
        }
        _ => return Err(HandOverError::NotStarted),
    }
    listeners.close();
    finish_handshakes(shared);
    if let Err(error) = hand_over_all(listeners, shared, link) {
        shared.relatives.set_child(None, || ());
        listeners.open()?;
        return Err(error);
    }
    listeners.give_up();
    // Nobody comes for the worker that is ready.
    shared.spares.end();
    // The sessions are waited for, and then this broker ends.
    ending::drain(shared, None);
    Ok(())
}

/// Gives the child everything, and waits until it accepts callers.
fn hand_over_all(
    listeners: &Listeners,
    shared: &Shared,
    link: &Arc<BrokerLink>,
) -> Result<(), HandOverError> {
    let send = |message: &RestartMessage, socket: Option<&OwnedFd>| {
        link.send(message, socket).map_err(HandOverError::Ended)
    };
    for (address, socket) in listeners.copies()? {
        send(&RestartMessage::Listener(address), Some(&socket))?;
    }
    send(&RestartMessage::Users(shared.spawner.plan().users_taken()), None)?;
    // From here on the child is notified of each end; it may hear of one before it hears of the session.
    let sessions = shared.relatives.set_child(Some(Arc::clone(link)), || {
        [shared.relatives.remaining(), shared.sessions.remaining()].concat()
    });
    for session in sessions {
        send(&RestartMessage::Session(session), None)?;
    }
    send(&RestartMessage::HandedOver, None)?;
    match link.receive() {
        Ok((RestartMessage::Listening, _)) => Ok(()),
        Ok(_) => Err(HandOverError::NotStarted),
        Err(error) => Err(HandOverError::Ended(error)),
    }
}

/// Waits until those who were let in before are refused or have a session. Who does not say for long what it wants is
/// hung up on, as where a slot is needed for somebody else.
fn finish_handshakes(shared: &Shared) {
    let kinds = [&shared.admission.network, &shared.admission.local];
    let are_done = || kinds.iter().all(|handshakes| handshakes.is_empty());
    // A session has a slot before it is in the table.
    let are_known =
        || shared.admission.sessions() <= shared.sessions.count() + shared.relatives.remaining().len();
    wait_until(&are_done);
    kinds.iter().for_each(|handshakes| handshakes.hang_up_all());
    wait_until(&|| are_done() && are_known());
}

fn wait_until(is_so: &dyn Fn() -> bool) {
    let end = Instant::now() + HANDSHAKE_TIMEOUT;
    while !is_so() && Instant::now() < end {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Does what the child asks for, until it or this broker ends.
fn serve_child(shared: &Arc<Shared>, link: &Arc<BrokerLink>) {
    let successors = Arc::new(AtomicUsize::new(0));
    loop {
        match link.receive() {
            Ok((RestartMessage::Caller { request, keys }, Some(socket))) => {
                let connection = Connection::new(TcpStream::from(socket), keys);
                lead(shared, &successors, request, connection);
            }
            Ok((RestartMessage::Query { number, query }, _)) => reply_to(shared, link, number, query),
            Ok((RestartMessage::Reply { number, reply }, descriptor)) => {
                link.deliver(number, reply, descriptor)
            }
            Ok((RestartMessage::Stop, _)) => {
                shared.drain.begin(Some(Duration::ZERO));
            }
            Ok(_) => {
                tracing::warn!("unexpected message from the server that replaced this one")
            }
            Err(_) => {
                link.end();
                if !shared.stopping.load(Ordering::SeqCst) {
                    tracing::warn!(
                        "the server that replaced this one has ended; the remaining sessions continue"
                    );
                }
                return;
            }
        }
    }
}

/// Leads a caller of the child's to its session, on a thread of its own: it may have to be informed why it is refused.
fn lead(
    shared: &Arc<Shared>,
    successors: &Arc<AtomicUsize>,
    request: SessionRequest,
    connection: Connection,
) {
    if successors.fetch_add(1, Ordering::Relaxed) >= MAX_SUCCESSORS {
        successors.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (own, counted) = (Arc::clone(shared), Arc::clone(successors));
    let started = threads::spawn("caller", move || {
        lead_to_session(&own, request, connection, &"the new server");
        counted.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(error) = started {
        successors.fetch_sub(1, Ordering::Relaxed);
        tracing::error!("a connection was refused: starting a thread failed: {error}");
    }
}

fn reply_to(shared: &Shared, link: &BrokerLink, number: u32, query: RestartQuery) {
    let reply = match query {
        RestartQuery::Ticket(id) => RestartReply::Ticket(shared.ticket(id)),
        RestartQuery::Sessions { skipped } => {
            let all = shared.relatives.sessions().into_iter().chain(shared.sessions.list());
            RestartReply::Sessions(all.skip(skipped as usize).take(SESSIONS_IN_REPLY).collect())
        }
        RestartQuery::Export(token) => {
            let found = shared.exports.find(&token).or_else(|| shared.relatives.export_of_parent(&token));
            return reply_with_export(link, number, found);
        }
    };
    // A child that has ended waits for nothing.
    let _ = link.send(&RestartMessage::Reply { number, reply }, None);
}
