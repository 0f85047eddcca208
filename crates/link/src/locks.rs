//! The locks of this crate, in the order in which a thread may take them: [`causeway_sync::ranked`] checks it in debug
//! builds.

pub use causeway_sync::ranked::{Mutex, MutexGuard};

/// The ranks: one type each.
pub mod rank {
    causeway_sync::ranks! {
        tier 1;
        /// The sender of a transport: held while a frame is written.
        Writer,
        /// Messages that wait for the next frame: held while one is encoded.
        Batch,
        /// A lock under which no other one is taken.
        Leaf,
    }
}
