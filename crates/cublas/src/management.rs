//! Handles and settings: creation, stream, modes, versions; copies between host and device memory.

use core::ffi::{c_int, c_void};

use causeway_api::sys::{CUDA_MEMCPY2D, CUmemorytype};

use crate::driver;
use crate::exports::functions;
use crate::handle::{Handle, Settings};
use crate::status::{Done, Status, write_value};

/// The version that is reported, to programs of CUDA 12 as well: some refuse one that is older than their own.
const VERSION: [c_int; 3] = [13, 0, 0];
const VERSION_NUMBER: c_int = VERSION[0] * 10000 + VERSION[1] * 100 + VERSION[2];
/// The runtime of that version.
const RUNTIME_VERSION: usize = 13000;

unsafe fn get<T>(handle: *const Handle, to: *mut T, value: impl FnOnce(&Settings) -> T) -> Done {
    // SAFETY: the caller's handle is null or valid, and `to` is null or has room for the value.
    unsafe { write_value(to, value(&Handle::settings(handle)?)) }
}

functions! {
    /// Makes a handle, and a context if there is none.
    fn cublasCreate_v2(handle: *mut *mut Handle) { Handle::create(handle) }

    /// Ends a handle.
    fn cublasDestroy_v2(handle: *mut Handle) { Handle::destroy(handle) }

    /// Sets the stream of later calls.
    fn cublasSetStream_v2(handle: *const Handle, stream: usize) {
        Handle::change(handle, |settings| settings.stream = stream)
    }

    /// The stream of later calls.
    fn cublasGetStream_v2(handle: *const Handle, stream: *mut usize) {
        get(handle, stream, |settings| settings.stream)
    }

    /// Takes memory for intermediate results, of which there are none.
    fn cublasSetWorkspace_v2(handle: *const Handle, _workspace: *mut c_void, _size: usize) {
        Handle::settings(handle).map(drop)
    }

    /// Sets whether factors and results are in host memory (0) or device memory (1).
    fn cublasSetPointerMode_v2(handle: *const Handle, mode: u32) {
        if mode > 1 {
            return Err(Status::InvalidValue);
        }
        Handle::change(handle, |settings| settings.is_device_mode = mode == 1)
    }

    /// Whether factors and results are in host memory (0) or device memory (1).
    fn cublasGetPointerMode_v2(handle: *const Handle, mode: *mut u32) {
        get(handle, mode, |settings| settings.is_device_mode.into())
    }

    /// Sets the math mode. All compute the same.
    fn cublasSetMathMode(handle: *const Handle, mode: u32) {
        Handle::change(handle, |settings| settings.math_mode = mode)
    }

    /// The math mode.
    fn cublasGetMathMode(handle: *const Handle, mode: *mut u32) {
        get(handle, mode, |settings| settings.math_mode)
    }

    /// Sets whether results may differ from call to call. They do not.
    fn cublasSetAtomicsMode(handle: *const Handle, mode: u32) {
        Handle::change(handle, |settings| settings.atomics_mode = mode)
    }

    /// Whether results may differ from call to call.
    fn cublasGetAtomicsMode(handle: *const Handle, mode: *mut u32) {
        get(handle, mode, |settings| settings.atomics_mode)
    }

    /// Sets for how many multiprocessors products are made. All are used.
    fn cublasSetSmCountTarget(handle: *const Handle, count: c_int) {
        Handle::change(handle, |settings| settings.sm_count_target = count)
    }

    /// For how many multiprocessors products are made.
    fn cublasGetSmCountTarget(handle: *const Handle, count: *mut c_int) {
        get(handle, count, |settings| settings.sm_count_target)
    }

    /// The version.
    fn cublasGetVersion_v2(_handle: *const Handle, version: *mut c_int) { write_value(version, VERSION_NUMBER) }

    /// A part of the version: `libraryPropertyType`.
    fn cublasGetProperty(property: u32, value: *mut c_int) {
        write_value(value, *VERSION.get(property as usize).ok_or(Status::InvalidValue)?)
    }

    /// As `cublasGetProperty`.
    fn cublasLtGetProperty(property: u32, value: *mut c_int) {
        write_value(value, *VERSION.get(property as usize).ok_or(Status::InvalidValue)?)
    }

    /// Sets what is logged. Nothing is.
    fn cublasLoggerConfigure(_is_on: c_int, _out: c_int, _err: c_int, _file: *const c_void) { Ok(()) }

    /// Sets the callback of the log, which is never called.
    fn cublasSetLoggerCallback(_callback: *const c_void) { Ok(()) }

    /// The callback of the log: none.
    fn cublasGetLoggerCallback(callback: *mut *const c_void) { write_value(callback, core::ptr::null()) }

    /// Copies a vector from host to device memory.
    fn cublasSetVector(n: c_int, size: c_int, x: *const u8, incx: c_int, y: *mut u8, incy: c_int) {
        copy(vector(n, size, incx, incy), End::Host(x), End::Device(y.cast_const()), None)
    }

    /// Copies a vector from device to host memory.
    fn cublasGetVector(n: c_int, size: c_int, x: *const u8, incx: c_int, y: *mut u8, incy: c_int) {
        copy(vector(n, size, incx, incy), End::Device(x), End::Host(y.cast_const()), None)
    }

    /// Copies a vector from host to device memory, in a stream.
    fn cublasSetVectorAsync(
        n: c_int, size: c_int, x: *const u8, incx: c_int, y: *mut u8, incy: c_int, stream: usize
    ) {
        copy(vector(n, size, incx, incy), End::Host(x), End::Device(y.cast_const()), Some(stream))
    }

    /// Copies a vector from device to host memory, in a stream.
    fn cublasGetVectorAsync(
        n: c_int, size: c_int, x: *const u8, incx: c_int, y: *mut u8, incy: c_int, stream: usize
    ) {
        copy(vector(n, size, incx, incy), End::Device(x), End::Host(y.cast_const()), Some(stream))
    }

    /// Copies a matrix from host to device memory.
    fn cublasSetMatrix(
        rows: c_int, columns: c_int, size: c_int, a: *const u8, lda: c_int, b: *mut u8, ldb: c_int
    ) {
        copy([rows, columns, size, lda, ldb], End::Host(a), End::Device(b.cast_const()), None)
    }

    /// Copies a matrix from device to host memory.
    fn cublasGetMatrix(
        rows: c_int, columns: c_int, size: c_int, a: *const u8, lda: c_int, b: *mut u8, ldb: c_int
    ) {
        copy([rows, columns, size, lda, ldb], End::Device(a), End::Host(b.cast_const()), None)
    }

    /// Copies a matrix from host to device memory, in a stream.
    fn cublasSetMatrixAsync(
        rows: c_int, columns: c_int, size: c_int, a: *const u8, lda: c_int, b: *mut u8, ldb: c_int,
        stream: usize
    ) {
        copy([rows, columns, size, lda, ldb], End::Host(a), End::Device(b.cast_const()), Some(stream))
    }

    /// Copies a matrix from device to host memory, in a stream.
    fn cublasGetMatrixAsync(
        rows: c_int, columns: c_int, size: c_int, a: *const u8, lda: c_int, b: *mut u8, ldb: c_int,
        stream: usize
    ) {
        copy([rows, columns, size, lda, ldb], End::Device(a), End::Host(b.cast_const()), Some(stream))
    }
}

