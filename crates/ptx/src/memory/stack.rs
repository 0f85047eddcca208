//! Stacks for the threads of a block.

use std::num::NonZeroUsize;

use corosensei::stack::{Stack, StackPointer};

/// Bytes from one stack to the next, without extra ones. Not a multiple of a page or of a large power of two
/// on purpose: the tops of the stacks would otherwise fall into the same few cache sets and every switch
/// would miss.
const STRIDE: usize = (128 << 10) + 1088;
/// Bytes at the low end that compiled code leaves to the runtime functions it calls.
const RESERVE: usize = 48 << 10;

/// Memory for many stacks, taken from the system page by page as it is touched.
///
/// No pointer of a kernel leads here: the slab lies outside of the address space, and every address is
/// checked against that. What a kernel can do to its stack is to use it up.
///
/// There is no guard page between stacks: that would cost two mappings a thread, and Linux allows a process
/// some 65,000. Compiled code compares its stack pointer with the limit at the start of every function
/// instead, and the runtime functions it calls need less than what lies below that limit.
#[derive(Debug)]
pub(crate) struct StackSlab {
    start: usize,
    size: usize,
    /// Bytes from one stack to the next.
    stride: usize,
}

/// One stack of a slab.
#[derive(Debug)]
pub(crate) struct SlabStack {
    base: StackPointer,
    limit: StackPointer,
}

impl StackSlab {
    /// Reserves `count` stacks, with `extra` bytes beyond what compiled code has in any case.
    pub(crate) fn new(count: usize, extra: usize) -> Option<Self> {
        let stride = STRIDE.checked_add(extra.checked_next_multiple_of(4096)?)?;
        let size = count.checked_mul(stride)?.checked_add(64 << 10)?;
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
        Some(Self { start: start as usize, size, stride })
    }

    /// Whether it has `count` stacks with so many bytes beyond the usual ones.
    pub(crate) fn has(&self, count: usize, extra: usize) -> bool {
        self.stride - STRIDE >= extra && self.size / self.stride >= count
    }

    /// The stack with this index.
    ///
    /// # Safety
    /// No other stack of this index may be in use, and the slab must outlive it.
    pub(crate) unsafe fn stack(&self, index: usize) -> SlabStack {
        let limit = self.start + (16 << 10) + index * self.stride;
        let base = (limit + self.stride) & !15;
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

// SAFETY: base and limit describe memory of the slab that is this stack's alone, aligned to 16 bytes. Instead
// of a guard page, every compiled function checks the limit that `compiled_code_limit` states.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::AddressSpace;
    use super::*;
    use crate::{CompileOptions, Host, LaunchConfig, Pool, Program};

    struct Nobody;

    impl Host for Nobody {
        fn print(&self, _: &[u8]) {}
        fn assertion(&self, _: &str) {}
        fn set_condition(&self, _: u64, _: u32) -> bool {
            true
        }
    }

    /// Bytes of its stack that a thread used at most.
    fn used(stack: &SlabStack) -> usize {
        let (limit, base) = (stack.limit.get(), stack.base.get());
        // SAFETY: the stack is memory of a slab that is alive, and its coroutine is gone.
        let bytes = unsafe { std::slice::from_raw_parts(limit as *const u8, base - limit) };
        bytes.len() - bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len())
    }

    #[test]
    fn the_runtime_needs_less_stack_than_is_reserved_for_it() {
        let source = ".version 8.0\n.target sm_75\n.address_size 64
            .extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
            .extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);
            .extern .func (.param .b64 r) malloc (.param .b64 s);
            .extern .func free (.param .b64 p);
            .visible .entry k(.param .u64 format, .param .u64 arguments) {
                .reg .b64 f, a; .reg .b32 r;
                ld.param.u64 f, [format]; ld.param.u64 a, [arguments];
                call (r), vprintf, (f, a);
                call (a), malloc, (a); call (a), malloc, (f); call free, (a); mov.u32 r, 7;
                call __assertfail, (f, f, r, f, f);
            }";
        let program = Program::compile(&[source], &CompileOptions::default()).unwrap();
        let space = Arc::new(AddressSpace::new(64 << 20).unwrap());
        let loaded = program.load(&space, None).unwrap();
        let format = space.allocate(4096, 256).unwrap();
        let arguments = space.allocate(4096, 256).unwrap();
        let text = "%.4096f %4096.4096e %.4096g %a %s %s %lld %4096c %p %*.*f\0";
        space.write(format, text.as_bytes()).unwrap();
        for (index, number) in (0..).zip([1e308_f64, 1e-308, 1e-308, 1e-308]) {
            space.write(arguments + 8 * index, &number.to_le_bytes()).unwrap();
        }
        for string in [4, 5] {
            space.write(arguments + 8 * string, &format.to_le_bytes()).unwrap();
        }
        let params: Vec<u8> = [format, arguments].iter().flat_map(|word| word.to_le_bytes()).collect();
        let config = LaunchConfig {
            grid: [1; 3],
            block: [1; 3],
            cluster: None,
            dynamic_shared: 0,
            cooperative: false,
            priority: 0,
            params: &params,
        };
        assert!(loaded.launch("k", config, &Pool::new(1), &Nobody).is_err());
        let arena = space.take_arena().unwrap();
        // SAFETY: the launch is over, so that nothing uses the stacks of its arena.
        let used = used(&unsafe { arena.stacks.as_ref().unwrap().stack(0) });
        // The rest is for a system library whose functions need more than those of this one.
        assert!(used > 0 && used < RESERVE / 2, "{used} bytes");
    }
}
