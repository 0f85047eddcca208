//! What operations work with.

use super::condition::Conditions;
use super::textures::Textures;
use causeway_gpu::{KernelTimer, OutputSink};
use causeway_ptx::memory::AddressSpace;
use parking_lot::RwLock;
use std::sync::Arc;

/// What operations work with.
pub(super) struct Machine {
    pub(super) space: Arc<AddressSpace>,
    /// The threads that kernels run on.
    pub(super) pool: causeway_ptx::Pool,
    /// Takes what kernels print; nothing until the worker has set it.
    pub(super) output: RwLock<Option<OutputSink>>,
    /// Hears how long kernels have run; nothing until the worker has set it.
    pub(super) kernel_timer: RwLock<Option<KernelTimer>>,
    /// Values that kernels set.
    pub(super) conditions: Conditions,
    /// Textures and surfaces that kernels find.
    pub(super) textures: Textures,
}
