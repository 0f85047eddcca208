//! Accept loop: handshake, and dispatch of new connections by purpose.
//!
//! How many may at once, `admission` decides.

use core::fmt;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::target::socket_proof;
use causeway_connection::channel::Connection;
use causeway_connection::vsock::VsockListener;
use causeway_link::accept::{
    AcceptError, AcceptPolicy, Caller, HandshakeTimeouts, Request, authenticate, authenticate_local,
};
use causeway_link::transports::upgrade_kind;
use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::{
    ClientHello, KeyId, LaneHello, LaneToken, OwnVersion, PeerHello, Response, SessionId, UpgradeHello,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::listen;

use super::authorization::Authorization;
use super::drain::Drain;
use super::hot_restart::Forward;
use super::monitor::MonitoredPeer;
use super::refusal::{Refusal, refuse};
use super::sessions::Upgrader;
use super::shared::{SecretsFor, Shared};
use super::{diagnosis, enrolment, session, status};
use crate::admission::{HandshakeSlot, Handshakes, NetworkAddress, Origin, Source};
use crate::protocol::messages::{self, SessionRequest, ToWorker};

/// How long accepting pauses when the system has no descriptors or memory left.
const ACCEPT_RETRY_DELAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// How long those wait in the kernel's queue for whom there is no slot, before slots are looked for again.
const SLOT_POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// How many may wait there, where the system's own limit is not lower. The standard library has the kernel
/// keep 128, and who comes when these are there waits until one has gone, from the network a second or more
/// until its own kernel asks again.
const BACKLOG: i32 = 4096;

/// How long the log says nothing more of too many handshakes after it has.
const OVERLOAD_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A socket at which callers from a network are accepted.
pub enum NetworkListener {
    Tcp(Arc<TcpListener>),
    Vsock(Arc<VsockListener>),
}

impl NetworkListener {
    /// The next caller.
    pub fn accept(&self) -> io::Result<(TcpStream, NetworkAddress)> {
        match self {
            Self::Tcp(socket) => socket.accept().map(|(stream, peer)| (stream, peer.into())),
            Self::Vsock(socket) => {
                socket.accept().map(|(stream, peer)| (stream, NetworkAddress::Vsock(peer)))
            }
        }
    }
}

impl AsFd for NetworkListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Vsock(socket) => socket.as_fd(),
        }
    }
}

/// Accepts callers until the other end of `stopped` is closed.
pub fn accept_until(network: &[NetworkListener], stopped: &UnixStream, shared: &Arc<Shared>) {
    let admission = &shared.admission;
    let local = shared.local.listeners();
    let lengthened = local.iter().try_for_each(|local| listen(&local.socket, BACKLOG));
    let lengthened =
        lengthened.and_then(|()| network.iter().try_for_each(|listener| listen(listener, BACKLOG)));
    if let Err(error) = lengthened {
        tracing::warn!("many simultaneous connections may have to wait: {}", io::Error::from(error));
    }
    let mut is_paused = false;
    let mut last_overload_log: Option<Instant> = None;
    loop {
        // Whoever finds no slot stays in the kernel's queue.
        let events = |handshakes: &Handshakes| {
            if is_paused || !handshakes.has_capacity() { PollFlags::empty() } else { PollFlags::IN }
        };
        let (from_network, from_host) = (events(&admission.network), events(&admission.local));
        let mut waiting_for = vec![PollFd::new(stopped, PollFlags::IN)];
        waiting_for.extend(local.iter().map(|local| PollFd::new(&local.socket, from_host)));
        waiting_for.extend(network.iter().map(|listener| PollFd::new(listener, from_network)));
        let timeout = match (is_paused, from_network.is_empty() || from_host.is_empty()) {
            (true, _) => Some(&ACCEPT_RETRY_DELAY),
            (false, true) => Some(&SLOT_POLL_INTERVAL),
            (false, false) => None,
        };
        // An interrupted wait is only a reason to look again.
        let _ = poll(&mut waiting_for, timeout);
        if !waiting_for[0].revents().is_empty() {
            return;
        }
        for (i, waiting) in waiting_for.iter().enumerate().skip(1) {
            // After a pause every listener is looked at.
            let is_silent = waiting.revents().is_empty() && !is_paused;
            let handshakes = if i <= local.len() { &admission.local } else { &admission.network };
            if is_silent || !handshakes.has_capacity() {
                continue;
            }
            let accepted = match (local.get(i - 1), network.get((i - 1).saturating_sub(local.len()))) {
                (Some(local), _) => local.socket.accept().map(|(stream, _)| Incoming::Local(stream)),
                (None, Some(listener)) => {
                    listener.accept().map(|(stream, peer)| Incoming::Network(stream, peer))
                }
                (None, None) => break,
            };
            match accepted.and_then(|incoming| Ok((incoming.enter(shared)?, incoming))) {
                Ok((Some(slot), incoming)) => {
                    is_paused = false;
                    if slot.displaced
                        && last_overload_log
                            .is_none_or(|reported_at| reported_at.elapsed() >= OVERLOAD_LOG_INTERVAL)
                    {
                        last_overload_log = Some(Instant::now());
                        tracing::warn!(
                            "too many handshakes at once: closed the oldest of the address with the most, for {incoming}"
                        );
                    }
                    let own = Arc::clone(shared);
                    if let Err(error) = threads::spawn("caller", move || incoming.serve(&own, slot)) {
                        tracing::error!("a connection was refused: starting a thread failed: {error}");
                    }
                }
                Ok((None, incoming)) => {
                    tracing::warn!("{incoming} was refused: there is no slot for it")
                }
                Err(error) => is_paused = must_pause(&error, is_paused),
            }
        }
    }
}

