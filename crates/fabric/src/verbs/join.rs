//! How do two processes come to be joined by queue pairs?
//!
//! The client opens one more connection to the server, proves there that it owns the session, and says what it would like; the broker
//! hands the connection to the session's worker. Both then tell each other what their queue pairs need and bring them up,
//! or let rdma_cm do that, which iWARP demands; the client greets the worker on each queue pair, the worker answers there, and with
//! that the client decides to go on over verbs and says so. Until then either may give up by ending the connection, and
//! the session stays on TCP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_verbs::{
    Access, Buffer, Gid, Libraries, Listener, PathMtu, RemoteEnd, RemoteMemory, Route,
    Settings as PathSettings, Transport,
};
use causeway_wire::codec::{Decode, Decoder, Encode as _};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{Answer, VerbsEnd, VerbsHello};

use super::JoinError;
use super::ends::{Counts, Memory, Prepared, local_port, port_of};
use super::path::{Path, send_layout};
use super::settings::{MOST_DEPTH, MOST_QUEUE_PAIRS, Method, Settings};
use super::state::{Materials, State};
use super::transfers::parts;
use crate::link::{Link, LinkError, Receiver};
use crate::shm::layout::SLOT;
use crate::target::random_bytes;
use crate::tcp::channel::Connection;

/// How long either end waits for the whole of it. What cannot be is said at once, and the end of a process is noticed, so that
/// this much is waited only for a machine that is busy, with the start of hundreds of sessions for instance, or for packets of
/// rdma_cm that nobody answers.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a client waits for an answer to its greetings. A path that carries nothing is noticed by its card sooner.
const PATIENCE_WITH_PATH: Duration = Duration::from_secs(10);
/// Ports that are tried for a connection of rdma_cm. With a tenth of all ports in use, one session in 10^8 finds none.
const MOST_PORTS: u32 = 8;
/// Reads that are under way at a time, at most: what cards of the last ten years allow.
const MOST_READS: u32 = 16;

/// Queue pairs that carry messages both ways, and the connection beside them.
pub struct Joined {
    state: Arc<State>,
    setup: Connection,
}

impl core::fmt::Debug for Joined {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Joined").field("queue_pairs", &self.state.paths.len()).finish_non_exhaustive()
    }
}

impl Joined {
    /// The session's link. `command` is the connection over which the session was asked for; it ends with the session.
    pub fn link(self, command: &Connection) -> io::Result<(Link, Receiver)> {
        let sockets = [command.socket().try_clone()?, self.setup.socket().try_clone()?];
        self.state.ends_with(sockets);
        let (parts, descriptors) = parts(self.state, self.setup, command)?;
        Link::new(parts, &descriptors)
    }
}

/// What a client can use, found out before a server is asked.
#[derive(Debug)]
pub struct Chance {
    libraries: Libraries,
    settings: Settings,
    /// Whether rdma_cm is to join the queue pairs.
    by_manager: bool,
    /// Whether the packets go over Ethernet, where many can read them.
    pub is_ethernet: bool,
    local: Option<IpAddr>,
}

/// Whether this process could use verbs, and how. `local` is the address of its end of the connection to the server, if there
/// is one already.
pub fn chance(local: Option<IpAddr>) -> Result<Chance, JoinError> {
    chance_with(Settings::from_environment()?, local)
}

/// As [`chance`], with settings of one's own.
pub fn chance_with(settings: Settings, local: Option<IpAddr>) -> Result<Chance, JoinError> {
    let libraries = Libraries::load()?;
    let port = local_port(libraries, &settings, local)?;
    let is_iwarp = port.device.transport() == Transport::Iwarp;
    let by_manager = is_iwarp || settings.method == Method::Manager;
    let is_ethernet = port.port.link_layer != causeway_verbs::LinkLayer::InfiniBand;
    Ok(Chance { libraries, settings, by_manager, is_ethernet, local })
}

