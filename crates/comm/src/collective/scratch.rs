//! Scratch memory of calls, on a GPU and pinned on the host, from stores.

use std::sync::{Mutex, MutexGuard, PoisonError};

use memmap2::{MmapMut, MmapOptions};

use super::launch::memory_at;
use crate::cuda::{Bounce, CudaError, Driver, Pinned, Scope};

/// Bytes that are kept for the next call.
const MAX_CACHED: usize = 256 << 20;

#[derive(Debug)]
struct CachedBuffer {
    device: i32,
    memory: Bounce,
}

static STORE: Mutex<Vec<CachedBuffer>> = Mutex::new(Vec::new());

fn store() -> MutexGuard<'static, Vec<CachedBuffer>> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory on a GPU that peers can import.
///
/// It comes from a store, since making it takes tens of microseconds, and peers keep it open.
#[derive(Debug)]
pub struct Temporary {
    cached: Option<CachedBuffer>,
}

impl Temporary {
    /// At least so many bytes on a device. Needs a scope of it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(driver: &'static Driver, device: i32, bytes: u64) -> Result<Self, CudaError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        let mut store = store();
        let fits = |cached: &CachedBuffer| {
            cached.device == device
                && cached.memory.bytes >= bytes
                && cached.memory.bytes / 4 <= bytes.max(1 << 20)
        };
        if let Some(at) = store.iter().position(fits) {
            return Ok(Self { cached: Some(store.swap_remove(at)) });
        }
        drop(store);
        let memory = Bounce::new(driver, device, bytes)?;
        Ok(Self { cached: Some(CachedBuffer { device, memory }) })
    }

    /// The same where other memory is. None where it cannot be had.
    pub fn for_address(address: u64, bytes: u64) -> Option<Self> {
        let (driver, memory) = memory_at(address)?;
        let _scope = Scope::of(driver, &memory).ok()?;
        Self::new(driver, memory.device, bytes).ok()
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.cached.as_ref().map_or(0, |cached| cached.memory.mapping.address)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let Some(cached) = self.cached.take() else { return };
        let mut store = store();
        store.push(cached);
        // The oldest ones go first.
        while store.iter().map(|cached| cached.memory.bytes).sum::<usize>() > MAX_CACHED {
            store.remove(0);
        }
    }
}

/// Bytes that are kept for the next call, and that one has at most.
const MAX_CACHED_ON_HOST: usize = 64 << 20;
const MAX_BLOCK_BYTES: usize = 16 << 20;

/// Bytes that one has at least.
const MIN_BLOCK_BYTES: usize = 64 << 10;

#[derive(Debug)]
struct CachedHostBuffer {
    /// In front of the memory, so that it goes first. None where the driver refuses.
    _pinned: Option<Pinned>,
    memory: MmapMut,
}

static HOST_STORE: Mutex<Vec<CachedHostBuffer>> = Mutex::new(Vec::new());

fn host_store() -> MutexGuard<'static, Vec<CachedHostBuffer>> {
    HOST_STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of the host. What it holds is what its last user has left.
///
/// Pinned memory from a store: to pin it takes tens of microseconds, and more the longer it is, and copies to
/// and from it take a half or less of what others take.
#[derive(Debug)]
pub struct HostMemory {
    cached: Option<CachedHostBuffer>,
}

impl HostMemory {
    /// At least so many bytes, for copies to and from the GPU where other memory lies. None where they are
    /// too many to be kept, or there is no such GPU or no memory.
    pub fn new(gpu_address: u64, bytes: usize) -> Option<Self> {
        if bytes > MAX_BLOCK_BYTES {
            return None;
        }
        let length = bytes.next_power_of_two().max(MIN_BLOCK_BYTES);
        let mut store = host_store();
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
        Some(Self { cached: Some(CachedHostBuffer { _pinned: pinned, memory }) })
    }

    /// Where it begins.
    pub fn address(&mut self) -> u64 {
        self.cached.as_mut().map_or(0, |cached| cached.memory.as_mut_ptr() as u64)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let Some(cached) = self.cached.take() else { return };
        let mut store = host_store();
        store.push(cached);
        // The oldest ones go first.
        while store.iter().map(|cached| cached.memory.len()).sum::<usize>() > MAX_CACHED_ON_HOST {
            store.remove(0);
        }
    }
}