/// Somebody who has connected.
enum Incoming {
    Network(TcpStream, NetworkAddress),
    /// From this host.
    Local(UnixStream),
}

/// Whether accepting must pause after `error`, which is logged once while the trouble lasts.
fn must_pause(error: &io::Error, already: bool) -> bool {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
            if !already {
                tracing::error!("accepting connections is paused: {error}; existing sessions continue");
            }
            true
        }
        // The others concern one caller that has gone again, or say that there is none.
        _ => false,
    }
}

impl fmt::Display for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(_, peer) => write!(f, "a caller at {peer}"),
            Self::Local(_) => f.write_str("a caller on this host"),
        }
    }
}

impl Incoming {
    /// Where it comes from.
    fn origin(&self) -> Origin {
        match self {
            Self::Network(_, peer) => Origin::Network(*peer),
            Self::Local(stream) => Origin::of_local(stream),
        }
    }

    /// Takes a slot among those that shake hands, if there is one.
    fn enter(&self, shared: &Shared) -> io::Result<Option<HandshakeSlot>> {
        let source = Source::of(self.origin());
        match self {
            Self::Network(stream, _) => shared.admission.network.enter(source, stream),
            Self::Local(stream) => shared.admission.local.enter(source, stream),
        }
    }

    /// Serves one caller: all of its session when it asks for one.
    fn serve(self, shared: &Arc<Shared>, slot: HandshakeSlot) {
        let (origin, accepted) = self.authenticate(shared);
        let Caller { request, connection, invitation, .. } = match accepted {
            Ok(caller) => caller,
            // A connection without a word is how `causeway run` checks that the server is there, and how
            // other servers find out whether a socket is still in use.
            Err(AcceptError::Ended) => {
                return tracing::debug!(peer = %origin, "a peer disconnected before it sent a request");
            }
            Err(error) => {
                if let Some(why) = Refusal::of_handshake(&error) {
                    shared.totals.refused(why);
                    shared.audit.refused(origin, None, why, &error.to_string());
                }
                // The client of a session that has moved on or ended tries again and again, and nothing is wrong.
                if let AcceptError::NoSession = error {
                    return tracing::info!(peer = %origin, "a connection was refused: {error}");
                }
                return tracing::warn!(peer = %origin, "a connection was refused: {error}");
            }
        };
        // What is refused may take its time to go, and may have to give way meanwhile.
        match request {
            Request::Session { hello, version } => {
                begin_session(shared, origin, hello, version, connection, slot);
            }
            Request::Monitor { hello } => {
                let limits = shared.clients.limits(Source::of(origin));
                let device_memory = limits.lowest(|limits| limits.device_memory).map(|(limit, _)| limit);
                let authorization = Authorization::new(&shared.key, origin);
                let (server, proved) = (Arc::downgrade(shared), authorization.clone());
                let check = Box::new(move || {
                    server.upgrade().map_or(Ok(()), |server| proved.check(&server.key, &server.clients))
                });
                let monitored = MonitoredPeer { origin, authorization, check, device_memory };
                shared.monitor.add_client(monitored, hello, connection, slot);
            }
            Request::Status { hello } => status::answer(shared, origin, &hello, connection, slot),
            Request::Diagnosis { hello } => {
                diagnosis::answer(shared, origin, &hello, connection, slot);
            }
            Request::Enrol { hello, key } => {
                if let Some(invitation) = invitation {
                    enrolment::enrol(shared, origin, &hello, invitation, key, connection, slot);
                }
            }
            _ if !slot.finish() => {}
            Request::Peer(hello) => lead_to_session(shared, SessionRequest::Peer(hello), connection, &origin),
            Request::Lane(hello) => lead_to_session(shared, SessionRequest::Lane(hello), connection, &origin),
            Request::Upgrade(hello) => {
                lead_to_session(shared, SessionRequest::Upgrade(hello), connection, &origin)
            }
        }
    }

