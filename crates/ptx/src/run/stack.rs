//! Stacks for the threads of a block.

use std::num::NonZeroUsize;

use corosensei::stack::{Stack, StackPointer};

/// Bytes from one stack to the next. Not a multiple of a page or of a large power of two on purpose: the tops of
/// the stacks would otherwise fall into the same few cache sets and every switch would miss.
const STRIDE: usize = (128 << 10) + 1088;
/// Bytes at the low end that compiled code leaves to the runtime functions it calls.
const RESERVE: usize = 48 << 10;

/// Memory for many stacks, taken from the system page by page as it is touched.
///
/// No pointer of a kernel leads here: the slab lies outside of the address space, and every address is checked against
/// that. What a kernel can do to its stack is to use it up.
///
/// There is no guard page between stacks: that would cost two mappings a thread, and Linux allows a process some
/// 65,000. Compiled code compares its stack pointer with the limit at the start of every function instead, and the
/// runtime functions it calls need less than what lies below that limit.
#[derive(Debug)]
pub(crate) struct StackSlab {
    start: usize,
    size: usize,
}

/// One stack of a slab.
#[derive(Debug)]
pub(crate) struct SlabStack {
    base: StackPointer,
    limit: StackPointer,
}

impl StackSlab {
    /// Reserves `count` stacks.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let size = count * STRIDE + (64 << 10);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the first 16 KiB of the mapping made above; a runaway below the first stack ends there.
        unsafe { libc::mprotect(start, 16 << 10, libc::PROT_NONE) };
        Some(Self { start: start as usize, size })
    }

    /// The stack with this index.
    ///
    /// # Safety
    /// No other stack of this index may be in use, and the slab must outlive it.
    pub(crate) unsafe fn stack(&self, index: usize) -> SlabStack {
        let limit = self.start + (16 << 10) + index * STRIDE;
        let base = (limit + STRIDE) & !15;
        assert!(base <= self.start + self.size, "a stack beyond the end of its slab");
        let pointer = |address| NonZeroUsize::new(address).expect("a mapping does not start at address 0");
        SlabStack { base: pointer(base), limit: pointer(limit.next_multiple_of(16)) }
    }
}

impl SlabStack {
    /// The lowest address that compiled code may use.
    pub(crate) fn compiled_code_limit(&self) -> u64 {
        (self.limit.get() + RESERVE) as u64
    }
}

// SAFETY: base and limit describe memory of the slab that is this stack's alone, aligned to 16 bytes. Instead of a
// guard page, every compiled function checks the limit that `compiled_code_limit` states.
unsafe impl Stack for SlabStack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.limit
    }
}

impl Drop for StackSlab {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and its stacks are gone.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.size) };
    }
}
