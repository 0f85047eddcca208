//! Staging blocks: memory of the host through which parts of messages pass between lanes and GPUs.
//!
//! To pin memory is a set-up call, and to unpin it waits for kernels. So some blocks are pinned when memory of GPUs is
//! registered, and stay so until the process ends; where they are used up, blocks without pinning do, which are slower.

use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use causeway_cuda::{CudaError, Pinned, Scope};

/// Bytes of a block.
pub const STAGING_BYTES: usize = 512 << 10;

/// Pinned blocks of a process.
const MAX_PINNED: usize = 64;

/// A block.
pub struct StagingBlock {
    memory: NonNull<u8>,
    is_pinned: bool,
}

// SAFETY: the memory is this block's alone.
unsafe impl Send for StagingBlock {}

/// Pinned blocks that no part is in, and how many there are of them in all.
#[derive(Default)]
struct Pool {
    free: Vec<StagingBlock>,
    pinned: usize,
}

fn pool() -> MutexGuard<'static, Pool> {
    static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), pinned: 0 });
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pins so many more blocks, as far as there may be more and the driver lets them be.
pub fn pin_more(scope: &Scope<'static>, count: usize) {
    let count = {
        let mut pool = pool();
        let count = count.min(MAX_PINNED - pool.pinned);
        pool.pinned += count;
        count
    };
    let bytes = count * STAGING_BYTES;
    if count == 0 {
        return;
    }
    let Ok(start) = map(bytes) else { return };
    // SAFETY: the pages stay for good.
    let Ok(pinned) = (unsafe { Pinned::new(scope, start.as_ptr() as u64, bytes) }) else {
        unmap(start, bytes);
        return;
    };
    core::mem::forget(pinned);
    // A child that shared the pages would have the next write of this process go to other pages than the GPU reads.
    // SAFETY: pages of this module, which no child uses.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
    // SAFETY: within the pages.
    let block = |at| unsafe { start.add(at * STAGING_BYTES) };
    let blocks = (0..count).map(|at| StagingBlock { memory: block(at), is_pinned: true });
    pool().free.extend(blocks);
}

impl StagingBlock {
    /// A pinned one if one is free, else one without pinning.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn take() -> Result<Self, CudaError> {
        if let Some(block) = pool().free.pop() {
            return Ok(block);
        }
        Ok(Self { memory: map(STAGING_BYTES)?, is_pinned: false })
    }

    /// Its first byte.
    pub fn memory(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl Drop for StagingBlock {
    fn drop(&mut self) {
        if self.is_pinned {
            pool().free.push(Self { memory: self.memory, is_pinned: true });
        } else {
            unmap(self.memory, STAGING_BYTES);
        }
    }
}

/// New pages, wherever the system has room.
fn map(bytes: usize) -> Result<NonNull<u8>, CudaError> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: no pages of anybody's are replaced.
    let pages = unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    let pages = NonNull::new(pages).filter(|pages| pages.as_ptr() != libc::MAP_FAILED);
    Ok(pages.ok_or(CudaError { call: "mmap", code: 2 })?.cast())
}

fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: pages of `map` that are used no more.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_without_a_pinned_one_is_new_and_goes() {
        let block = StagingBlock::take().unwrap();
        // SAFETY: the block's own memory.
        unsafe { block.memory().write_bytes(7, STAGING_BYTES) };
        assert!(!block.is_pinned);
        drop(block);
        assert!(pool().free.is_empty(), "a block that is not pinned is kept");
    }
}
