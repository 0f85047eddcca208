//! Host memory that is registered with the software GPU.
//!
//! A processor copies from all memory alike, so that nothing is done for it. It is counted, and refused
//! beyond a limit as a driver does whose system lets no more memory be locked: what then has to happen can be
//! seen without one.

use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, Registration};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The host memory that is registered.
pub(super) struct Pinned {
    max: u64,
    bytes: Arc<AtomicU64>,
}

/// Registered as long as it lives.
struct Registered {
    length: u64,
    bytes: Arc<AtomicU64>,
}

impl Pinned {
    /// None yet, and never more than `max` bytes.
    pub(super) fn new(max: u64) -> Self {
        Self { max, bytes: Arc::default() }
    }

    /// Registers so many bytes more.
    pub(super) fn register(&self, length: usize) -> CuResult<Box<dyn Registration>> {
        let registered = Registered { length: length as u64, bytes: Arc::clone(&self.bytes) };
        let before = self.bytes.fetch_add(registered.length, Ordering::Relaxed);
        if before.saturating_add(registered.length) > self.max {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(Box::new(registered))
    }
}

impl Registration for Registered {
    fn is_alive(&self) -> bool {
        true
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.length, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_registered_than_may_be() {
        let pinned = Pinned::new(100);
        let first = pinned.register(60).unwrap();
        assert_eq!(pinned.register(41).err(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        let _second = pinned.register(40).unwrap();
        assert!(pinned.register(1).is_err());
        drop(first);
        assert!(pinned.register(60).is_ok_and(|third| third.is_alive()));
    }
}
