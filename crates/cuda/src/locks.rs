//! The locks of this crate, in the order in which a thread may take them: [`causeway_sync::ranked`] checks it in debug
//! builds.

pub use causeway_sync::ranked::{FutexMutex as Mutex, FutexMutexGuard as MutexGuard};

/// The ranks: one type each.
pub mod rank {
    causeway_sync::ranks! {
        tier 2;
        /// What devices are to GPUs: held while their numbers are asked for.
        GpuAccess,
        /// A lock under which no other one is taken.
        Leaf,
    }
}
