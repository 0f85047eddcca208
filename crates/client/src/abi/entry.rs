//! What every exported symbol goes through on its way in and out.

use crate::log::{self, Level, error};
use crate::{process, statistics};
use causeway_api::coverage::{FUNCTIONS, Kind};
use causeway_api::sys::CUresult;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the stream handle 0 means to an entry point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultStream {
    /// The legacy default stream.
    Legacy,
    /// The calling thread's own default stream: the `_ptsz` and `_ptds` variants.
    PerThread,
}

/// The address of an exported symbol.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub *const c_void);

// SAFETY: the address of code, never written through.
unsafe impl Sync for Address {}
// SAFETY: as above.
unsafe impl Send for Address {}

/// How a call was carried out; the later ones outweigh the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Carried {
    /// Without the server.
    Local,
    /// By commands that nobody waited for.
    Posted,
    /// By waiting for the server.
    Called,
}

thread_local! {
    static CARRIED: Cell<Carried> = const { Cell::new(Carried::Local) };
}

/// Notes how the running call is being carried out.
#[inline]
pub fn mark(carried: Carried) {
    CARRIED.set(CARRIED.get().max(carried));
}

/// Runs an entry point: `index` is its place in [`FUNCTIONS`].
#[inline]
pub fn enter(index: usize, body: impl FnOnce() -> Result<(), CUresult>) -> CUresult {
    if !process::is_ready()
        && let Err(refusal) = process::admit(FUNCTIONS[index].symbol)
    {
        trace(index, refusal);
        return refusal;
    }
    // A callback of the program may call the driver from inside a call.
    let outer = CARRIED.replace(Carried::Local);
    // The only state that a panic can leave half done is behind locks that do not poison, and the call reports it.
    let outcome = catch_unwind(AssertUnwindSafe(body));
    statistics::count_call(index, CARRIED.replace(outer));
    let result = match outcome {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => {
            error!("{} failed inside the library; please report the message above", FUNCTIONS[index].symbol);
            CUresult::CUDA_ERROR_UNKNOWN
        }
    };
    trace(index, result);
    result
}

#[inline]
fn trace(index: usize, result: CUresult) {
    if log::wants(Level::Trace) {
        log::write(Level::Trace, format_args!("{} = {}", FUNCTIONS[index].symbol, result.0));
    }
}

/// Answers for an entry point that is not supported, and says so once.
pub fn unsupported(index: usize) -> CUresult {
    if !process::is_ready()
        && let Err(refusal) = process::admit(FUNCTIONS[index].symbol)
    {
        return refusal;
    }
    static SAID: LazyLock<Box<[AtomicBool]>> =
        LazyLock::new(|| FUNCTIONS.iter().map(|_| AtomicBool::new(false)).collect());
    if !SAID[index].swap(true, Ordering::Relaxed) {
        let function = &FUNCTIONS[index];
        let reason = if let Kind::Unsupported { reason } = function.kind { reason } else { "not built" };
        error!("{} is not supported: {reason}", function.symbol);
    }
    statistics::count_call(index, Carried::Local);
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

/// Refuses one use of a supported entry point, and says so the first time it happens.
macro_rules! refuse_use {
    ($($text:tt)*) => {{
        static SAID: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        if !SAID.swap(true, std::sync::atomic::Ordering::Relaxed) {
            $crate::log::error!("not supported: {}", format_args!($($text)*));
        }
        causeway_api::sys::CUresult::CUDA_ERROR_NOT_SUPPORTED
    }};
}
pub(crate) use refuse_use;

/// Text that the program passed.
///
/// # Safety
/// `pointer` is null or points to NUL-terminated text that stays as it is while the result is used.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, CUresult> {
    if pointer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: as this function demands.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// A list that the program passed.
///
/// # Safety
/// `pointer` is null or points to `count` values that stay as they are while the result is used.
pub unsafe fn list<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], CUresult> {
    match (count, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        // SAFETY: as this function demands.
        _ => Ok(unsafe { core::slice::from_raw_parts(pointer, count) }),
    }
}

/// Stores as many of `values` as the program has room for.
///
/// # Safety
/// `pointer` is null or has room for `count` values.
pub unsafe fn store<T: Copy>(pointer: *mut T, count: usize, values: &[T]) -> Result<(), CUresult> {
    let count = count.min(values.len());
    if count == 0 {
        return Ok(());
    }
    if pointer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: room for `count` values as this function demands; `values` is our own memory.
    unsafe { pointer.copy_from_nonoverlapping(values.as_ptr(), count) };
    Ok(())
}

/// Stores a result that the program must have given room for.
///
/// # Safety
/// `pointer` is null or has room for a value.
pub unsafe fn give<T>(pointer: *mut T, value: T) -> Result<(), CUresult> {
    if pointer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: room for a value as this function demands.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Stores a result if the program wants it.
///
/// # Safety
/// `pointer` is null or has room for a value.
pub unsafe fn offer<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: room for a value as this function demands.
        unsafe { pointer.write(value) };
    }
}
