//! Connection of the queue pairs: exchanged endpoint descriptions, messages on TCP, bring-up, test
//! messages, and the link made of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_access::target::random_bytes;
use causeway_connection::channel::Connection;
use causeway_ibverbs::{Access, Buffer, Gid, PathMtu, RemoteEnd, RemoteMemory, Settings as PathSettings};
use causeway_transport::slots::SLOT;
use causeway_transport::{LinkError, Parts};
use causeway_wire::codec::{Decode, Decoder};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{Response, VerbsEnd};

use crate::endpoint::{Memory, Prepared};
use crate::error::UpgradeError;
use crate::path::{Path, send_layout};
use crate::settings::{MAX_DEPTH, MAX_QUEUE_PAIRS};
use crate::state::{LinkResources, State};
use crate::transport::parts;

/// Reads that are under way at a time, at most: what cards of the last ten years allow.
const MAX_READS: u32 = 16;

pub(super) fn first_packet() -> u32 {
    u32::from_le_bytes(random_bytes()) & 0x00ff_ffff
}

/// The path MTU that this end would take.
fn own_mtu(prepared: &Prepared) -> PathMtu {
    let of_port = prepared.local.port.mtu;
    prepared.settings.mtu.map_or(of_port, |mtu| mtu.min(of_port))
}

/// What an end tells the other one.
pub(super) fn describe(prepared: &Prepared, packet: u32, manager_port: u16) -> VerbsEnd {
    let Prepared { queue_pairs, memory: Memory { arena, .. }, local, limits, counts, .. } = prepared;
    let own = arena.region().remote(0);
    VerbsEnd {
        numbers: queue_pairs.iter().map(|queue_pair| queue_pair.number()).collect(),
        queue_pairs: counts.queue_pairs,
        manager_port,
        packet,
        lid: local.port.lid,
        gid: local.gid.gid.0,
        mtu: own_mtu(prepared).bytes(),
        depth: counts.depth,
        reads: limits.answered_reads.min(MAX_READS) as u8,
        arena: own.address,
        arena_key: own.key,
        arena_slots: (arena.len() / SLOT) as u32,
    }
}

/// Whether what the peer says can be.
pub(super) fn check(end: &VerbsEnd) -> Result<(), UpgradeError> {
    let is_sensible = (1..=MAX_QUEUE_PAIRS).contains(&end.queue_pairs)
        && (1..=MAX_DEPTH).contains(&end.depth)
        && PathMtu::from_bytes(end.mtu).is_some()
        && (1..=1 << 20).contains(&end.arena_slots)
        && end.arena.checked_add(u64::from(end.arena_slots) * SLOT as u64).is_some();
    if is_sensible { Ok(()) } else { Err(UpgradeError::Protocol("its numbers make no sense")) }
}

/// The settings of a path to this peer.
pub(super) fn path_settings(prepared: &Prepared, peer: &VerbsEnd) -> PathSettings {
    let (limits, own) = (&prepared.limits, own_mtu(prepared));
    let mtu = PathMtu::from_bytes(peer.mtu).map_or(own, |mtu| mtu.min(own));
    PathSettings {
        reads: limits.reads.min(MAX_READS).min(peer.reads.into()) as u8,
        answered_reads: limits.answered_reads.min(MAX_READS) as u8,
        ..PathSettings::new(mtu)
    }
}

/// Joins the queue pairs with those that the peer has named.
pub(super) fn bring_up(prepared: &Prepared, packet: u32, peer: &VerbsEnd) -> Result<(), UpgradeError> {
    if peer.numbers.len() != prepared.queue_pairs.len() {
        return Err(UpgradeError::Protocol("it names another number of queue pairs"));
    }
    let settings = path_settings(prepared, peer);
    for (queue_pair, number) in prepared.queue_pairs.iter().zip(&peer.numbers) {
        let end = RemoteEnd { queue_pair: *number, packet: peer.packet, lid: peer.lid, gid: Gid(peer.gid) };
        queue_pair.receive_from(&prepared.local.port, prepared.local.gid.index, &end, &settings)?;
        queue_pair.send_from(packet, &settings)?;
    }
    Ok(())
}