    /// Finds out who it is, and what it wants.
    fn authenticate(self, shared: &Shared) -> (Origin, Result<Caller, AcceptError>) {
        let config = &shared.config;
        let version = OwnVersion::new(config.commands);
        let timeouts = HandshakeTimeouts { proof: config.proof_timeout, request: config.handshake_timeout };
        match self {
            Self::Network(stream, peer) => {
                let accepted = stream.set_nonblocking(false).map_err(AcceptError::from).and_then(|()| {
                    // Nobody is let in while the key cannot be read.
                    let key = shared.key.current().map_err(|error| {
                        tracing::error!("{error}");
                        AcceptError::Io(io::Error::other("the server's key cannot be read"))
                    })?;
                    let door =
                        AcceptPolicy { key: key.as_ref(), clear: config.clear, version: &version, timeouts };
                    let secrets = SecretsFor { shared, source: Source::of(Origin::Network(peer)) };
                    authenticate(stream, &door, &secrets)
                });
                let client = accepted.as_ref().ok().and_then(|caller| caller.client);
                let origin = match client {
                    Some((name, key)) => Origin::Client { name, key, address: peer },
                    None => Origin::Network(peer),
                };
                (origin, accepted)
            }
            Self::Local(stream) => {
                let origin = Origin::of_local(&stream);
                let trusted = config.allowed.admits(&stream, origin);
                let proof = |nonce: &[u8; 32], client: Option<KeyId>| {
                    if let Some(client) = client {
                        return shared.clients.key(client).ok().map(|key| socket_proof(Some(&key), nonce));
                    }
                    let key = shared.key.current().inspect_err(|error| tracing::error!("{error}"));
                    key.ok().map(|key| socket_proof(key.as_ref(), nonce))
                };
                let accepted = stream.set_nonblocking(false).map_err(AcceptError::from);
                let accept = || authenticate_local(stream, trusted, proof, &version, timeouts);
                (origin, accepted.and_then(|()| accept()))
            }
        }
    }
}

/// Error for the program of a fork that connects too late, or a second time.
const NO_STATE: &str = "the state of the session that this process is a fork of is no longer here: it is \
                        kept for 15 s, for one process, while the parent waits";

/// Runs a session, if there may be one more.
fn begin_session(
    shared: &Arc<Shared>,
    peer: Origin,
    hello: ClientHello,
    version: u16,
    mut connection: Connection,
    slot: HandshakeSlot,
) {
    let mut state = None;
    let session_slot = match hello.fork {
        Some(ticket) => shared.forks.take(ticket, Source::of(peer)).map_or_else(
            || Err((Refusal::NotProved, NO_STATE.to_owned())),
            |fork| {
                state = Some((fork.parent, fork.state));
                Ok(fork.slot)
            },
        ),
        None => shared.take_slot(peer).map_err(|refused| (Refusal::from(&refused), refused.to_string())),
    };
    let session_slot = session_slot.and_then(|session_slot| {
        // Only now: whoever drains waits for those that have session slots.
        if shared.drain.is_started() {
            let sessions = shared.admission.sessions() - 1;
            drop(session_slot);
            return Err((Refusal::Draining, Drain::refusal(sessions)));
        }
        Ok(session_slot)
    });
    let session_slot = match session_slot {
        Ok(session_slot) => session_slot,
        Err((why, text)) => {
            let client = format!("{} (process {} on {})", hello.program, hello.pid, hello.host);
            tracing::warn!(%peer, "{client} was refused: {text}");
            shared.totals.refused(why);
            shared.audit.refused(peer, Some(&hello), why, &text);
            return refuse(&mut connection, &text);
        }
    };
    if slot.finish() {
        drop(slot);
        if let Some(worker) = session::run_session(shared, peer, hello, version, connection, state) {
            return shared.relatives.session_ends(worker, || drop(session_slot));
        }
    }
    drop(session_slot);
}

