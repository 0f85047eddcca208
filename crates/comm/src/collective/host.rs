//! Pinned staging memory of the host. Pinned memory from a store: to pin it
//! takes tens of microseconds, and more the longer it is, and copies to and from it take a half or less of
//! what others take.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::{MmapMut, MmapOptions};

use super::launch::memory_at;
use crate::cuda::{Driver, Pinned, Scope};

/// Bytes that are kept for the next call, and that one has at most.
const MAX_CACHED: usize = 64 << 20;
const MAX_BLOCK_BYTES: usize = 16 << 20;

/// Bytes that one has at least.
const MIN_BLOCK_BYTES: usize = 64 << 10;

#[derive(Debug)]
struct CachedBuffer {
    /// In front of the memory, so that it goes first. None where the driver refuses.
    _pinned: Option<Pinned>,
    memory: MmapMut,
}

static STORE: Mutex<Vec<CachedBuffer>> = Mutex::new(Vec::new());

fn store() -> MutexGuard<'static, Vec<CachedBuffer>> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of the host. What it holds is what its last user has left.
#[derive(Debug)]
pub struct HostMemory {
    cached: Option<CachedBuffer>,
}

impl HostMemory {
    /// At least so many bytes, for copies to and from the GPU where other memory lies. None where they are
    /// too many to be kept, or there is no such GPU or no memory.
    pub fn new(gpu_address: u64, bytes: usize) -> Option<Self> {
        if bytes > MAX_BLOCK_BYTES {
            return None;
        }
        let length = bytes.next_power_of_two().max(MIN_BLOCK_BYTES);
        let mut store = store();
        if let Some(at) = store.iter().position(|cached| cached.memory.len() == length) {
            return Some(Self { cached: Some(store.swap_remove(at)) });
        }
        drop(store);
        let (driver, other) = memory_at(gpu_address)?;
        let mut memory = MmapOptions::new().len(length).map_anon().ok()?;
        // For GPUs elsewhere every copy passes through Causeway's own staging.
        let pinned = if Driver::is_remote() {
            None
        } else {
            let scope = Scope::of(driver, &other).ok()?;
            // SAFETY: the memory goes after what is registered.
            unsafe { Pinned::new(&scope, memory.as_mut_ptr() as u64, length) }.ok()
        };
        Some(Self { cached: Some(CachedBuffer { _pinned: pinned, memory }) })
    }

    /// Where it begins.
    pub fn address(&mut self) -> u64 {
        self.cached.as_mut().map_or(0, |cached| cached.memory.as_mut_ptr() as u64)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let Some(cached) = self.cached.take() else { return };
        let mut store = store();
        store.push(cached);
        // The oldest ones go first.
        while store.iter().map(|cached| cached.memory.len()).sum::<usize>() > MAX_CACHED {
            store.remove(0);
        }
    }
}