impl Chance {
    /// What the server is asked for.
    pub fn wish(&self) -> (bool, u32, u32) {
        (self.by_manager, self.settings.queue_pairs, self.settings.depth)
    }

    /// Joins the session's worker over `setup`, which has been asked: the client's part.
    pub fn join(self, mut setup: Connection, worker: VerbsEnd) -> Result<Joined, JoinError> {
        let deadline = Instant::now() + PATIENCE;
        check(&worker)?;
        let prepared = if worker.manager_port > 0 {
            self.connect_by_manager(&setup, &worker, deadline)?
        } else {
            let local = local_port(self.libraries, &self.settings, self.local)?;
            let limits = local.device.limits()?;
            let counts = Counts::agree(&self.settings, &limits, worker.queue_pairs, worker.depth);
            let mut prepared = Prepared::new(local, &self.settings, counts)?;
            prepared.make_queue_pairs()?;
            prepared
        };
        if prepared.counts.queue_pairs != worker.queue_pairs {
            return Err(JoinError::Protocol("it wants more queue pairs than were asked for"));
        }
        let packet = first_packet();
        let end = describe(&prepared, packet, 0);
        if worker.manager_port == 0 {
            bring_up(&prepared, packet, &worker)?;
        }
        setup.send_handshake(|out| end.encode(out)).map_err(ended)?;
        let state = assemble(prepared, &worker)?;
        expect_ready(&mut setup, deadline)?;
        let path_deadline = deadline.min(Instant::now() + PATIENCE_WITH_PATH);
        state.greet().and_then(|()| state.wait_for_greetings(path_deadline)).map_err(path_failed)?;
        setup.send_handshake(|out| Answer::VerbsReady.encode(out)).map_err(ended)?;
        Ok(Joined { state, setup })
    }

    fn connect_by_manager(
        &self,
        setup: &Connection,
        worker: &VerbsEnd,
        deadline: Instant,
    ) -> Result<Prepared, JoinError> {
        let server = setup.socket().peer_addr().map_err(ended)?.ip();
        let server = SocketAddr::new(server.to_canonical(), worker.manager_port);
        let mut prepared: Option<Prepared> = None;
        for number in 0..worker.queue_pairs {
            with_other_ports(|| {
                let route = Route::resolve(self.libraries, None, server, deadline)?;
                let so_far = match &mut prepared {
                    Some(prepared) => prepared,
                    None => {
                        let local = port_of(route.device().clone(), &self.settings)?;
                        let limits = local.device.limits()?;
                        let counts = Counts::agree(&self.settings, &limits, worker.queue_pairs, worker.depth);
                        prepared.insert(Prepared::new(local, &self.settings, counts)?)
                    }
                };
                let queue_pair = route.queue_pair(&so_far.domain, &so_far.completions, so_far.capacity())?;
                so_far.add(queue_pair)?;
                let settings = path_settings(so_far, worker);
                match route.connect(&introduction(number, &worker.gid), &settings, deadline) {
                    // The queue pair keeps the connection.
                    Ok(_) => Ok(()),
                    Err(error) => {
                        so_far.give_up_last();
                        Err(error.into())
                    }
                }
            })?;
        }
        prepared.ok_or(JoinError::Protocol("it wants no queue pairs"))
    }
}

/// Lets a client join over verbs on the connection that it has opened for that: the worker's part. What fails is told to the
/// client, which then stays on TCP.
pub fn offer(setup: Connection, hello: &VerbsHello) -> Result<Joined, JoinError> {
    offer_with(setup, hello, || Ok(Settings::from_environment()?))
}

