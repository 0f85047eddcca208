//! Results of functions, `cusparseStatus_t`.

use core::ffi::{CStr, c_char};

use crate::exports::number;
use crate::status::Done;

/// `CUSPARSE_STATUS_NOT_SUPPORTED`
pub const NOT_SUPPORTED: u32 = 10;

/// Name and description of each status, by its number.
const TEXTS: [(&CStr, &CStr); 12] = [
    (c"CUSPARSE_STATUS_SUCCESS", c"success"),
    (c"CUSPARSE_STATUS_NOT_INITIALIZED", c"the library was not initialized"),
    (c"CUSPARSE_STATUS_ALLOC_FAILED", c"memory could not be allocated"),
    (c"CUSPARSE_STATUS_INVALID_VALUE", c"an argument has an invalid value"),
    (c"CUSPARSE_STATUS_ARCH_MISMATCH", c"the device lacks a feature that is needed"),
    (c"CUSPARSE_STATUS_MAPPING_ERROR", c"GPU memory could not be accessed"),
    (c"CUSPARSE_STATUS_EXECUTION_FAILED", c"the kernel could not be executed"),
    (c"CUSPARSE_STATUS_INTERNAL_ERROR", c"an internal operation failed"),
    (c"CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED", c"the matrix's type is not supported"),
    (c"CUSPARSE_STATUS_ZERO_PIVOT", c"a pivot is zero"),
    (c"CUSPARSE_STATUS_NOT_SUPPORTED", c"the operation is not supported on software GPUs"),
    (c"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", c"the resources do not suffice"),
];

/// The result of a function's body as cuSPARSE has it; what is refused is logged by its name.
pub fn status(function: &'static str, done: Done) -> u32 {
    number(function, done, NOT_SUPPORTED, "these types, sizes or operations are not implemented")
}

/// The name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorName(status: u32) -> *const c_char {
    TEXTS.get(status as usize).map_or(c"unknown status", |(name, _)| name).as_ptr()
}

/// The description of a status.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseGetErrorString(status: u32) -> *const c_char {
    TEXTS.get(status as usize).map_or(c"unknown status", |(_, description)| description).as_ptr()
}

/// Exports functions whose body is a result.
macro_rules! sparse_functions {
    ($($all:tt)*) => { crate::exports::functions_with! { crate::sparse::status::status, $($all)* } };
}

pub(crate) use sparse_functions;
