//! What every exported symbol goes through on its way in and out.

use crate::log::{self, Level, error};
use crate::trace::{self, Category};
use crate::{process, statistics};
use causeway_api::coverage::{FUNCTIONS, Kind};
use causeway_api::sys::CUresult;
use core::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The address of an exported symbol.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub *const c_void);

// SAFETY: the address of code, never written through.
unsafe impl Sync for Address {}
// SAFETY: as above.
unsafe impl Send for Address {}

/// Runs an entry point: `index` is its place in [`FUNCTIONS`].
#[inline]
pub fn enter(index: usize, body: impl FnOnce() -> Result<(), CUresult>) -> CUresult {
    if !process::is_ready()
        && let Err(refusal) = process::admit(FUNCTIONS[index].symbol)
    {
        log_call(index, refusal);
        return refusal;
    }
    let begun = trace::begin();
    // A callback of the program may call the driver from inside a call.
    let outer = statistics::begin_call();
    // The only state that a panic can leave half done is behind locks that do not poison, and the call
    // reports it.
    let outcome = catch_unwind(AssertUnwindSafe(body));
    statistics::end_call(index, outer);
    trace::end(FUNCTIONS[index].symbol, Category::Call, begun);
    let result = match outcome {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => {
            error!("{} failed inside the library; please report the message above", FUNCTIONS[index].symbol);
            CUresult::CUDA_ERROR_UNKNOWN
        }
    };
    log_call(index, result);
    result
}

#[inline]
fn log_call(index: usize, result: CUresult) {
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
    statistics::count_call(index, statistics::Carried::Local);
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}