/// As [`offer`], with settings of one's own.
pub fn offer_with(
    mut setup: Connection,
    hello: &VerbsHello,
    settings: impl FnOnce() -> Result<Settings, JoinError>,
) -> Result<Joined, JoinError> {
    let offered = settings().and_then(|settings| offer_on(&mut setup, hello, &settings));
    match offered {
        Ok(state) => Ok(Joined { state, setup }),
        Err(error) => {
            let refusal = Answer::Refused { text: error.to_string() };
            // The client may have given up already.
            let _ = setup.send_handshake(|out| refusal.encode(out));
            crate::tcp::channel::end_after_last_words(setup.socket());
            Err(error)
        }
    }
}

fn offer_on(
    setup: &mut Connection,
    hello: &VerbsHello,
    settings: &Settings,
) -> Result<Arc<State>, JoinError> {
    let deadline = Instant::now() + PATIENCE;
    let libraries = Libraries::load()?;
    let local = setup.socket().local_addr().map_err(ended)?.ip().to_canonical();
    let listen = || with_other_ports(|| Ok(Listener::bind(libraries, local)?));
    let mut listener = hello.by_manager.then(listen).transpose()?;
    let port = match &listener {
        Some(listener) => port_of(listener.device().clone(), settings)?,
        None => local_port(libraries, settings, Some(local))?,
    };
    if listener.is_none() && port.device.transport() == Transport::Iwarp {
        return Err(JoinError::NoPort(format!(
            "{} is iWARP, which the client did not ask for",
            port.device.name()
        )));
    }
    let limits = port.device.limits()?;
    let counts = Counts::agree(settings, &limits, hello.queue_pairs, hello.depth);
    let mut prepared = Prepared::new(port, settings, counts)?;
    let packet = first_packet();
    let manager_port = listener.as_ref().map_or(0, Listener::port);
    if listener.is_none() {
        prepared.make_queue_pairs()?;
    }
    let mut own = describe(&prepared, packet, manager_port);
    if listener.is_some() {
        // Nobody but the client knows this number.
        own.gid = random_bytes();
    }
    let answer = Answer::Verbs(own.clone());
    setup.send_handshake(|out| answer.encode(out)).map_err(ended)?;
    // The peer's end comes only behind its connections, so what it says of reads is not known here yet.
    if let Some(listener) = &mut listener {
        accept_by_manager(listener, &mut prepared, &own, deadline)?;
    }
    let client: VerbsEnd = receive(setup, deadline)?;
    check(&client)?;
    if client.queue_pairs != counts.queue_pairs {
        return Err(JoinError::Protocol("it has another number of queue pairs"));
    }
    if manager_port == 0 {
        bring_up(&prepared, packet, &client)?;
    }
    let state = assemble(prepared, &client)?;
    setup.send_handshake(|out| Answer::VerbsReady.encode(out)).map_err(ended)?;
    state.wait_for_greetings(deadline).and_then(|()| state.greet()).map_err(path_failed)?;
    expect_ready(setup, deadline)?;
    Ok(state)
}

/// Takes in the client's connections, one for each queue pair.
fn accept_by_manager(
    listener: &mut Listener,
    prepared: &mut Prepared,
    own: &VerbsEnd,
    deadline: Instant,
) -> Result<(), JoinError> {
    for number in 0..own.queue_pairs {
        let expected = introduction(number, &own.gid);
        let request = loop {
            let request = listener.next(deadline)?;
            if request.private_data().starts_with(&expected) {
                break request;
            }
            request.reject();
        };
        let queue_pair = request.queue_pair(&prepared.domain, &prepared.completions, prepared.capacity())?;
        prepared.add(queue_pair)?;
        let settings = path_settings(prepared, own);
        // The queue pair keeps the connection.
        drop(listener.accept(request, &[], &settings, deadline)?);
    }
    Ok(())
}

/// Tries something for which rdma_cm chooses a port, again with another one where that port is not free.
fn with_other_ports<T>(mut attempt: impl FnMut() -> Result<T, JoinError>) -> Result<T, JoinError> {
    let mut left = MOST_PORTS;
    loop {
        left -= 1;
        match attempt() {
            Err(JoinError::Manager(error)) if left > 0 && error.is_port_taken() => {}
            done => return done,
        }
    }
}

