//! Options of a team, errors, and the memory of one of its ranks.

use core::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::device::choice::{self, Curves, InitiatorPolicy};
use crate::device::correction::SCRATCH_BYTES;
use crate::device::gpu::{Block, Gpu, GpuError};
use crate::device::layout::{
    HostControl, MAX_QUEUES, MAX_RANKS, MAX_WINDOWS, NetworkChoice, SCOPES, TeamState, WindowState,
};
use crate::device::peers::PeerError;
use crate::device::queue;
use crate::device::windows::Windows;

/// Where the states of windows lie behind the team's, and how far apart.
const WINDOWS_AT: u64 = 24576;
const WINDOW_STRIDE: u64 = 1344;

const _: () =
    assert!(size_of::<TeamState>() as u64 <= WINDOWS_AT && size_of::<WindowState>() as u64 <= WINDOW_STRIDE);

/// A rank of this process.
pub struct Member {
    /// Its GPU.
    pub gpu: Arc<dyn Gpu>,
    /// The team's state and those of its windows.
    pub device: Block,
    /// Words, counters, slots.
    pub host: Block,
    /// What its proxies know of windows.
    pub windows: Arc<Windows>,
}

impl Member {
    /// A rank with so many queues of so many requests on this GPU.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(gpu: &Arc<dyn Gpu>, queues: usize, capacity: u64) -> Result<Self, GpuError> {
        let device = gpu.device_memory(WINDOWS_AT + WINDOW_STRIDE * MAX_WINDOWS as u64)?;
        let host = gpu.host_memory(HostPlan::new(queues, capacity).bytes)?;
        Ok(Self { gpu: Arc::clone(gpu), device, host, windows: Arc::default() })
    }

    /// Where a window's state lies.
    pub fn window_at(&self, id: u32) -> u64 {
        self.device.address + WINDOWS_AT + WINDOW_STRIDE * u64::from(id)
    }
}

/// Where scratch memory begins in the page of the [`HostControl`].
const SCRATCH_AT: u64 = 1024;

/// Where the [`NetworkChoice`] lies behind it.
const NETWORK_AT: u64 = 2048;

const _: () =
    assert!(size_of::<HostControl>() as u64 <= SCRATCH_AT && SCRATCH_AT + SCRATCH_BYTES <= NETWORK_AT);
const _: () = assert!(NETWORK_AT + size_of::<NetworkChoice>() as u64 <= 4096);

/// What lies where in a rank's memory of the host.
pub struct HostPlan {
    counters: u64,
    stride: u64,
    /// Of all.
    pub bytes: u64,
}

impl HostPlan {
    /// So many queues of so many requests.
    pub fn new(queues: usize, capacity: u64) -> Self {
        let (slots, counters) = queue::bytes(capacity);
        let first = (size_of::<HostControl>() as u64).next_multiple_of(4096);
        let counters = counters.next_multiple_of(4096);
        let stride = counters + slots.next_multiple_of(4096);
        Self { counters, stride, bytes: first + stride * queues as u64 }
    }

    /// Where what kernels have timed is copied to.
    pub fn scratch(start: u64) -> u64 {
        start + SCRATCH_AT
    }

    /// Where the [`NetworkChoice`] is.
    pub fn network(start: u64) -> u64 {
        start + NETWORK_AT
    }

    /// The addresses of a queue's counters and slots.
    pub fn queue(&self, start: u64, at: usize) -> (u64, u64) {
        let first = (size_of::<HostControl>() as u64).next_multiple_of(4096);
        let counters = start + first + self.stride * at as u64;
        (counters, counters + self.counters)
    }
}

/// The ranks of this process, each behind the one before.
pub struct Members {
    /// The rank of the first.
    pub first: u32,
    /// At least one.
    pub all: Vec<Member>,
}

impl Members {
    /// Their numbers.
    pub fn ranks(&self) -> core::ops::Range<u32> {
        self.first..self.first + self.all.len() as u32
    }

    /// A rank.
    ///
    /// # Errors
    /// When it is not of this process.
    pub fn get(&self, rank: u32) -> Result<&Member, TeamError> {
        let at = rank.checked_sub(self.first).ok_or(TeamError::NoSuchRank(rank))?;
        self.all.get(at as usize).ok_or(TeamError::NoSuchRank(rank))
    }
}

/// The bytes of a value that kernels read.
pub fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the layouts are plain numbers, of which every byte is written but for padding at the end of
    // `Queue`s, which `TeamState::empty` makes by value as well; reading it as bytes shows nothing of use.
    unsafe { core::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

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
    /// What they cost to ranks that a network card reaches; `None` for estimates by the card's rate.
    pub network_curves: Option<Curves>,
    /// How bytes go to ranks over a network.
    pub network: NetworkPolicy,
}

/// How bytes go to ranks over a network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkPolicy {
    /// By a network card where both ends have one.
    #[default]
    Auto,
    /// By the one of this name.
    Device(String),
    /// Over TCP, for this reason.
    Tcp(&'static str),
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
            network_curves: None,
            network: NetworkPolicy::default(),
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
    #[error("a team of {0} ranks was requested: a team has 1 to {MAX_RANKS}")]
    Ranks(usize),
    /// Queues that cannot be.
    #[error(
        "{queues} queues of {capacity} requests and {threads} threads were requested: a rank has 1 to \
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
    #[error("the team already has {MAX_WINDOWS} windows, the maximum: free one")]
    Windows,
    /// A window of a size that cannot be.
    #[error(
        "a window of {0} bytes was requested: it must have at least 1 byte and less than 64 GiB, at a \
        multiple of 16"
    )]
    WindowSize(u64),
    /// Addresses for other ranks than there are.
    #[error("memory of {found} ranks was passed for a window: this process has {ranks}")]
    Parts {
        /// How many were given.
        found: usize,
        /// How many there are.
        ranks: usize,
    },
    /// Memory of a kind that there is not.
    #[error("a window in memory {0} was requested: it must be on a device (0) or in host memory (1)")]
    Kind(u32),
    /// Memory of the program's that the thread of the links still has.
    #[error(
        "window {0} was freed, but its memory is still being copied after the team's limit: end the team \
         before you reuse the memory"
    )]
    StillCopied(u32),
    /// A window that the team does not have.
    #[error("the team has no window {0}")]
    NoSuchWindow(u32),
    /// A rank that is not this process's.
    #[error("rank {0} does not belong to this process")]
    NoSuchRank(u32),
    /// The GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The ranks of other processes.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// Memory that other processes cannot map.
    #[error(
        "windows of a team of several processes are created by the team: passing the program's own memory is \
         not supported yet"
    )]
    NotHandedOver,
    /// A thread.
    #[error("cannot start the proxy's thread: {0}")]
    Thread(std::io::Error),
}
