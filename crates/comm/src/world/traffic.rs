//! Traffic classification of peers.
//!
//! Each rank counts its own sends and receives, of peers of its host alone: between hosts one network carries all. The
//! sender's finding goes with each message, since whoever waits for a message, or has several in flight, is the one who
//! sends it: a receiver that blocks in `MPI_Recv` says nothing of how many are on their way.

use super::state::{Outgoing, World};
use crate::tracer::{Operation, Traffic};

impl World {
    /// Counts a send to a peer, or a receive from it, of memory on a GPU. Peers that have not been met on this host
    /// are not counted. What a [`fetch`](Self::fetch) brings is counted by that.
    pub fn count_operation(&self, peer: u32, operation: Operation) {
        let is_local = || {
            let outgoing = self.shared.outgoing.lock();
            matches!(outgoing.get(&peer), Some(Outgoing::Connected(connection)) if !connection.is_network())
        };
        if self.shared.tracers.has(peer) || is_local() {
            self.shared.tracers.count(peer, operation);
        }
    }

    /// What the traffic with a peer is bound by, as far as this rank has seen it.
    pub fn traffic(&self, peer: u32) -> Traffic {
        self.shared.tracers.traffic(peer)
    }
}
