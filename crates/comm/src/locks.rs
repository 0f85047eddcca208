//! The locks of this crate, in the order in which a thread may take them: [`causeway_sync::ranked`] checks it in debug
//! builds.

pub use causeway_sync::ranked::{
    FutexMutex as Mutex, FutexMutexGuard as MutexGuard, FutexRwLock as RwLock, Monitor,
};

/// The ranks: one type each.
pub mod rank {
    causeway_sync::ranks! {
        tier 0;
        /// Held while all ranks of a team make a window, so that they make the same ones in one order.
        WindowCreation,
        /// The windows of a team.
        Windows,
        /// What a team's initiators cost.
        Costs,
        /// The thread that rings doorbells for kernels.
        DoorbellThread,
        /// The calls of the MPI that wait, and the peers that know of it.
        WaitingCalls,
        /// What this rank has of peers that have connected to it, by peer.
        Incoming,
        /// Copies whose program does not wait for them.
        CopiesInFlight,
        /// What this rank has of one peer that has connected to it: held while a message is fetched.
        Fetcher,
        /// Callbacks for peers that disconnect: held while they are called.
        DisconnectListeners,
        /// What this rank offers to others.
        Offers,
        /// Tables of elements on GPUs: their memory goes back to its store when they are dropped.
        ElementTables,
        /// A lock under which no other one is taken.
        Leaf,
    }
}
