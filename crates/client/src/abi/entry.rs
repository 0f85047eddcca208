//! Entry and exit of every exported symbol: readiness, trace, statistics.

use core::ffi::c_void;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_api::coverage::{FUNCTIONS, Kind};
use causeway_api::sys::CUresult;

use crate::log::{self, Level, error, info};
use crate::submit::callbacks;
use crate::trace::{self, Category};
use crate::{call_gate, guard, process, statistics};

/// The address of an exported symbol.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub *const c_void);

// SAFETY: the address of code, never written through.
unsafe impl Sync for Address {}
// SAFETY: the address of code, never written through.
unsafe impl Send for Address {}

/// Entry points that a function of `cuLaunchHostFunc` or `cuStreamAddCallback`, or a destructor of a user object, may
/// call: those that the driver does not refuse there (580, H100), as they name what they concern and need no
/// current context, which there is none of. What could wait is not among them (`cuStreamSynchronize`,
/// `cuEventSynchronize`), though the driver lets it wait even for the function that calls it, nor what puts work for
/// the device into a stream. Default streams are refused where streams are looked up.
const IN_FUNCTIONS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuStreamQuery",
    "cuStreamGetFlags",
    "cuStreamGetPriority",
    "cuStreamGetId",
    "cuStreamGetCtx",
    "cuStreamGetCtx_v2",
    "cuStreamIsCapturing",
    "cuStreamGetCaptureInfo",
    "cuStreamGetCaptureInfo_v2",
    "cuStreamGetCaptureInfo_v3",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamWaitEvent",
    "cuStreamAddCallback",
    "cuLaunchHostFunc",
    "cuStreamDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventElapsedTime_v2",
    "cuUserObjectCreate",
];

/// Decides about a call of `symbol` by a function of the program that a stream waits for.
#[cold]
fn admit_in_function(symbol: &str) -> Result<(), CUresult> {
    if IN_FUNCTIONS.contains(&symbol) { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_PERMITTED) }
}

/// Runs an entry point: `index` is its place in [`FUNCTIONS`].
#[inline]
pub fn enter(index: usize, body: impl FnOnce() -> Result<(), CUresult>) -> CUresult {
    let _call = call_gate::begin();
    if !process::accepts_calls()
        && let Err(refusal) = process::admit(FUNCTIONS[index].symbol)
    {
        log_call(index, refusal);
        return refusal;
    }
    if callbacks::is_in_function()
        && let Err(refusal) = admit_in_function(FUNCTIONS[index].symbol)
    {
        log_call(index, refusal);
        return refusal;
    }
    let started = trace::begin();
    // A callback of the program may call the driver from inside a call.
    let outer = statistics::begin_call();
    let outcome = guard::run(body);
    statistics::end_call(index, outer);
    trace::end(FUNCTIONS[index].symbol, Category::Call, started);
    let result = match outcome {
        Some(Ok(())) => CUresult::CUDA_SUCCESS,
        Some(Err(status)) => status,
        None => {
            info!("the fault was in {}", FUNCTIONS[index].symbol);
            CUresult::CUDA_ERROR_UNKNOWN
        }
    };
    log_call(index, result);
    result
}

#[inline]
fn log_call(index: usize, result: CUresult) {
    if log::is_enabled(Level::Trace) {
        log::write(Level::Trace, format_args!("{} = {}", FUNCTIONS[index].symbol, result.0));
    }
}

/// Answers for an entry point that is not supported, and says so once.
pub fn unsupported(index: usize) -> CUresult {
    if !process::accepts_calls()
        && let Err(refusal) = process::admit(FUNCTIONS[index].symbol)
    {
        return refusal;
    }
    static LOGGED: LazyLock<Box<[AtomicBool]>> =
        LazyLock::new(|| FUNCTIONS.iter().map(|_| AtomicBool::new(false)).collect());
    if !LOGGED[index].swap(true, Ordering::Relaxed) {
        let function = &FUNCTIONS[index];
        let reason = if let Kind::Unsupported { reason } = function.kind { reason } else { "not built" };
        error!("{} is not supported: {reason}", function.symbol);
    }
    statistics::count_call(index, statistics::Carried::Local);
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

/// The outcome of an entry point.
pub type Outcome = Result<(), CUresult>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_allowed_in_host_functions_do_not_block() {
        for symbol in IN_FUNCTIONS {
            assert!(FUNCTIONS.iter().any(|function| function.symbol == *symbol), "{symbol}");
            assert!(!symbol.contains("Synchronize"), "{symbol}");
            assert_eq!(admit_in_function(symbol), Ok(()));
        }
        for symbol in ["cuMemFree_v2", "cuStreamSynchronize", "cuCtxDestroy_v2", "cuCtxGetCurrent"] {
            assert_eq!(admit_in_function(symbol), Err(CUresult::CUDA_ERROR_NOT_PERMITTED), "{symbol}");
        }
    }
}
