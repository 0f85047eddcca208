//! Log: NCCL's own, which `NCCL_DEBUG` and `NCCL_DEBUG_FILE` govern.

use core::ffi::{c_char, c_int, c_ulong};
use std::ffi::CString;
use std::sync::{PoisonError, RwLock};

/// `ncclDebugLogger_t`: level, subsystems, file or function, line, and a format with its arguments.
pub type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// `NCCL_LOG_WARN` and `NCCL_LOG_INFO`.
const WARN: c_int = 2;
const INFO: c_int = 3;

/// `NCCL_INIT | NCCL_NET`, and `NCCL_ALL`.
const INIT_AND_NET: c_ulong = 1 | 16;
const ALL: c_ulong = !0;

static LOGGER: RwLock<Option<Logger>> = RwLock::new(None);

/// Lets messages go to NCCL from now on.
pub fn set(logger: Option<Logger>) {
    *LOGGER.write().unwrap_or_else(PoisonError::into_inner) = logger;
}

/// What `NCCL_DEBUG=INFO` shows.
pub fn info(text: &str) {
    write(INFO, INIT_AND_NET, text);
}

/// What `NCCL_DEBUG=WARN` shows.
pub fn warn(text: &str) {
    write(WARN, ALL, text);
}

fn write(level: c_int, subsystems: c_ulong, text: &str) {
    // Copied, so that no lock is held over the call.
    let Some(logger) = *LOGGER.read().unwrap_or_else(PoisonError::into_inner) else { return };
    let Ok(text) = CString::new(format!("NET/Causeway : {text}").replace('\0', " ")) else { return };
    // SAFETY: NCCL's logger, which takes a C format and its arguments; each text ends with a zero and outlives the call.
    unsafe { logger(level, subsystems, c"causeway".as_ptr(), 0, c"%s".as_ptr(), text.as_ptr()) };
}
