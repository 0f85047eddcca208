//! Resources of an RDMA endpoint.

use std::time::Duration;

use causeway_ibverbs::{
    Capacity, CompletionQueue, Device, Gid, Limits, PathMtu, ProtectionDomain, QueuePair, RemoteEnd,
    RemoteMemory, Settings,
};

use super::endpoint::{EndpointAddress, Slots};
use super::error::RdmaError;
use super::nic::RdmaDevice;
use crate::job;

/// Reads under way on a queue pair, at most: what cards of the last ten years allow.
pub(crate) const MAX_READS: usize = 16;

/// How long rdma_cm may take to join two queue pairs.
pub(super) const QP_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a queue pair has room for: the reads that are under way. Nothing is sent.
pub(super) const CAPACITY: Capacity = Capacity { sends: MAX_READS as u32, receives: 1, inline: 0 };

/// Slots of an end that has none.
pub(super) const NO_SLOTS: Slots = Slots { memory: RemoteMemory { address: 0, key: 0 }, count: 0, bytes: 0 };

/// Where a queue pair's completions and memory are.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) domain: ProtectionDomain,
    pub(super) completions: CompletionQueue,
    pub(super) limits: Limits,
}

impl Parts {
    pub(super) fn new(device: &Device) -> Result<Self, RdmaError> {
        Ok(Self {
            domain: ProtectionDomain::new(device)?,
            // Of requests that are flushed, too.
            completions: CompletionQueue::new(device, 2 * MAX_READS as u32)?,
            limits: device.limits()?,
        })
    }

    /// A queue pair that is bound to the card's port, and what the peer is told of it.
    pub(super) fn queue_pair(&self, nic: &RdmaDevice) -> Result<(QueuePair, EndpointAddress), RdmaError> {
        let pair = QueuePair::new(&self.domain, &self.completions, CAPACITY)?;
        pair.initialise(nic.port.number)?;
        let remote = RemoteEnd {
            queue_pair: pair.number(),
            packet: u32::from_le_bytes(job::random()?) & 0x00ff_ffff,
            lid: nic.port.lid,
            gid: nic.gid.gid,
        };
        Ok((pair, EndpointAddress { remote, ..self.end(nic.port.mtu) }))
    }

    /// What is told of an end that rdma_cm joins, but for the port.
    pub(super) fn end(&self, mtu: PathMtu) -> EndpointAddress {
        EndpointAddress {
            remote: RemoteEnd { queue_pair: 0, packet: 0, lid: 0, gid: Gid([0; 16]) },
            mtu,
            reads: answered(&self.limits),
            by_manager: false,
            manager_port: 0,
            secret: [0; 8],
            slots: NO_SLOTS,
        }
    }

    /// Joins a queue pair with the peer's.
    pub(super) fn join(
        &self,
        nic: &RdmaDevice,
        pair: &QueuePair,
        own: &EndpointAddress,
        peer: &EndpointAddress,
    ) -> Result<(), RdmaError> {
        let settings = self.settings(own.mtu.min(peer.mtu), peer.reads);
        pair.receive_from(&nic.port, nic.gid.index, &peer.remote, &settings)?;
        Ok(pair.send_from(own.remote.packet, &settings)?)
    }

    /// How the path behaves to a peer that answers so many reads at a time.
    pub(super) fn settings(&self, mtu: PathMtu, peer_reads: u8) -> Settings {
        // At most MAX_READS.
        let reads = self.limits.reads.clamp(1, MAX_READS as u32) as u8;
        Settings {
            reads: reads.min(peer_reads),
            answered_reads: answered(&self.limits),
            ..Settings::new(mtu)
        }
    }
}

/// Reads that a device answers at a time on a queue pair.
fn answered(limits: &Limits) -> u8 {
    // At most MAX_READS.
    limits.answered_reads.clamp(1, MAX_READS as u32) as u8
}
