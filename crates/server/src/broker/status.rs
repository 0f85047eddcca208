//! Status requests: sessions, devices and drain, for `causeway top` and `causeway drain`.

use std::sync::Arc;
use std::time::Duration;

use causeway_connection::channel::Connection;
use causeway_connection::exchange::Exchange;
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::handshake::{ClientHello, Response, SessionId};
use causeway_wire::status::{RELEASE_TIMEOUT, Reply, ServerStatus, StatusRequest};
use crossbeam_channel::RecvTimeoutError;

use super::authorization::Authorization;
use super::drain::may_drain;
use super::ending::drain;
use super::moves::Moves;
use super::refusal::{Refusal, refuse};
use super::shared::Shared;
use crate::admission::{Full, HandshakeSlot, Origin, Source};

/// Clients that may ask at the same time.
pub const MAX_CLIENTS: usize = 64;
/// Those of one peer.
pub const MAX_CLIENTS_PER_PEER: usize = 16;

/// How long a client may say nothing.
const STATUS_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers a client until it goes.
pub fn answer(
    shared: &Arc<Shared>,
    peer: Origin,
    hello: &ClientHello,
    mut connection: Connection,
    slot: HandshakeSlot,
) {
    let client = format!("{} (process {} on {})", hello.program, hello.pid, hello.host);
    let source = Source::of(peer);
    // Others may take all slots; who may end the server can always ask.
    let is_owner = may_drain(peer, rustix::process::geteuid().as_raw());
    let taken = if is_owner { Ok(()) } else { shared.askers.lock().take(source) };
    match taken {
        Ok(()) => {}
        Err(Full::InAll) => return refuse(&mut connection, "too many programs ask how it is already"),
        Err(Full::OfSource | Full::OfGroup) => {
            return refuse(&mut connection, "too many programs of this peer ask how it is already");
        }
    }
    if slot.finish() {
        drop(slot);
        tracing::debug!(%peer, "{client} requests the server's status");
        if let Err(error) = converse(shared, peer, connection) {
            tracing::debug!(%peer, "{client} has ended its status connection: {error}");
        }
    }
    if !is_owner {
        shared.askers.lock().release(source);
    }
}

fn converse(
    shared: &Arc<Shared>,
    peer: Origin,
    mut connection: Connection,
) -> Result<(), Box<dyn core::error::Error>> {
    connection.send_handshake(|out| Response::StatusReady.encode(out))?;
    let authorization = Authorization::new(&shared.key, peer);
    let mut exchange = Exchange::new(connection);
    let mut moves = Moves::new(shared, peer);
    while let Some(request) = exchange.receive(Some(moves.time_left().min(STATUS_TIMEOUT)))? {
        if let Err(why) = authorization.check(&shared.key, &shared.clients) {
            tracing::warn!(%peer, "a status connection is ended: {why}");
            exchange.send(|out| Reply::Refused { text: why.into() }.encode(out))?;
            return Ok(());
        }
        let reply = match Decoder::new(&request).value() {
            Ok(StatusRequest::Status) => Reply::Status(Box::new(status_for(shared, peer))),
            Ok(StatusRequest::Drain { seconds }) => begin_to_drain(shared, peer, seconds),
            Ok(StatusRequest::Release { session }) => release_memory(shared, peer, session),
            Ok(StatusRequest::GpuDirect { session, is_on }) => set_gpudirect(shared, peer, session, is_on),
            Ok(StatusRequest::Move(request)) => Reply::Move(moves.reply(request)),
            Ok(StatusRequest::Limits) => {
                let limits = shared.clients.limits(Source::of(peer));
                Reply::Limits {
                    device_memory: limits.lowest(|limits| limits.device_memory).map(|(limit, _)| limit),
                }
            }
            Err(error) => Reply::Refused {
                text: format!("this server, Causeway {}, does not know the question: {error}", release())
                    .into(),
            },
        };
        exchange.send(|out| reply.encode(out))?;
    }
    Ok(())
}

fn release() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn begin_to_drain(shared: &Arc<Shared>, peer: Origin, seconds: u32) -> Reply {
    if !may_drain(peer, rustix::process::geteuid().as_raw()) {
        tracing::warn!(%peer, "drain request denied: only the server's own user and root may drain");
        let text = "only the server's own user and root may drain it, on its own host";
        return Reply::Refused { text: text.into() };
    }
    tracing::info!(%peer, seconds, "drain requested");
    let limit = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    let already = drain(shared, limit);
    Reply::Draining { sessions: shared.admission.sessions() as u32, already }
}

/// Whether a peer may change a session, as by the release of its device memory: the server's own user and
/// root, and the session's owner as the kernel or a key of its own shows.
fn may_change(peer: Origin, own: u32, owner: Origin) -> bool {
    let is_known = peer.client().is_some() || matches!(peer, Origin::Host { .. });
    may_drain(peer, own) || is_known && Source::of(peer) == Source::of(owner)
}

