//! The locks of this crate, in the order in which a thread may take them: [`causeway_sync::ranked`] checks it in debug
//! builds.

pub use causeway_sync::ranked::{Mutex, RwLock};

/// The ranks: one type each.
pub mod rank {
    causeway_sync::ranks! {
        tier 1;
        /// What is waited for. Waits that have just been asked for are locked under it, and events that are released.
        Waits,
        /// A lock under which no other one is taken.
        Leaf,
    }
}
