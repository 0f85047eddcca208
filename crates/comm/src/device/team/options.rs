//! Options of a team, and errors.

use std::time::Duration;

use thiserror::Error;

use crate::device::choice::{self, Curves, InitiatorPolicy};
use crate::device::gpu::GpuError;
use crate::device::layout::{MAX_QUEUES, MAX_RANKS, MAX_WINDOWS, SCOPES};
use crate::device::peers::PeerError;

/// How a team is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Queues of each rank, which its blocks share.
    pub queues: usize,
    /// Requests that a queue holds, a power of two.
    pub capacity: u64,
    /// Threads of the host for each rank's queues.
    pub threads: usize,
    /// How long a wait of a kernel takes at most.
    pub limit: Duration,
    /// Which initiators are allowed.
    pub policy: InitiatorPolicy,
    /// What they cost.
    pub curves: [Curves; SCOPES],
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queues: 1,
            capacity: 1024,
            threads: 1,
            limit: Duration::from_secs(5),
            policy: InitiatorPolicy::Auto,
            curves: choice::default_curves(),
        }
    }
}

/// Where a window lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On the ranks' GPUs.
    Device,
    /// In the host's memory, which kernels reach over the bus.
    Host,
}

/// Why there is no such team or window.
#[derive(Debug, Error)]
pub enum TeamError {
    /// Too few ranks or too many.
    #[error("a team of {0} ranks was asked for: it has 1 to {MAX_RANKS}")]
    Ranks(usize),
    /// Queues that cannot be.
    #[error(
        "{queues} queues of {capacity} requests and {threads} threads were asked for: a rank has 1 to \
         {MAX_QUEUES} queues of a power of two of requests from 2 to 65,536, and a thread for each at most"
    )]
    Queues {
        /// How many.
        queues: usize,
        /// Of so many requests.
        capacity: u64,
        /// And threads.
        threads: usize,
    },
    /// Too many windows.
    #[error("the team has {MAX_WINDOWS} windows, and no more: free one")]
    Windows,
    /// A window of a size that cannot be.
    #[error("a window of {0} bytes was asked for: it has 1 byte and less than 64 GiB, at a multiple of 16")]
    WindowSize(u64),
    /// Addresses for other ranks than there are.
    #[error("memory of {found} ranks was given for a window: this process has {ranks}")]
    Parts {
        /// How many were given.
        found: usize,
        /// How many there are.
        ranks: usize,
    },
    /// Memory of a kind that there is not.
    #[error("a window in memory {0} was asked for: it lies on a device (0) or in the host (1)")]
    Kind(u32),
    /// Memory of the program's that the thread of the links still has.
    #[error(
        "window {0} was freed, and its memory is still copied after the team's limit: end the team before the \
         memory is used for something else"
    )]
    StillCopied(u32),
    /// A window that the team does not have.
    #[error("the team has no window {0}")]
    NoSuchWindow(u32),
    /// A rank that is not this process's.
    #[error("rank {0} is not of this process")]
    NoSuchRank(u32),
    /// The GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The ranks of other processes.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// Memory that other processes cannot map.
    #[error(
        "windows of a team of several processes are made by the team: memory of the program's own cannot be \
         handed over yet"
    )]
    NotHandedOver,
    /// A thread.
    #[error("the proxy's thread could not be started: {0}")]
    Thread(std::io::Error),
}
