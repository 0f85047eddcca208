//! Host memory for copies, kept for reuse: the system's fresh pages cost more to touch than bytes do to copy.

use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, Staging};
use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

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
}
