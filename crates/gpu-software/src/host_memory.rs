//! Host memory of the software GPU: staging for copies, kept for reuse, since the system's fresh pages cost
//! more to touch than bytes do to copy; memory that is registered; and managed memory, which is allocated as
//! a device's own.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, DeviceBytes, Registration, Staging};
use parking_lot::Mutex;

/// Blocks start at multiples of this, so that copies run at full speed.
const ALIGNMENT: usize = 64;
/// Smaller blocks are left to the allocator, which keeps such itself.
const MIN_CACHED_BYTES: usize = 64 << 10;
/// Bytes of unused blocks that are kept.
const MAX_CACHED_BYTES: usize = 128 << 20;

/// The blocks that nobody uses now.
#[derive(Default)]
pub(super) struct StagingPool {
    cached: Mutex<CachedBlocks>,
}

#[derive(Default)]
struct CachedBlocks {
    blocks: Vec<Block>,
    bytes: usize,
}

/// Memory that this owns, all of it initialised.
struct Block {
    address: *mut u8,
    layout: Layout,
}

// SAFETY: a block owns its memory like a `Box<[u8]>` does.
unsafe impl Send for Block {}

impl Block {
    fn new(bytes: usize) -> CuResult<Self> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT);
        let layout = layout.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        // SAFETY: the layout is not empty.
        let address = unsafe { alloc_zeroed(layout) };
        if address.is_null() { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(Self { address, layout }) }
    }

    fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout and is owned by this block.
        unsafe { dealloc(self.address, self.layout) };
    }
}

impl StagingPool {
    /// A block of `bytes`.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` when the system has no more.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> CuResult<Staging> {
        let block = self.reuse(bytes).map_or_else(|| Block::new(bytes), Ok)?;
        let (pool, address) = (Arc::clone(self), block.address);
        // SAFETY: the block has `bytes` initialised bytes and is owned by the closure.
        Ok(unsafe { Staging::new(address, bytes, move |_, _| pool.keep(block)) })
    }

    /// A kept block that is not much too large.
    fn reuse(&self, bytes: usize) -> Option<Block> {
        if bytes < MIN_CACHED_BYTES {
            return None;
        }
        let mut cached = self.cached.lock();
        let fits = |block: &Block| block.bytes() >= bytes && block.bytes() / 2 <= bytes;
        let index = cached.blocks.iter().rposition(fits)?;
        let block = cached.blocks.remove(index);
        cached.bytes -= block.bytes();
        Some(block)
    }

    /// Keeps a block, and lets go of those kept for longest when they become too many.
    fn keep(&self, block: Block) {
        if block.bytes() < MIN_CACHED_BYTES {
            return;
        }
        let mut cached = self.cached.lock();
        cached.bytes += block.bytes();
        cached.blocks.push(block);
        while cached.bytes > MAX_CACHED_BYTES {
            let oldest = cached.blocks.remove(0);
            cached.bytes -= oldest.bytes();
        }
    }
}

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

/// Memory that kernels reach, and this process only by copies.
pub(super) struct Managed(pub Staging);

impl DeviceBytes for Managed {
    fn read(&self, at: usize, into: &mut [u8]) -> CuResult<()> {
        assert!(at + into.len() <= self.0.len(), "the engine reads inside the memory");
        // SAFETY: the range lies in the memory. A kernel that writes there meanwhile is the program's own
        // race.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(self.0.as_ptr().add(at), into.len()) };
        Ok(())
    }

    fn write(&self, at: usize, bytes: &[u8]) -> CuResult<()> {
        assert!(at + bytes.len() <= self.0.len(), "the engine writes inside the memory");
        // SAFETY: the range lies in the memory. A kernel that accesses it meanwhile is the program's own
        // race.
        unsafe { self.0.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_when_they_fit() {
        let pool = Arc::new(StagingPool::default());
        let mut first = pool.take(1 << 20).unwrap();
        first.as_mut_slice().fill(7);
        let address = first.as_ptr();
        drop(first);
        let second = pool.take(600 << 10).unwrap();
        assert_eq!((second.as_ptr(), second.len()), (address, 600 << 10));
        assert_ne!(pool.take(1 << 20).unwrap().as_ptr(), address);
        drop(second);
        assert_ne!(pool.take(100 << 10).unwrap().as_ptr(), address, "that would waste most of it");
        assert!(pool.take(0).unwrap().is_empty());
        assert!(pool.take(usize::MAX).is_err());
        for _ in 0..10 {
            drop(pool.take(100 << 20).unwrap());
        }
        assert!(pool.cached.lock().bytes <= MAX_CACHED_BYTES);
    }

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
