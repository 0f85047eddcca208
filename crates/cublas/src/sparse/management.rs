//! Handles and versions. Handles are those of cuBLAS: a stream and where factors are is all they have.

use core::ffi::c_int;

use super::status::sparse_functions;
use crate::handle::Handle;
use crate::status::{Status, write_value};

/// The version that is reported: that of CUDA 13.0.
const VERSION: [c_int; 3] = [12, 6, 3];

sparse_functions! {
    /// Makes a handle, and a context if there is none.
    fn cusparseCreate(handle: *mut *mut Handle) { Handle::create(handle) }

    /// Ends a handle.
    fn cusparseDestroy(handle: *mut Handle) { Handle::destroy(handle) }

    /// Sets the stream of later calls.
    fn cusparseSetStream(handle: *const Handle, stream: usize) {
        Handle::change(handle, |settings| settings.stream = stream)
    }

    /// The stream of later calls.
    fn cusparseGetStream(handle: *const Handle, stream: *mut usize) {
        write_value(stream, Handle::settings(handle)?.stream)
    }

    /// Sets whether factors and results are in host memory (0) or device memory (1).
    fn cusparseSetPointerMode(handle: *const Handle, mode: u32) {
        if mode > 1 {
            return Err(Status::InvalidValue);
        }
        Handle::change(handle, |settings| settings.is_device_mode = mode == 1)
    }

    /// Whether factors and results are in host memory (0) or device memory (1).
    fn cusparseGetPointerMode(handle: *const Handle, mode: *mut u32) {
        write_value(mode, Handle::settings(handle)?.is_device_mode.into())
    }

    /// The version.
    fn cusparseGetVersion(handle: *const Handle, version: *mut c_int) {
        Handle::settings(handle)?;
        write_value(version, VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2])
    }

    /// A part of the version: `libraryPropertyType`.
    fn cusparseGetProperty(property: u32, value: *mut c_int) {
        write_value(value, *VERSION.get(property as usize).ok_or(Status::InvalidValue)?)
    }
}
