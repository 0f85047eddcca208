//! Handles, parameters and versions. Handles are those of cuBLAS: a stream is all they have.

use core::ffi::{c_int, c_void};

use super::status::solver_functions;
use crate::handle::Handle;
use crate::status::{Done, Status, write_value};

/// The version that is reported: that of CUDA 13.0.
const VERSION: [c_int; 3] = [12, 0, 0];

/// What handles of parameters point at: nothing depends on them.
static PARAMETERS: u64 = 0;

unsafe fn write_parameters(to: *mut *const c_void) -> Done {
    // SAFETY: `to` is null or has room for a pointer, since a program passes it where cuSOLVER writes one.
    unsafe { write_value(to, (&raw const PARAMETERS).cast()) }
}

solver_functions! {
    /// Makes a handle, and a context if there is none.
    fn cusolverDnCreate(handle: *mut *mut Handle) { Handle::create(handle) }

    /// Ends a handle.
    fn cusolverDnDestroy(handle: *mut Handle) { Handle::destroy(handle) }

    /// Sets the stream of later calls.
    fn cusolverDnSetStream(handle: *const Handle, stream: usize) {
        Handle::change(handle, |settings| settings.stream = stream)
    }

    /// The stream of later calls.
    fn cusolverDnGetStream(handle: *const Handle, stream: *mut usize) {
        write_value(stream, Handle::settings(handle)?.stream)
    }

    /// Makes a handle for sparse matrices, and a context if there is none.
    fn cusolverSpCreate(handle: *mut *mut Handle) { Handle::create(handle) }

    /// Ends a handle.
    fn cusolverSpDestroy(handle: *mut Handle) { Handle::destroy(handle) }

    /// Sets the stream of later calls.
    fn cusolverSpSetStream(handle: *const Handle, stream: usize) {
        Handle::change(handle, |settings| settings.stream = stream)
    }

    /// The stream of later calls.
    fn cusolverSpGetStream(handle: *const Handle, stream: *mut usize) {
        write_value(stream, Handle::settings(handle)?.stream)
    }

    /// The version.
    fn cusolverGetVersion(version: *mut c_int) {
        write_value(version, VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2])
    }

    /// A part of the version: `libraryPropertyType`.
    fn cusolverGetProperty(property: u32, value: *mut c_int) {
        write_value(value, *VERSION.get(property as usize).ok_or(Status::InvalidValue)?)
    }

    /// Sets whether results may differ from call to call. They do not.
    fn cusolverDnSetDeterministicMode(handle: *const Handle, _mode: u32) { Handle::settings(handle).map(drop) }

    /// Whether results may differ from call to call: `CUSOLVER_DETERMINISTIC_RESULTS`.
    fn cusolverDnGetDeterministicMode(handle: *const Handle, mode: *mut u32) {
        Handle::settings(handle)?;
        write_value(mode, 1)
    }

    /// Makes parameters, on which nothing depends.
    fn cusolverDnCreateParams(to: *mut *const c_void) { write_parameters(to) }
    /// Ends parameters.
    fn cusolverDnDestroyParams(_parameters: *const c_void) { Ok(()) }
    /// Chooses an algorithm. There is one.
    fn cusolverDnSetAdvOptions(_parameters: *const c_void, _function: u32, _algorithm: u32) { Ok(()) }

    /// Makes parameters of `syevj`.
    fn cusolverDnCreateSyevjInfo(to: *mut *const c_void) { write_parameters(to) }
    /// Ends them.
    fn cusolverDnDestroySyevjInfo(_parameters: *const c_void) { Ok(()) }
    /// Sets the tolerance. All is as exact as it can be.
    fn cusolverDnXsyevjSetTolerance(_parameters: *const c_void, _tolerance: f64) { Ok(()) }
    /// Sets the number of rounds.
    fn cusolverDnXsyevjSetMaxSweeps(_parameters: *const c_void, _count: c_int) { Ok(()) }
    /// Sets whether values are sorted. They always are.
    fn cusolverDnXsyevjSetSortEig(_parameters: *const c_void, _sorts: c_int) { Ok(()) }

    /// Makes parameters of `gesvdj`.
    fn cusolverDnCreateGesvdjInfo(to: *mut *const c_void) { write_parameters(to) }
    /// Ends them.
    fn cusolverDnDestroyGesvdjInfo(_parameters: *const c_void) { Ok(()) }
    /// Sets the tolerance. All is as exact as it can be.
    fn cusolverDnXgesvdjSetTolerance(_parameters: *const c_void, _tolerance: f64) { Ok(()) }
    /// Sets the number of rounds.
    fn cusolverDnXgesvdjSetMaxSweeps(_parameters: *const c_void, _count: c_int) { Ok(()) }
    /// Sets whether values are sorted. They always are.
    fn cusolverDnXgesvdjSetSortEig(_parameters: *const c_void, _sorts: c_int) { Ok(()) }
}
