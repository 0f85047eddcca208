//! Pinned host memory for copies, kept for reuse.
//!
//! Pinning costs 50 us a MiB on an H200's host, and making the pages ten times as much on an H100's. So
//! blocks are kept by size class when they are released, and short ones are made several at a time: they
//! are the parts of a *slab*, which is registered as a whole.

use crate::functions::Functions;
use crate::locks::{Mutex, rank};
use crate::pinned::Pages;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{CU_MEMHOSTREGISTER_PORTABLE, CUresult};
use causeway_gpu::{CuResult, Staging};
use core::sync::atomic::{AtomicBool, Ordering};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The smallest block.
const MIN_BLOCK_BYTES: usize = 64 * 1024;
/// Up to this size there is one class for each power of two, so that few classes share the slabs.
const POWERS_OF_TWO: usize = 4 << 20;
/// Blocks that are shorter than this are parts of slabs of this size.
const SLAB: usize = 8 << 20;
/// The most blocks of one slab.
const MAX_BLOCKS_PER_SLAB: usize = 32;
/// How many bytes of unused blocks are kept; what is released beyond that is freed.
const MAX_CACHED: usize = 512 * 1024 * 1024;
/// Blocks from [`MIN_STREAM_ORDERED_BYTES`] bytes on are used in turn: a fresh one is made as long as fewer bytes than
/// this lie unused, and the one that has lain longest is taken afterwards. What cores have just read or
/// written lies in their caches, from which a device that writes there has to get it first: it wrote 16 MiB
/// in 459 us to memory that eight cores had just read, and in 310 to such that had made room in their caches
/// for as much again (a virtual machine with an H200, 2026-11-23).
const MAX_ROTATED_BYTES: usize = 32 * 1024 * 1024;
/// Shorter copies gain less than a fresh block costs.
const MIN_STREAM_ORDERED_BYTES: usize = 1024 * 1024;

/// Pages that are registered as a whole. Who drops the last of its blocks takes the registration back.
struct Slab {
    functions: &'static Functions,
    pages: Pages,
    /// That no block of it is to be used again, since its context is about to end.
    retired: AtomicBool,
    /// That the registration ends with its context, which may have ended already.
    context_ends: AtomicBool,
}

impl Slab {
    fn is_of(&self, context: Native<Context>) -> bool {
        self.pages.registered_in() == Some(context)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if *self.context_ends.get_mut() {
            self.pages.context_ended();
        } else {
            self.pages.unregister(self.functions);
        }
    }
}

/// A part of a slab.
struct Block {
    slab: Arc<Slab>,
    at: usize,
    bytes: usize,
}

impl Block {
    fn address(&self) -> *mut u8 {
        self.slab.pages.address().wrapping_add(self.at)
    }
}

/// The blocks that nobody uses now.
pub(crate) struct StagingPool {
    functions: &'static Functions,
    cached: Mutex<rank::Leaf, CachedBlocks>,
}

#[derive(Default)]
struct CachedBlocks {
    by_size: FxHashMap<usize, Blocks>,
    /// Bytes of all blocks that were released.
    bytes: usize,
    /// Every slab that is registered, those too whose blocks are all in use.
    slabs: Vec<Weak<Slab>>,
}

/// The blocks of one size.
#[derive(Default)]
struct Blocks {
    /// Those that were released, the first of them before the others.
    used: VecDeque<Block>,
    /// Those that nobody has used yet.
    fresh: Vec<Block>,
}

/// Which block is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// A short one is the last that was released, which is in the caches; a long one the first, and there
    /// is none until there is memory enough that has not been used lately.
    ByLength,
    /// The last that was released.
    Latest,
}

impl CachedBlocks {
    /// A block to use again, or for the first time.
    fn take(&mut self, size: usize, reuse: Reuse) -> Option<Block> {
        let blocks = self.by_size.get_mut(&size)?;
        let is_rotated = reuse == Reuse::ByLength && size >= MIN_STREAM_ORDERED_BYTES;
        let used = if !is_rotated {
            blocks.used.pop_back()
        } else if self.bytes >= MAX_ROTATED_BYTES {
            blocks.used.pop_front()
        } else {
            None
        };
        self.bytes -= used.as_ref().map_or(0, |block| block.bytes);
        used.or_else(|| blocks.fresh.pop())
    }

    /// Takes the blocks of a context out, none of which will be kept again.
    fn retire(&mut self, context: Native<Context>) -> (Vec<Block>, Vec<Weak<Slab>>) {
        let mut blocks = Vec::new();
        for of_size in self.by_size.values_mut() {
            let Blocks { used, fresh } = of_size;
            let (ending, others) =
                core::mem::take(used).into_iter().partition::<Vec<_>, _>(|block| block.slab.is_of(context));
            *used = others.into();
            self.bytes -= ending.iter().map(|block| block.bytes).sum::<usize>();
            blocks.extend(ending);
            blocks.extend(fresh.extract_if(.., |block| block.slab.is_of(context)));
        }
        let is_ending = |slab: &mut Weak<Slab>| match slab.upgrade() {
            Some(slab) if slab.is_of(context) => {
                slab.retired.store(true, Ordering::Relaxed);
                true
            }
            Some(_) => false,
            None => true,
        };
        (blocks, self.slabs.extract_if(.., is_ending).collect())
    }
}

