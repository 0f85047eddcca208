//! Start and stop of a profiler, of which there is none: as in the driver when no tool is attached, nothing
//! happens. And the log of the server's driver.

use crate::abi::entry::Outcome;
use crate::arguments::{store, text, write_optional};
use crate::model::context;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::sys::{CUlogIterator, CUresult};
use core::ffi::{c_char, c_void};

pub unsafe fn cuProfilerStart() -> Outcome {
    context::current().map(|_| ())
}

pub unsafe fn cuProfilerStop() -> Outcome {
    context::current().map(|_| ())
}

/// More than the driver keeps of its log.
const WHOLE_LOG: usize = 1 << 20;

pub unsafe fn cuLogsDumpToMemory(
    iterator: *mut CUlogIterator,
    buffer: *mut c_void,
    size: *mut usize,
    flags: u32,
) -> Outcome {
    // SAFETY: a size, or null.
    let capacity = unsafe { size.as_ref() }.copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if flags != 0 || buffer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: an iterator, or null.
    let start = unsafe { iterator.as_ref() }.copied();
    let (text, next) = send::call_in(context::anywhere(), &calls::logs_dump { start, size: capacity })?;
    // SAFETY: room for as many bytes as the program says, for a size, and for an iterator unless it is null.
    unsafe {
        store(buffer.cast(), capacity, &text)?;
        size.write(text.len());
        write_optional(iterator, next);
    }
    Ok(())
}

/// The file is written here, where the program is.
pub unsafe fn cuLogsDumpToFile(
    iterator: *mut CUlogIterator,
    pathToFile: *const c_char,
    flags: u32,
) -> Outcome {
    // SAFETY: a path, or null.
    let path = unsafe { text(pathToFile) }?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: an iterator, or null.
    let start = unsafe { iterator.as_ref() }.copied();
    let (mut log, next) = send::call_in(context::anywhere(), &calls::logs_dump { start, size: WHOLE_LOG })?;
    while log.last() == Some(&0) {
        log.pop();
    }
    std::fs::write(path, log).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: room for an iterator, or null.
    unsafe { write_optional(iterator, next) };
    Ok(())
}