/// The version of the CUDA runtime that the library is for.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGetCudartVersion() -> usize {
    RUNTIME_VERSION
}

/// As `cublasGetCudartVersion`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetCudartVersion() -> usize {
    RUNTIME_VERSION
}

/// The version.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    VERSION_NUMBER.unsigned_abs() as usize
}

/// One end of a copy.
enum End {
    Host(*const u8),
    Device(*const u8),
}

/// A vector as a matrix of one row.
fn vector(n: c_int, size: c_int, incx: c_int, incy: c_int) -> [c_int; 5] {
    [1, n, size, incx, incy]
}

/// Copies `[rows, columns, bytes of an element, source's leading dimension, destination's]`; waits without a
/// stream.
///
/// # Safety
/// The memory is there.
unsafe fn copy(
    [rows, columns, size, from, to]: [c_int; 5],
    source: End,
    destination: End,
    stream: Option<usize>,
) -> Done {
    if rows < 0 || columns < 0 || size <= 0 || from <= 0 || to <= 0 || rows > from || rows > to {
        return Err(Status::InvalidValue);
    }
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let bytes = |elements: c_int| elements.unsigned_abs() as usize * size.unsigned_abs() as usize;
    let address = |end| match end {
        End::Host(address) => (CUmemorytype::CU_MEMORYTYPE_HOST, address as usize, 0),
        End::Device(address) => (CUmemorytype::CU_MEMORYTYPE_DEVICE, 0, address as u64),
    };
    let (source_type, source_host, source_device) = address(source);
    let (destination_type, destination_host, destination_device) = address(destination);
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: source_type,
        srcHost: source_host as *const _,
        srcDevice: source_device,
        srcPitch: bytes(from),
        dstMemoryType: destination_type,
        dstHost: destination_host as *mut _,
        dstDevice: destination_device,
        dstPitch: bytes(to),
        WidthInBytes: bytes(rows),
        Height: columns.unsigned_abs() as usize,
        ..CUDA_MEMCPY2D::default()
    };
    let functions = driver::functions()?;
    functions.have_context()?;
    // SAFETY: the caller has host memory of this size until the copy has ended, which is waited for where
    // there is no stream.
    unsafe { functions.copy(&copy, stream.unwrap_or(0), stream.is_none()) }
}
