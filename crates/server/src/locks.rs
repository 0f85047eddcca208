//! The locks of this crate, in the order in which a thread may take them: [`causeway_sync::ranked`] checks it in debug
//! builds.

pub use causeway_sync::ranked::{Monitor, Mutex, MutexGuard};

/// The ranks: one type each.
pub mod rank {
    causeway_sync::ranks! {
        tier 0;
        /// How the devices are: held while the monitor is asked.
        DeviceStatus,
        /// The broker that takes this one's place: held while a session ends.
        ChildBroker,
        /// The sessions of a broker.
        Sessions,
        /// A worker that was started before a client came: held while its messages are taken in.
        PrestartedWorker,
        /// The workers that the monitor knows: held while a message of the broker is taken in.
        MonitoredWorkers,
        /// What a worker reads from others, by link.
        PeerReaders,
        /// Memory of other workers that is mapped here.
        IpcImports,
        /// Bulk data that has not been used: held while a checkpoint is written of it.
        IncomingTransfers,
        /// Device memory that network cards reach: held while it is registered with one.
        GpuDirectBlocks,
        /// A lock under which no other one is taken.
        Leaf,
    }
}