impl State {
    /// Sends the first message on each path.
    pub fn send_hellos(&self) -> Result<(), LinkError> {
        Ok(self.paths.iter().try_for_each(|path| path.post_hello(&self.messages))?)
    }

    /// Waits until the first message of the peer has come on each path.
    pub fn wait_for_hellos(&self, deadline: Instant) -> Result<(), LinkError> {
        let all = self.paths.len() as u32;
        self.wait_for(|| match self.hellos.load(Ordering::Relaxed) {
            received if received >= all => Ok(Some(())),
            _ if Instant::now() < deadline => Ok(None),
            _ => Err(LinkError::PeerSilent),
        })
    }
}

/// Queue pairs that carry messages both ways, and the connection beside them.
pub struct Joined {
    pub(super) state: Arc<State>,
    pub(super) setup: Connection,
}

impl core::fmt::Debug for Joined {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Joined").field("queue_pairs", &self.state.paths.len()).finish_non_exhaustive()
    }
}

impl Joined {
    /// What carries the session's link. `command` is the connection over which the session was asked for; it
    /// ends with the session.
    pub fn parts(self, command: &Connection) -> io::Result<Parts> {
        let sockets = [command.socket().try_clone()?, self.setup.socket().try_clone()?];
        self.state.ends_with(sockets);
        parts(self.state, self.setup, command)
    }
}

/// Everything of a link over queue pairs that are joined.
pub(super) fn assemble(prepared: Prepared, peer: &VerbsEnd) -> Result<Arc<State>, UpgradeError> {
    let Prepared { queue_pairs, completions, receives, memory, domain, counts, settings, .. } = prepared;
    let Memory { arena, staging, mut messages, shortage } = memory;
    let bytes = send_layout(counts.queue_pairs as usize, peer.depth as usize);
    if bytes > messages.len() {
        messages = Buffer::new(&domain, bytes, Access::LOCAL_WRITE)?;
    }
    let path = |(index, pair)| {
        Path::new(pair, index, counts.depth, peer.depth, settings.signal_interval, settings.inline)
    };
    let materials = LinkResources {
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

/// How long either end waits for the whole of it. What cannot be is said at once, and the end of a process is
/// noticed, so that this much is waited only for a machine that is busy, with the start of hundreds of
/// sessions for instance, or for packets of rdma_cm that nobody answers.
pub(super) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) fn receive<T: for<'a> Decode<'a>>(
    setup: &mut Connection,
    deadline: Instant,
) -> Result<T, UpgradeError> {
    let body = setup.receive_handshake(MAX_OPENING, deadline);
    let body = body.map_err(|error| UpgradeError::Connection(error.to_string()))?;
    let mut input = Decoder::new(&body);
    let value = input.value().and_then(|value| input.finish().map(|()| value));
    value.map_err(|_| UpgradeError::Protocol("a message for setting up verbs makes no sense"))
}

pub(super) fn expect_ready(setup: &mut Connection, deadline: Instant) -> Result<(), UpgradeError> {
    match receive::<Response>(setup, deadline)? {
        Response::VerbsReady => Ok(()),
        Response::Refused { text } => Err(UpgradeError::Refused(text)),
        _ => Err(UpgradeError::Protocol("it says something else than that it is ready")),
    }
}

pub(super) fn ended(error: io::Error) -> UpgradeError {
    UpgradeError::Connection(error.to_string())
}

pub(super) fn path_failed(error: LinkError) -> UpgradeError {
    UpgradeError::Path(match error {
        LinkError::PeerSilent => "nothing was heard on them in time".to_owned(),
        other => other.to_string(),
    })
}
