//! RDMA state of a receiver.

use causeway_ibverbs::RemoteMemory;

use super::super::rdma_staging::RdmaStaging;
use super::super::regions::Regions;
use super::super::slots::Ring;
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
