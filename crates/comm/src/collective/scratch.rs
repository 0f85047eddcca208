//! Scratch memory on a GPU. It comes from a store, since making it takes tens of
//! microseconds, and peers keep it open.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::launch::memory_at;
use crate::cuda::{Bounce, CudaError, Driver, Scope};

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