/// What a request to rdma_cm carries: which queue pair it is, and what only the worker has told.
fn introduction(number: u32, secret: &[u8; 16]) -> [u8; 17] {
    let mut bytes = [number as u8; 17];
    bytes[1..].copy_from_slice(secret);
    bytes
}

fn first_packet() -> u32 {
    u32::from_le_bytes(random_bytes()) & 0x00ff_ffff
}

/// What an end tells the other one.
fn describe(prepared: &Prepared, packet: u32, manager_port: u16) -> VerbsEnd {
    let Prepared { queue_pairs, memory: Memory { arena, .. }, local, limits, counts, settings, .. } =
        prepared;
    let own = arena.region().remote(0);
    VerbsEnd {
        numbers: queue_pairs.iter().map(|queue_pair| queue_pair.number()).collect(),
        queue_pairs: counts.queue_pairs,
        manager_port,
        packet,
        lid: local.port.lid,
        gid: local.gid.gid.0,
        mtu: settings.mtu.map_or(local.port.mtu, |mtu| mtu.min(local.port.mtu)).bytes(),
        depth: counts.depth,
        reads: limits.answered_reads.min(MOST_READS) as u8,
        arena: own.address,
        arena_key: own.key,
        arena_slots: (arena.len() / SLOT) as u32,
    }
}

/// Whether what the peer says can be.
fn check(end: &VerbsEnd) -> Result<(), JoinError> {
    let is_sensible = (1..=MOST_QUEUE_PAIRS).contains(&end.queue_pairs)
        && (1..=MOST_DEPTH).contains(&end.depth)
        && PathMtu::from_bytes(end.mtu).is_some()
        && (1..=1 << 20).contains(&end.arena_slots)
        && end.arena.checked_add(u64::from(end.arena_slots) * SLOT as u64).is_some();
    if is_sensible { Ok(()) } else { Err(JoinError::Protocol("its numbers make no sense")) }
}

/// The settings of a path to this peer.
fn path_settings(prepared: &Prepared, peer: &VerbsEnd) -> PathSettings {
    let Prepared { local, limits, settings, .. } = prepared;
    let own = settings.mtu.map_or(local.port.mtu, |mtu| mtu.min(local.port.mtu));
    let mtu = PathMtu::from_bytes(peer.mtu).map_or(own, |mtu| mtu.min(own));
    PathSettings {
        reads: limits.reads.min(MOST_READS).min(peer.reads.into()) as u8,
        answered_reads: limits.answered_reads.min(MOST_READS) as u8,
        ..PathSettings::new(mtu)
    }
}

/// Joins the queue pairs with those that the peer has named.
fn bring_up(prepared: &Prepared, packet: u32, peer: &VerbsEnd) -> Result<(), JoinError> {
    if peer.numbers.len() != prepared.queue_pairs.len() {
        return Err(JoinError::Protocol("it names another number of queue pairs"));
    }
    let settings = path_settings(prepared, peer);
    for (queue_pair, number) in prepared.queue_pairs.iter().zip(&peer.numbers) {
        let end = RemoteEnd { queue_pair: *number, packet: peer.packet, lid: peer.lid, gid: Gid(peer.gid) };
        queue_pair.receive_from(&prepared.local.port, prepared.local.gid.index, &end, &settings)?;
        queue_pair.send_from(packet, &settings)?;
    }
    Ok(())
}

