//! Exchanged endpoint description, and the paths that follow from it.

use causeway_ibverbs::{Gid, PathMtu, RemoteEnd, Settings as PathSettings};
use causeway_wire::handshake::VerbsEnd;

use crate::endpoint::{Memory, Prepared};
use crate::error::UpgradeError;
use crate::settings::{MAX_DEPTH, MAX_QUEUE_PAIRS};
use causeway_access::target::random_bytes;
use causeway_transport::slots::SLOT;

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
