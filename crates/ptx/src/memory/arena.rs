//! The memory of the blocks that run.

use std::ops::Range;

use super::stack::StackSlab;

/// The memory of a block that has begun: parameters, shared memory, and the local memory of its threads.
///
/// It is part of the address space, so that generic addresses reach it, and is reused from block to block.
/// Accesses in the `.shared` and `.local` windows are checked to the byte of what the block and the thread
/// have. A generic address is not: one that runs past a thread's local memory meets that of the next thread
/// of the block, and one that runs past the block's shared memory meets unused bytes, up to the pages without
/// access around each part.
#[derive(Debug)]
pub(crate) struct Arena {
    base: u64,
    /// Made when the arena is first used.
    pub(crate) stacks: Option<StackSlab>,
}

impl Arena {
    /// Bytes of address an arena takes.
    pub(crate) const SPAN: u64 = 256 << 20;
    const PARAMETERS: Range<u64> = 0x1000..0xa000;
    const SHARED: Range<u64> = 0x1_0000..0x5_0000;
    /// Bytes of address in which a block's shared memory lies.
    pub(crate) const SHARED_WINDOW: u64 = Self::SHARED.end - Self::SHARED.start;
    /// Offset of the part of shared memory that belongs to the system, behind all that a block may have.
    pub(crate) const RESERVED_SHARED: Range<u32> = 0x3_f000..0x3_f400;
    const LOCAL: Range<u64> = (1 << 20)..(Self::SPAN - (1 << 20));
    /// The parts that may be accessed, relative to the start.
    pub(crate) const WRITABLE: [Range<u64>; 3] = [Self::PARAMETERS, Self::SHARED, Self::LOCAL];

    pub(crate) fn new(base: u64) -> Self {
        Self { base, stacks: None }
    }

    /// Bytes of local memory each of `threads` threads can have.
    pub(crate) fn local_limit(threads: u64) -> u64 {
        (Self::LOCAL.end - Self::LOCAL.start) / threads.max(1)
    }

    /// Reserves stacks for the threads of a block, with so many extra bytes each, unless the arena has them.
    /// Returns whether it has them now.
    pub(crate) fn make_stacks(&mut self, threads: usize, extra: usize) -> bool {
        if !self.stacks.as_ref().is_some_and(|stacks| stacks.has(threads, extra)) {
            let limit = crate::limits::MAX_THREADS_PER_BLOCK as usize;
            self.stacks = StackSlab::new(if extra == 0 { limit } else { threads }, extra);
        }
        self.stacks.is_some()
    }

    /// Makes the workspace of a grid and says where it lies: two words, its size in bytes and the barrier of
    /// the grid, which programs find by `%envreg1` (the upper half of the address) and `%envreg2`, as NVIDIA's
    /// cooperative groups do.
    pub(crate) fn make_workspace(&self) -> u64 {
        let address = self.base + Self::PARAMETERS.end - 64;
        // SAFETY: it lies in a part of the arena that may be written, behind what parameters may take, and
        // no grid uses the arena yet.
        unsafe { (address as *mut [u32; 2]).write([size_of::<[u32; 2]>() as u32, 0]) };
        address
    }

    pub(crate) fn parameters(&self) -> u64 {
        self.base + Self::PARAMETERS.start
    }

    pub(crate) fn shared(&self) -> u64 {
        self.base + Self::SHARED.start
    }

    pub(crate) fn local(&self) -> u64 {
        self.base + Self::LOCAL.start
    }
}