/// Everything of a link over queue pairs that are joined.
fn assemble(prepared: Prepared, peer: &VerbsEnd) -> Result<Arc<State>, JoinError> {
    let Prepared { queue_pairs, completions, receives, memory, domain, counts, settings, .. } = prepared;
    let Memory { arena, staging, mut messages, shortage } = memory;
    let bytes = send_layout(counts.queue_pairs as usize, peer.depth as usize);
    if bytes > messages.len() {
        messages = Buffer::new(&domain, bytes, Access::LOCAL_WRITE)?;
    }
    let path = |(index, pair)| {
        Path::new(pair, index, counts.depth, peer.depth, settings.signal_interval, settings.inline)
    };
    let materials = Materials {
        paths: queue_pairs.into_iter().enumerate().map(path).collect(),
        completions,
        receives,
        messages,
        arena,
        staging,
        peer_arena: RemoteMemory { address: peer.arena, key: peer.arena_key },
        peer_slots: peer.arena_slots,
        domain,
        prefers: settings.prefers,
        shortage,
        depth: counts.depth,
        poll: settings.poll,
    };
    State::new(materials).map_err(ended)
}

fn receive<T: for<'a> Decode<'a>>(setup: &mut Connection, deadline: Instant) -> Result<T, JoinError> {
    let body = setup.receive_handshake(MAX_OPENING, deadline);
    let body = body.map_err(|error| JoinError::Connection(error.to_string()))?;
    let mut input = Decoder::new(&body);
    let value = input.value().and_then(|value| input.finish().map(|()| value));
    value.map_err(|_| JoinError::Protocol("a message for setting up verbs makes no sense"))
}

fn expect_ready(setup: &mut Connection, deadline: Instant) -> Result<(), JoinError> {
    match receive::<Answer>(setup, deadline)? {
        Answer::VerbsReady => Ok(()),
        Answer::Refused { text } => Err(JoinError::Refused(text)),
        _ => Err(JoinError::Protocol("it says something else than that it is ready")),
    }
}

fn ended(error: io::Error) -> JoinError {
    JoinError::Connection(error.to_string())
}

fn path_failed(error: LinkError) -> JoinError {
    JoinError::Path(match error {
        LinkError::PeerSilent => "nothing was heard on them in time".to_owned(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_verbs::ManagerError;

    fn refused(code: i32) -> JoinError {
        ManagerError::Step { step: "connect to the peer", source: io::Error::from_raw_os_error(code) }.into()
    }

    fn heard(status: i32) -> JoinError {
        ManagerError::Event { step: "connect to the peer", event: "RDMA_CM_EVENT_CONNECT_ERROR", status }
            .into()
    }

    /// Attempts of which each ends with the next of these errors, and succeeds when there are none left: what came of it, and how
    /// many there were.
    fn attempts(errors: Vec<JoinError>) -> (Result<(), String>, usize) {
        let mut errors = errors.into_iter();
        let mut count = 0;
        let outcome = with_other_ports(|| {
            count += 1;
            errors.next().map_or(Ok(()), Err)
        });
        (outcome.map_err(|error| error.to_string()), count)
    }

    #[test]
    fn a_port_that_tcp_has_is_left_to_it_and_another_one_tried() {
        assert_eq!(attempts(vec![]), (Ok(()), 1));
        assert_eq!(attempts(vec![refused(libc::EADDRINUSE), heard(-libc::EADDRINUSE)]), (Ok(()), 3));
    }

    #[test]
    fn ports_are_not_tried_for_ever() {
        let taken = (0..100).map(|_| refused(libc::EADDRINUSE)).collect();
        let (outcome, count) = attempts(taken);
        assert_eq!(count, MOST_PORTS as usize);
        assert!(outcome.unwrap_err().contains("a port that TCP has in use"));
    }

    #[test]
    fn what_another_port_does_not_mend_is_an_error_at_once() {
        let silent = JoinError::from(ManagerError::TimedOut { step: "connect to the peer" });
        for error in [refused(libc::EHOSTUNREACH), heard(-libc::ETIMEDOUT), silent, JoinError::NoDevice] {
            let (outcome, count) = attempts(vec![error]);
            assert!(outcome.is_err() && count == 1, "{outcome:?}");
        }
    }
}
