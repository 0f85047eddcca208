//! Pinned host memory for copies, kept for reuse.
//!
//! Pinning costs about 50 us a MiB on an H200's host, so blocks are kept by size class when they are given back.

use super::functions::Functions;
use super::pinned::Pages;
use crate::{CuResult, Staging};
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{CU_MEMHOSTREGISTER_PORTABLE, CUresult};
use core::sync::atomic::{AtomicU64, Ordering};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// The smallest block.
const SMALLEST: usize = 64 * 1024;
/// How many bytes of unused blocks are kept; what is given back beyond that is freed.
const MOST_KEPT: usize = 512 * 1024 * 1024;
/// Blocks from [`LEAST_IN_TURN`] bytes on are used in turn: a fresh one is made as long as fewer bytes than this lie unused, and
/// the one that has lain longest is taken afterwards. What cores have just read or written lies in their caches, from which a
/// device that writes there has to get it first: it wrote 16 MiB in 459 us to memory that eight cores had just read, and in 310
/// to such that had made room in their caches for as much again (a virtual machine with an H200, 2026-11-23).
const IN_TURN: usize = 32 * 1024 * 1024;
/// Shorter copies gain less than a fresh block costs.
const LEAST_IN_TURN: usize = 1024 * 1024;

/// The blocks that nobody uses now.
pub(super) struct StagingPool {
    functions: &'static Functions,
    kept: Mutex<Kept>,
    /// How many contexts have ended: a block that was lent before does not come back to the pool afterwards
    /// unless its context still lives.
    ended: Mutex<FxHashMap<Native<Context>, u64>>,
    lends: AtomicU64,
}

#[derive(Default)]
struct Kept {
    /// By their size, those that were given back first before the others.
    by_size: FxHashMap<usize, VecDeque<Pages>>,
    bytes: usize,
}

/// Which block is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// A short one is the last that was given back, which is in the caches; a long one the first, and there is none until there
    /// is memory enough that has not been used lately.
    ByLength,
    /// The last that was given back.
    Latest,
}

impl Kept {
    /// A block to use again.
    fn take(&mut self, size: usize, reuse: Reuse) -> Option<Pages> {
        let in_turn = reuse == Reuse::ByLength && size >= LEAST_IN_TURN;
        if in_turn && self.bytes < IN_TURN {
            return None;
        }
        let blocks = self.by_size.get_mut(&size)?;
        let pages = if in_turn { blocks.pop_front() } else { blocks.pop_back() }?;
        self.bytes -= size;
        Some(pages)
    }
}

/// The size of the block for `bytes`: powers of two and three steps between them, so that at most a fifth is
/// wasted.
fn size_class(bytes: usize) -> Option<usize> {
    if bytes <= SMALLEST {
        return Some(SMALLEST);
    }
    let step = bytes.checked_next_power_of_two()? / 8;
    bytes.checked_next_multiple_of(step)
}

impl StagingPool {
    pub(super) fn new(functions: &'static Functions) -> Self {
        let (kept, ended, lends) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Self { functions, kept, ended, lends }
    }

    /// A block of at least `bytes`, pinned in `context`; not pinned when there is none or the driver refuses.
    pub(super) fn take(
        self: &Arc<Self>,
        bytes: usize,
        context: Option<Native<Context>>,
        reuse: Reuse,
    ) -> CuResult<Staging> {
        let size = size_class(bytes).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let lent = self.lends.fetch_add(1, Ordering::Relaxed);
        let kept = self.kept.lock().take(size, reuse);
        // The lock is not held while memory is pinned.
        let pages = match kept {
            Some(pages) => pages,
            None => self.fresh(size, context)?,
        };
        let (pool, address) = (Arc::clone(self), pages.address());
        // SAFETY: the pages are zeroed or were written before, at least `bytes` long, and owned by the closure.
        Ok(unsafe { Staging::new(address, bytes, move |_, _| pool.give_back(pages, lent)) })
    }

    /// Lets go of the blocks that were pinned in `context`, which is about to end.
    pub(super) fn forget(&self, context: Native<Context>) {
        self.ended.lock().insert(context, self.lends.load(Ordering::Relaxed));
        let mut freed = Vec::new();
        {
            let mut kept = self.kept.lock();
            for blocks in kept.by_size.values_mut() {
                let (ended, others) = core::mem::take(blocks)
                    .into_iter()
                    .partition::<VecDeque<_>, _>(|pages| pages.registered_in() == Some(context));
                freed.extend(ended);
                *blocks = others;
            }
            kept.bytes -= freed.iter().map(Pages::bytes).sum::<usize>();
        }
        for mut pages in freed {
            pages.unregister(self.functions);
        }
    }

    fn fresh(&self, size: usize, context: Option<Native<Context>>) -> CuResult<Pages> {
        let mut pages = Pages::new(size)?;
        if let Some(context) = context
            && let Err(status) = pages.register(self.functions, context, CU_MEMHOSTREGISTER_PORTABLE)
        {
            tracing::warn!(
                status = status.0,
                bytes = size,
                "host memory cannot be pinned; copies will be slower"
            );
        }
        Ok(pages)
    }

    fn give_back(&self, mut pages: Pages, lent: u64) {
        let Some(context) = pages.registered_in() else { return };
        if self.ended.lock().get(&context).is_some_and(|ended| lent < *ended) {
            pages.context_ended();
            return;
        }
        let mut kept = self.kept.lock();
        if kept.bytes + pages.bytes() <= MOST_KEPT {
            kept.bytes += pages.bytes();
            kept.by_size.entry(pages.bytes()).or_default().push_back(pages);
            return;
        }
        drop(kept);
        pages.unregister(self.functions);
    }
}

impl Drop for StagingPool {
    fn drop(&mut self) {
        for pages in self.kept.get_mut().by_size.values_mut().flatten() {
            pages.unregister(self.functions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_hold_what_is_asked_and_little_more() {
        assert_eq!(size_class(0), Some(SMALLEST));
        assert_eq!(size_class(SMALLEST + 1), Some(SMALLEST + SMALLEST / 4));
        assert_eq!(size_class(1 << 20), Some(1 << 20));
        assert_eq!(size_class(usize::MAX), None);
        for bytes in (SMALLEST..20_000_000).step_by(99_991) {
            let class = size_class(bytes).unwrap();
            assert!(class >= bytes && class - bytes <= bytes / 4, "{bytes} -> {class}");
            assert_eq!(size_class(class), Some(class));
        }
    }
}