/// Has a session's device memory released, if nothing is under way in it.
fn release_memory(shared: &Shared, peer: Origin, session: SessionId) -> Reply {
    let refused = |text: String| Reply::Refused { text: text.into() };
    let none = || refused(format!("there is no session {session} here, or a server before this one has it"));
    let Some(owner) = shared.sessions.peer(session) else { return none() };
    if !may_change(peer, rustix::process::geteuid().as_raw(), owner) {
        tracing::warn!(%peer, %session, "request to release device memory denied");
        return refused(
            "only the session's own client, and on the server's host its own user and root, may release its device memory".to_owned(),
        );
    }
    let Some(outcome) = shared.sessions.request_release(session) else { return none() };
    match outcome.recv_timeout(RELEASE_TIMEOUT) {
        Ok(None) => Reply::Released,
        Ok(Some(why)) => refused(format!("the device memory of session {session} is not released: {why}")),
        Err(RecvTimeoutError::Disconnected) => refused(format!("session {session} has ended")),
        Err(RecvTimeoutError::Timeout) => refused(format!("the worker of session {session} does not answer")),
    }
}

/// Has copies of a session use GPUDirect from the next one on, or staging.
fn set_gpudirect(shared: &Shared, peer: Origin, session: SessionId, is_on: bool) -> Reply {
    let refused = |text: String| Reply::Refused { text: text.into() };
    let none = || refused(format!("there is no session {session} here, or a server before this one has it"));
    let Some(owner) = shared.sessions.peer(session) else { return none() };
    if !may_change(peer, rustix::process::geteuid().as_raw(), owner) {
        tracing::warn!(%peer, %session, "request to switch GPUDirect denied");
        return refused(
            "only the session's own client, and on the server's host its own user and root, may switch its GPUDirect".to_owned(),
        );
    }
    let has_gpudirect = shared.sessions.counts(session).is_some_and(|counts| counts.has_gpudirect);
    if !has_gpudirect {
        return refused(format!(
            "session {session} has no GPUDirect: no network card accesses its device memory (`causeway doctor` says why)"
        ));
    }
    if !shared.sessions.set_gpudirect(session, is_on) {
        return none();
    }
    tracing::info!(%peer, %session, is_on, "GPUDirect of a session switched");
    Reply::GpuDirectSet
}

/// How the server is now, as far as it concerns who asks: a client with a key of its own is notified of its own
/// sessions.
fn status_for(shared: &Shared, peer: Origin) -> ServerStatus {
    let mut status = status(shared);
    if let Some(client) = peer.client() {
        let own = format!("{client} at ");
        status.sessions.retain(|session| session.peer.starts_with(&own));
    }
    status
}

/// How the server is now.
pub fn status(shared: &Shared) -> ServerStatus {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ServerStatus {
        release: release().into(),
        process: std::process::id(),
        running: milliseconds(shared.totals.running()),
        is_draining: shared.drain.is_started(),
        max_sessions: shared.admission.max_sessions() as u32,
        sessions_started: shared.totals.sessions_started(),
        refused: Refusal::ALL.iter().map(|why| shared.totals.refusals(*why)).sum(),
        sockets: shared.local.locality().sockets,
        sessions: shared.relatives.sessions().into_iter().chain(shared.sessions.list()).collect(),
        devices: shared.gpus.now(&shared.monitor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::NetworkAddress;

    #[test]
    fn who_has_a_session_and_the_servers_owner_release_its_memory() {
        let host = |user| Origin::Host { process: 1, user, group: 0 };
        let address = NetworkAddress::Ip("127.0.0.1:1".parse().unwrap());
        let client = |name: &str| Origin::Client {
            name: name.parse().unwrap(),
            key: causeway_wire::handshake::KeyId([0; 8]),
            address,
        };
        assert!(may_change(host(1000), 1000, client("ada")) && may_change(host(0), 1000, host(7)));
        assert!(may_change(client("ada"), 1000, client("ada")) && may_change(host(7), 1000, host(7)));
        assert!(!may_change(client("bob"), 1000, client("ada")) && !may_change(host(8), 1000, host(7)));
        // Whoever holds the server's key is anybody.
        let network = Origin::Network(address);
        assert!(!may_change(network, 1000, network));
    }

    #[test]
    fn only_the_owner_and_root_end_a_server() {
        let host = |user| Origin::Host { process: 1, user, group: 0 };
        assert!(may_drain(host(1000), 1000) && may_drain(host(0), 1000));
        assert!(!may_drain(host(1001), 1000) && !may_drain(host(u32::MAX), 1000));
        assert!(!may_drain(Origin::Network(NetworkAddress::Ip("127.0.0.1:1".parse().unwrap())), 0));
    }
}