/// The size of the block for `bytes`: powers of two, and beyond [`POWERS_OF_TWO`] three steps between them,
/// so that at most a fifth is wasted.
fn size_class(bytes: usize) -> Option<usize> {
    let power = bytes.max(MIN_BLOCK_BYTES).checked_next_power_of_two()?;
    if power <= POWERS_OF_TWO { Some(power) } else { bytes.checked_next_multiple_of(power / 8) }
}

/// How many blocks of this size are made at a time.
fn blocks_of_slab(size: usize) -> usize {
    (SLAB / size).clamp(1, MAX_BLOCKS_PER_SLAB)
}

impl StagingPool {
    pub(crate) fn new(functions: &'static Functions) -> Self {
        Self { functions, cached: Mutex::default() }
    }

    /// A block of at least `bytes`, pinned in `context`; not pinned when there is none or the driver refuses.
    pub(crate) fn take(
        self: &Arc<Self>,
        bytes: usize,
        context: Option<Native<Context>>,
        reuse: Reuse,
    ) -> CuResult<Staging> {
        let size = size_class(bytes).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let cached = self.cached.lock().take(size, reuse);
        // The lock is not held while memory is pinned.
        let block = match cached {
            Some(block) => block,
            None => self.fresh(size, context)?,
        };
        let (pool, address) = (Arc::clone(self), block.address());
        // SAFETY: the block is zeroed or was written before, at least `bytes` long, and owned by the closure.
        Ok(unsafe { Staging::new(address, bytes, move |_, _| pool.release(block)) })
    }

    /// Lets go of the blocks that were pinned in `context`, which is about to end.
    pub(crate) fn forget(&self, context: Native<Context>) {
        let (blocks, slabs) = self.cached.lock().retire(context);
        // Slabs that nobody uses are unregistered here, while there is a context to do it in.
        drop(blocks);
        for slab in slabs.iter().filter_map(Weak::upgrade) {
            slab.context_ends.store(true, Ordering::Relaxed);
        }
    }

    /// A block of a new slab, whose other blocks are kept; one of its own where nothing can be pinned.
    fn fresh(&self, size: usize, context: Option<Native<Context>>) -> CuResult<Block> {
        let count = if context.is_some() { blocks_of_slab(size) } else { 1 };
        let mut pages = Pages::new(size * count)?;
        if let Some(context) = context
            && let Err(status) = pages.register(self.functions, context, CU_MEMHOSTREGISTER_PORTABLE)
        {
            tracing::warn!(
                status = status.0,
                bytes = size * count,
                "cannot pin host memory; copies will be slower"
            );
        }
        let is_pinned = pages.registered_in().is_some();
        let (retired, context_ends) = (AtomicBool::new(false), AtomicBool::new(false));
        let slab = Arc::new(Slab { functions: self.functions, pages, retired, context_ends });
        let block = |number| Block { slab: Arc::clone(&slab), at: number * size, bytes: size };
        if is_pinned {
            let mut cached = self.cached.lock();
            cached.slabs.retain(|slab| slab.strong_count() > 0);
            cached.slabs.push(Arc::downgrade(&slab));
            cached.by_size.entry(size).or_default().fresh.extend((1..count).rev().map(block));
        }
        Ok(block(0))
    }

    fn release(&self, block: Block) {
        let mut cached = self.cached.lock();
        let is_pinned = block.slab.pages.registered_in().is_some();
        let is_of_use = is_pinned && !block.slab.retired.load(Ordering::Relaxed);
        if is_of_use && cached.bytes + block.bytes <= MAX_CACHED {
            cached.bytes += block.bytes;
            cached.by_size.entry(block.bytes).or_default().used.push_back(block);
            return;
        }
        // The registration may end with the block, which takes long.
        drop(cached);
        drop(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_hold_what_is_asked_and_little_more() {
        assert_eq!(size_class(0), Some(MIN_BLOCK_BYTES));
        assert_eq!(size_class(MIN_BLOCK_BYTES + 1), Some(2 * MIN_BLOCK_BYTES));
        assert_eq!(size_class(1 << 20), Some(1 << 20));
        assert_eq!(size_class(POWERS_OF_TWO + 1), Some(5 << 20));
        assert_eq!(size_class(usize::MAX), None);
        for bytes in (MIN_BLOCK_BYTES..20_000_000).step_by(99_991) {
            let class = size_class(bytes).unwrap();
            let waste = if class <= POWERS_OF_TWO { bytes } else { bytes / 4 };
            assert!(class >= bytes && class - bytes <= waste, "{bytes} -> {class}");
            assert_eq!(size_class(class), Some(class));
        }
    }

    #[test]
    fn short_blocks_are_made_several_at_a_time_and_long_ones_alone() {
        assert_eq!(blocks_of_slab(MIN_BLOCK_BYTES), MAX_BLOCKS_PER_SLAB);
        assert_eq!(blocks_of_slab(1 << 20), 8);
        assert_eq!(blocks_of_slab(SLAB), 1);
        assert_eq!(blocks_of_slab(5 << 20), 1);
    }
}