/// Hands the connection of a caller to the worker of the session that it wants to get to.
pub fn lead_to_session(
    shared: &Shared,
    request: SessionRequest,
    connection: Connection,
    origin: &dyn fmt::Display,
) {
    let (session, what, outcome) = match request {
        SessionRequest::Peer(hello) => {
            (hello.session, "another server was refused".to_owned(), add_peer(shared, &hello, connection))
        }
        SessionRequest::Lane(hello) => {
            (hello.session, "a bulk lane was refused".to_owned(), add_lane(shared, &hello, connection))
        }
        SessionRequest::Upgrade(hello) => {
            let transport = upgrade_kind(&hello);
            let outcome = hand_over_upgrade(shared, &hello, connection);
            (hello.session(), format!("its transport cannot change to {transport}"), outcome)
        }
    };
    if let Err(error) = outcome {
        tracing::warn!(peer = %origin, %session, "{what}: {error}");
    }
}

/// Hands a caller on to the broker whose place this one has taken, since no session of this one's is meant, or tells it
/// why it is refused.
fn forward_or_refuse(
    shared: &Shared,
    request: SessionRequest,
    connection: Connection,
    refusal: &str,
    cause: &'static str,
) -> Result<(), messages::ControlError> {
    match shared.relatives.forward(request, connection) {
        Ok(()) => Ok(()),
        Err(Forward::Failed(error)) => Err(error),
        Err(Forward::NoParent(mut connection)) => {
            refuse(&mut connection, refusal);
            Err(messages::ControlError::Io(io::Error::other(cause)))
        }
    }
}

/// Refuses another transport than TCP to a client whose bandwidth is limited; whether it has.
fn refuse_paced(shared: &Shared, session: SessionId, token: LaneToken, connection: &mut Connection) -> bool {
    let is_paced = shared.sessions.is_paced(session, token);
    if is_paced {
        refuse(
            connection,
            "the client's bandwidth is limited (`bandwidth` in the list of clients), which only TCP supports",
        );
    }
    is_paced
}

fn add_lane(
    shared: &Shared,
    hello: &LaneHello,
    mut connection: Connection,
) -> Result<(), messages::ControlError> {
    let Some(control) = shared.sessions.admit_lane(hello) else {
        let refusal = if hello.lane == LaneHello::COMMANDS {
            "this server does not have the program's session: it was restarted meanwhile, or has ended the \
             session. Start the program again. `causeway checkpoint` before a restart of the server saves a \
             session to a file, from which it can be resumed"
        } else {
            "the lane's session has ended, or already has this lane"
        };
        return forward_or_refuse(
            shared,
            SessionRequest::Lane(*hello),
            connection,
            refusal,
            "no such session, a wrong token, or no such lane",
        );
    };
    connection.send_handshake(|out| Response::LaneReady.encode(out))?;
    let (socket, keys) = messages::take_apart(connection)?;
    messages::send(&control, &ToWorker::Lane { keys }, Some(&socket))
}

/// Hands a connection on which another transport is asked for to the session's worker, which answers.
fn hand_over_upgrade(
    shared: &Shared,
    hello: &UpgradeHello,
    mut connection: Connection,
) -> Result<(), messages::ControlError> {
    if refuse_paced(shared, hello.session(), hello.token(), &mut connection) {
        return Ok(());
    }
    let Some((control, upgrader)) = shared.sessions.admit_upgrade(hello) else {
        let transport = upgrade_kind(hello);
        return forward_or_refuse(
            shared,
            SessionRequest::Upgrade(*hello),
            connection,
            &format!("the session has ended, or has already requested {transport}"),
            "no such session, or a wrong token",
        );
    };
    let (socket, keys) = messages::take_apart(connection)?;
    let message = ToWorker::Upgrade { hello: *hello, is_peer: upgrader == Upgrader::Peer, keys };
    messages::send(&control, &message, Some(&socket))
}

fn add_peer(
    shared: &Shared,
    hello: &PeerHello,
    mut connection: Connection,
) -> Result<(), messages::ControlError> {
    let Some(control) = shared.sessions.admit_peer(hello) else {
        return forward_or_refuse(
            shared,
            SessionRequest::Peer(*hello),
            connection,
            "the ticket's session has ended, or the ticket has been used",
            "no such session, or a wrong ticket",
        );
    };
    connection.send_handshake(|out| Response::LaneReady.encode(out))?;
    let (socket, keys) = messages::take_apart(connection)?;
    let (ticket, connection) = (hello.ticket, hello.connection);
    messages::send(&control, &ToWorker::Peer { ticket, connection, keys }, Some(&socket))
}
