//! Functions of the runtime that compiled code calls, with C calling convention.
//!
//! They run on a coroutine's small stack and may be abandoned at any point where they suspend or read device
//! memory, so they hold no lock and own nothing there. What the host does with a message runs on the worker's
//! own stack.

use std::time::{SystemTime, UNIX_EPOCH};

use super::context::{
    BarrierRequest, ClusterBarrierRequest, PhaseRequest, Raised, Reduction, Request, ThreadContext,
    WarpOperation, WarpRequest,
};
use super::{gemm, printf, random, solve, sparse};

/// Suspends the thread with a request; returns when the scheduler resumes it.
///
/// # Safety
/// `thread` is the context that compiled code was called with, on that code's own coroutine.
unsafe fn suspend(thread: *mut ThreadContext, request: Request) -> u64 {
    // SAFETY: compiled code passes the context of the thread that runs, whose yielder is that of the
    // coroutine running.
    unsafe {
        (*thread).request = request;
        (*(*thread).yielder).suspend(());
        (*thread).warp_result
    }
}

/// Has the thread wait for what it requests. One without a stack of its own is not suspended by that: its code returns next,
/// and takes what the wait brought when it is called again.
///
/// # Safety
/// As for [`suspend`].
unsafe fn wait(thread: *mut ThreadContext, request: Request) -> u64 {
    // SAFETY: compiled code passes the context of the thread that runs.
    unsafe {
        if (*thread).is_stackless != 0 {
            (*thread).request = request;
            return 0;
        }
        suspend(thread, request)
    }
}

/// Ends the thread with a fault.
///
/// # Safety
/// As for [`suspend`].
pub(super) unsafe fn raise(thread: *mut ThreadContext, raised: Raised) -> ! {
    loop {
        // SAFETY: compiled code passes the context of the thread that runs. The scheduler never resumes a
        // thread that raised a fault.
        unsafe { suspend(thread, Request::Fault(raised)) };
    }
}

