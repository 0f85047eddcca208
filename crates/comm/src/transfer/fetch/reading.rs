//! RDMA state of a receiver.

use causeway_ibverbs::RemoteMemory;

use crate::channels::rdma::regions::Regions;
use crate::channels::rdma::staging::RdmaStaging;
use crate::channels::staging::Ring;
use crate::verbs::Path;

/// A path to the sender's card, and what bytes pass through.
#[derive(Debug)]
pub(super) struct Reading {
    /// In front of the memory, so that nothing comes any more when it goes.
    pub(super) path: Path,
    pub(super) regions: Regions,
    pub(super) slots: RdmaStaging,
    /// The sender's slots.
    pub(super) peer: RemoteMemory,
    pub(super) ring: Ring,
}
