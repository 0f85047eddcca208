//! Memory of one rank of a team.

use core::mem::size_of;
use std::sync::Arc;

use super::options::TeamError;
use crate::device::gpu::{Block, Gpu, GpuError};
use crate::device::layout::{HostControl, MAX_WINDOWS};
use crate::device::queue;
use crate::device::windows::Windows;

/// Where the states of windows lie behind the team's, and how far apart.
const WINDOWS_AT: u64 = 4096;
const WINDOW_STRIDE: u64 = 576;

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