macro_rules! runtime_functions {
    ($($(#[$comment:meta])* fn $name:ident($thread:ident $(, $argument:ident: $ty:ty)*) $(-> $result:ty)? $body:block)*) => {
        $(
            $(#[$comment])*
            ///
            /// # Safety
            /// Called by compiled code only, with the context of the running thread.
            pub(crate) unsafe extern "C" fn $name($thread: *mut ThreadContext $(, $argument: $ty)*) $(-> $result)? {
                // SAFETY: compiled code passes the context it was given; pointers to arguments and results
                // are stack slots of the sizes the builtin's signature states.
                unsafe { $body }
            }
        )*
    };
}

runtime_functions! {
    /// `exit` inside a function.
    fn exit_thread(thread) {
        loop {
            suspend(thread, Request::Exit);
        }
    }

    /// `trap`.
    fn raise_trap(thread) {
        raise(thread, Raised::Trap)
    }

    /// An access that failed its check.
    fn raise_access(thread, address: u64, size: u32) {
        let misaligned = !address.is_multiple_of(u64::from(size));
        raise(thread, if misaligned { Raised::Misaligned { address, size } } else { Raised::IllegalAddress(address) })
    }

    /// Local memory is used up.
    fn raise_stack_overflow(thread) {
        raise(thread, Raised::StackOverflow)
    }

    /// An indirect call that leads nowhere.
    fn raise_call_target(thread) {
        raise(thread, Raised::IllegalInstruction("the target of an indirect call is not a function of that type"))
    }

    /// An index beyond the table of a branch.
    fn raise_branch_target(thread) {
        raise(thread, Raised::IllegalInstruction("the index of a branch is beyond its table"))
    }

    /// Lets other threads of the block run.
    fn yield_thread(thread) {
        (*thread).polls_left = super::context::POLLS_BEFORE_YIELD;
        wait(thread, Request::Yield);
    }

    /// Lets others run and gives whether the phase of an `mbarrier` is over then.
    fn wait_for_phase(thread, object: u64, parity: u32) -> u32 {
        (*thread).polls_left = super::context::POLLS_BEFORE_YIELD;
        wait(thread, Request::Phase(PhaseRequest { object, parity })) as u32
    }

    /// Lets the other lanes of the warp come to the instruction numbered `site`.
    fn step(thread, site: u64) {
        wait(thread, Request::Step(site));
    }

    /// An operation of the warp.
    fn warp_operation(thread, operation: u32, mask: u32, value: u64, lane: u32, clamp: u32) -> u64 {
        let operation = std::mem::transmute::<u32, WarpOperation>(operation);
        wait(thread, Request::Warp(WarpRequest { operation, mask, value, lane, clamp }))
    }

    /// `activemask` at the instruction numbered `site`.
    fn active_mask(thread, site: u64) -> u32 {
        wait(thread, Request::ActiveMask(site)) as u32
    }

    /// `bar.sync` and `bar.red`.
    fn barrier(thread, barrier: u32, threads: u32, reduction: u32, predicate: u32) -> u32 {
        let reduction = std::mem::transmute::<u32, Reduction>(reduction);
        let request = BarrierRequest { barrier, threads, predicate: predicate != 0, reduction, waits: true };
        wait(thread, Request::Barrier(request)) as u32
    }

    /// `bar.arrive`.
    fn arrive(thread, barrier: u32, threads: u32) {
        let reduction = Reduction::None;
        let request = BarrierRequest { barrier, threads, predicate: false, reduction, waits: false };
        wait(thread, Request::Barrier(request));
    }

    /// `barrier.cluster`
    fn cluster_barrier(thread, request: u32) {
        let request = std::mem::transmute::<u32, ClusterBarrierRequest>(request);
        wait(thread, Request::ClusterBarrier(request));
    }

    /// `vprintf(format, arguments) -> arguments parsed`, or -1 when the format is null. The CUDA C++
    /// Programming Guide says so in "Formatted Output"; C's `printf` counts characters instead.
    fn print(thread, format: *const u64, arguments: *const u64, result: *mut i32) {
        if *format == 0 {
            *result = -1;
            return;
        }
        let launch = &*(*thread).launch;
        let reader = printf::DeviceReader { space: launch.space };
        match printf::format(&reader, *format, *arguments) {
            Ok(printed) => {
                (*(*thread).yielder).on_parent_stack(|| launch.print(&printed.text));
                *result = printed.arguments as i32;
            }
            Err(address) => raise(thread, Raised::IllegalAddress(address)),
        }
    }

    /// `__assertfail(message, file, line, function, character size)`.
    fn assertion_failed(
        thread,
        message: *const u64,
        file: *const u64,
        line: *const u32,
        function: *const u64,
        _character: *const u64
    ) {
        let launch = &*(*thread).launch;
        let reader = printf::DeviceReader { space: launch.space };
        let text = |address: u64| {
            reader.string(address).map_or_else(|_| String::from("?"), |bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let ([bx, by, bz], [tx, ty, tz]) = ((*thread).ctaid, (*thread).tid);
        let message = format!(
            "{}:{}: {}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{}` failed.",
            text(*file), *line, text(*function), text(*message),
        );
        let thread_position = (*thread).thread_position();
        (*(*thread).yielder).on_parent_stack(|| launch.assertion(message, thread_position));
        raise(thread, Raised::Assert)
    }

    /// `cudaGraphSetConditional(handle, value)`.
    fn set_condition(thread, handle: *const u64, value: *const u32) {
        let launch = &*(*thread).launch;
        let (handle, value) = (*handle, *value);
        if !(*(*thread).yielder).on_parent_stack(|| launch.set_condition(handle, value)) {
            raise(thread, Raised::IllegalAddress(handle));
        }
    }

    /// The kernel of a matrix product: see [`causeway_gemm`].
    fn multiply_tile(thread, request: *const causeway_gemm::Request) {
        if let Err(raised) = gemm::multiply_tile(thread, &*request) {
            raise(thread, raised);
        }
    }

    /// The kernel of solutions and factorizations: see [`causeway_gemm`].
    fn solve(thread, request: *const causeway_gemm::SolveRequest) {
        if let Err(raised) = solve::solve(thread, &*request) {
            raise(thread, raised);
        }
    }

    /// The kernel of operations on elements: see [`causeway_gemm`].
    fn compute_elements(thread, request: *const causeway_gemm::ElementsRequest) {
        if let Err(raised) = gemm::compute_elements(thread, &*request) {
            raise(thread, raised);
        }
    }

    /// The kernel of random numbers: see [`causeway_gemm`].
    fn generate(thread, request: *const causeway_gemm::RandomRequest) {
        if let Err(raised) = random::generate(thread, &*request) {
            raise(thread, raised);
        }
    }

    /// The kernel of sparse matrices: see [`causeway_gemm`].
    fn compute_sparse(thread, request: *const causeway_gemm::SparseRequest) {
        if let Err(raised) = sparse::compute(thread, &*request) {
            raise(thread, raised);
        }
    }

    /// `malloc(size) -> pointer`.
    fn allocate(thread, size: *const u64, result: *mut u64) {
        *result = (*(*thread).launch).space.allocate_for_kernel(*size).unwrap_or(0);
    }

    /// `free(pointer)`.
    fn free(thread, pointer: *const u64) {
        let address = *pointer;
        if address != 0 && (*(*thread).launch).space.free_for_kernel(address).is_err() {
            raise(thread, Raised::IllegalAddress(address));
        }
    }
}

/// Clears the caller's slot of so many bytes.
///
/// # Safety
/// `address` and `size` are those of a slot of the compiled code that calls.
pub(crate) unsafe extern "C" fn clear(address: *mut u8, size: u64) {
    // SAFETY: compiled code passes one of its slots, which has `size` bytes.
    unsafe { address.write_bytes(0, size as usize) };
}

/// Copies a parameter of so many bytes into the frame of the function that it was passed to.
///
/// # Safety
/// The parameter is a slot of the caller's, and its copy a part of the thread's local memory, which are both
/// so large.
pub(crate) unsafe extern "C" fn copy_bytes(copy: *mut u8, parameter: *const u8, size: u64) {
    // SAFETY: compiled code passes a slot and a part of local memory, both of `size` bytes; slots lie outside
    // of local memory.
    unsafe { copy.copy_from_nonoverlapping(parameter, size as usize) };
}

/// `%clock64`: nanoseconds, so that a program sees a clock of 1 GHz.
pub(crate) extern "C" fn clock() -> u64 {
    global_timer()
}

/// `%globaltimer`: nanoseconds since 1970.
pub(crate) extern "C" fn global_timer() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// `bfe` on a value extended to 64 bits: `length` bits from bit `start` on of a number of `width` bits.
pub(crate) extern "C" fn extract_field(value: u64, start: u32, length: u32, width: u32, signed: u32) -> u64 {
    let (start, length) = (start & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    if signed == 0 {
        let value = if start >= width { 0 } else { value >> start };
        return if length >= 64 { value } else { value & ((1 << length) - 1) };
    }
    // The sign is the field's last bit, or the number's own where the field reaches beyond it.
    let value = value as i64;
    let last = (start + length - 1).min(width - 1);
    let sign = value >> last & 1;
    let field = if start >= width { value >> 63 } else { value >> start };
    if length >= 64 {
        return field as u64;
    }
    let mask = (1_u64 << length) - 1;
    let masked = field as u64 & mask;
    if sign != 0 { masked | !mask } else { masked & mask }
}

/// `fns`: the position of the bit of `mask` that is the `offset`-th one set from bit `base` on, upwards or,
/// where that is negative, downwards; with an offset of 0 the base itself, if that is set. All ones where
/// there is none.
pub(crate) extern "C" fn find_nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    let is_set = |position: &u32| mask.checked_shr(*position).is_some_and(|rest| rest & 1 != 0);
    let nth = offset.unsigned_abs().saturating_sub(1) as usize;
    let found = match offset {
        0 => Some(base).filter(is_set),
        1.. => (base..32).filter(is_set).nth(nth),
        _ if base < 32 => (0..=base).rev().filter(is_set).nth(nth),
        _ => None,
    };
    found.unwrap_or(u32::MAX)
}

/// `bfi`: `length` bits of `field` put into `into` from bit `start` on.
pub(crate) extern "C" fn insert_field(field: u64, into: u64, start: u32, length: u32) -> u64 {
    let (start, length) = (start & 0xff, length & 0xff);
    if start >= 64 || length == 0 {
        return into;
    }
    let mask = (if length >= 64 { u64::MAX } else { (1 << length) - 1 }) << start;
    (into & !mask) | (field << start & mask)
}

/// `prmt` with a selector that is not constant, or in one of its modes (0: by selector, then `f4e`, `b4e`,
/// `rc8`, `ecl`, `ecr`, `rc16`).
pub(crate) extern "C" fn permute_bytes(a: u32, b: u32, selector: u32, mode: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let low = selector & 3;
    let picks: [u32; 4] = std::array::from_fn(|byte| {
        let byte = byte as u32;
        match mode {
            1 => (low + byte) & 7,
            2 => low.wrapping_sub(byte) & 7,
            3 => low,
            4 => byte.max(low),
            5 => byte.min(low),
            6 => (low & 1) * 2 + (byte & 1),
            _ => selector >> (4 * byte) & 15,
        }
    });
    u32::from_le_bytes(picks.map(|pick| {
        let byte = bytes[(pick & 7) as usize];
        if pick & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte }
    }))
}

/// Rounds to the nearest half-precision number; the upper 16 bits of the result are zero.
pub(crate) extern "C" fn single_to_half(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return 0x7fff;
    }
    // 65520 and above round to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Subnormal: adding 0.5 aligns the bits that are kept with the end of the fraction, rounding as it
        // goes.
        let aligned = f32::from_bits(magnitude) + 0.5;
        return sign | (aligned.to_bits() - 0.5_f32.to_bits());
    }
    let odd = magnitude >> 13 & 1;
    sign | (magnitude - (112 << 23) + 0xfff + odd) >> 13
}

/// Rounds to single precision so that rounding the result again to fewer bits gives what rounding once would:
/// inexact results are made odd.
pub(crate) extern "C" fn double_to_single_odd(value: f64) -> f32 {
    let truncated = super::rounding::double_to_single(value, super::rounding::ZERO);
    if f64::from(truncated) == value || value.is_nan() {
        truncated
    } else {
        f32::from_bits(truncated.to_bits() | 1)
    }
}

/// `sin.approx`.
pub(crate) extern "C" fn sine(value: f32) -> f32 {
    value.sin()
}

/// `cos.approx`.
pub(crate) extern "C" fn cosine(value: f32) -> f32 {
    value.cos()
}

/// `ex2.approx`.
pub(crate) extern "C" fn exponential(value: f32) -> f32 {
    value.exp2()
}

/// `lg2.approx`.
pub(crate) extern "C" fn logarithm(value: f32) -> f32 {
    value.log2()
}

/// `tanh.approx`.
pub(crate) extern "C" fn hyperbolic_tangent(value: f32) -> f32 {
    value.tanh()
}
