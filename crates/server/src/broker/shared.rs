//! What do the broker's threads share?

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::access::ServerKey;
use super::board::Board;
use super::config::BrokerConfig;
use super::local::LocalSockets;
use super::monitor::Monitor;
use super::prestarted::PrestartedWorkers;
use super::sessions::Sessions;
use super::spawn::Spawner;
use crate::admission::Admission;

/// Everything that the broker's threads share.
pub struct Shared {
    /// What was set.
    pub config: BrokerConfig,
    /// The key, as it is now.
    pub key: ServerKey,
    /// Who may come in.
    pub admission: Admission,
    /// The sessions that there are.
    pub sessions: Sessions,
    /// The sockets of this host.
    pub local: LocalSockets,
    /// What sessions have left for each other.
    pub board: Board,
    /// Starts processes.
    pub spawner: Arc<Spawner>,
    /// Workers that are ready.
    pub spares: Arc<PrestartedWorkers>,
    /// The way to the process that answers monitoring sessions.
    pub monitor: Monitor,
    /// Whether workers end because the broker does.
    pub stopping: AtomicBool,
}
