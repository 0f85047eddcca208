//! Pointer arguments of the C functions: reading inputs, writing outputs.

use causeway_api::sys::CUresult;
use core::ffi::{CStr, c_char, c_void};

/// An address of the program that only the program looks behind.
#[derive(Clone, Copy)]
pub struct Address(pub *mut c_void);

// SAFETY: the program gave the address to be passed on to another thread; we never look behind it.
unsafe impl Send for Address {}
// SAFETY: the program gave the address to be passed on to another thread; we never look behind it.
unsafe impl Sync for Address {}

/// Text that the program passed.
///
/// # Safety
/// `pointer` is null or points to NUL-terminated text that stays as it is while the result is used.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, CUresult> {
    if pointer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: it is not null, and so NUL-terminated text, which the caller keeps as it is while the result is
    // used.
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
        // SAFETY: it is not null, and so points to `count` values, which the caller keeps as they are while
        // the result is used.
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
    // SAFETY: the caller has room for `count` values; `values` is our own memory.
    unsafe { pointer.copy_from_nonoverlapping(values.as_ptr(), count) };
    Ok(())
}

/// Stores a result that the program must have given room for.
///
/// # Safety
/// `pointer` is null or has room for a value.
pub unsafe fn write_out<T>(pointer: *mut T, value: T) -> Result<(), CUresult> {
    if pointer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller has room for a value.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Stores a result if the program wants it.
///
/// # Safety
/// `pointer` is null or has room for a value.
pub unsafe fn write_optional<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: the caller has room for a value.
        unsafe { pointer.write(value) };
    }
}
