//! Results of functions, `cublasStatus_t`.

use core::ffi::{CStr, c_char};

/// `cublasStatus_t`, of what this library returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[must_use]
pub enum Status {
    /// `CUBLAS_STATUS_SUCCESS`
    Success = 0,
    /// `CUBLAS_STATUS_NOT_INITIALIZED`: no handle, or no driver.
    NotInitialized = 1,
    /// `CUBLAS_STATUS_ALLOC_FAILED`
    AllocFailed = 3,
    /// `CUBLAS_STATUS_INVALID_VALUE`
    InvalidValue = 7,
    /// `CUSPARSE_STATUS_ZERO_PIVOT`, of cuSPARSE alone.
    ZeroPivot = 9,
    /// `CUBLAS_STATUS_EXECUTION_FAILED`: the driver did not take the kernel.
    ExecutionFailed = 13,
    /// `CUBLAS_STATUS_NOT_SUPPORTED`
    NotSupported = 15,
}

/// The result of a function's body.
pub type Done = Result<(), Status>;

/// Writes a value where a caller wants it.
///
/// # Safety
/// The pointer is null or leads to a value.
pub unsafe fn write_value<T>(to: *mut T, value: T) -> Done {
    if to.is_null() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: `to` is not null, so the caller has room for the value there.
    unsafe { to.write(value) };
    Ok(())
}

impl From<Done> for Status {
    fn from(done: Done) -> Self {
        done.err().unwrap_or(Self::Success)
    }
}

/// Name and description of each status that the interface has.
const TEXTS: [(u32, &CStr, &CStr); 10] = [
    (0, c"CUBLAS_STATUS_SUCCESS", c"success"),
    (1, c"CUBLAS_STATUS_NOT_INITIALIZED", c"the library was not initialized"),
    (3, c"CUBLAS_STATUS_ALLOC_FAILED", c"memory could not be allocated"),
    (7, c"CUBLAS_STATUS_INVALID_VALUE", c"an argument has an invalid value"),
    (8, c"CUBLAS_STATUS_ARCH_MISMATCH", c"the device lacks a feature that is needed"),
    (11, c"CUBLAS_STATUS_MAPPING_ERROR", c"GPU memory could not be accessed"),
    (13, c"CUBLAS_STATUS_EXECUTION_FAILED", c"the kernel could not be executed"),
    (14, c"CUBLAS_STATUS_INTERNAL_ERROR", c"an internal operation failed"),
    (15, c"CUBLAS_STATUS_NOT_SUPPORTED", c"the function is not supported on software GPUs"),
    (16, c"CUBLAS_STATUS_LICENSE_ERROR", c"the license could not be checked"),
];

fn text(status: u32) -> Option<&'static (u32, &'static CStr, &'static CStr)> {
    TEXTS.iter().find(|(number, ..)| *number == status)
}

/// The name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusName(status: u32) -> *const c_char {
    text(status).map_or(c"CUBLAS_STATUS_UNKNOWN", |(_, name, _)| name).as_ptr()
}

/// The description of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetStatusString(status: u32) -> *const c_char {
    text(status).map_or(c"unknown status", |(.., description)| description).as_ptr()
}

/// As `cublasGetStatusName`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusName(status: u32) -> *const c_char {
    cublasGetStatusName(status)
}

/// As `cublasGetStatusString`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusString(status: u32) -> *const c_char {
    cublasGetStatusString(status)
}
