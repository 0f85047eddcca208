//! Memory of this process that kernels reach.

use core::sync::atomic::{AtomicBool, Ordering};
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// Memory of this process that kernels reach, by its address on the device.
#[derive(Default)]
pub(crate) struct HostRanges {
    ranges: RwLock<BTreeMap<u64, Range>>,
    /// Whether there ever was any, so that sessions without pay one load.
    is_used: AtomicBool,
}

#[derive(Clone, Copy)]
struct Range {
    bytes: usize,
    memory: usize,
}

impl HostRanges {
    /// Takes in `bytes` at `memory`, which kernels reach at `address`, until they are
    /// [removed](Self::remove).
    pub(crate) fn add(&self, address: u64, bytes: usize, memory: *mut u8) {
        self.ranges.write().insert(address, Range { bytes, memory: memory as usize });
        self.is_used.store(true, Ordering::Release);
    }

    /// The memory at an address is about to go.
    pub(crate) fn remove(&self, address: u64) {
        self.ranges.write().remove(&address);
    }

    /// Where `bytes` at an address of the device lie in this process, if all of them do.
    pub(crate) fn find(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let ranges = self.ranges.read();
        let (start, range) = ranges.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        (offset < range.bytes && bytes <= range.bytes - offset).then(|| (range.memory + offset) as *mut u8)
    }
}
