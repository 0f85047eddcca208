//! The driver's calls that a team needs, found in the library that the program has loaded. None of those that
//! a lane makes waits for a kernel.
//!
//! The current context of a thread is set for them, and restored.

use core::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::cuda::{CudaError, Library, entry_points};
use crate::device::gpu::GpuError;

entry_points! {
    /// The calls, as in every driver since CUDA 11.7.
    pub(super) struct Calls {
        current_context: c"cuCtxGetCurrent" (context: *mut *mut c_void);
        set_context: c"cuCtxSetCurrent" (context: *mut c_void);
        push_context: c"cuCtxPushCurrent_v2" (context: *mut c_void);
        pop_context: c"cuCtxPopCurrent_v2" (context: *mut *mut c_void);
        context_device: c"cuCtxGetDevice" (device: *mut c_int);
        retain_primary: c"cuDevicePrimaryCtxRetain" (context: *mut *mut c_void, device: c_int);
        device_attribute: c"cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: c_int);
        occupancy: c"cuOccupancyMaxActiveBlocksPerMultiprocessor" (
            blocks: *mut c_int, function: *mut c_void, threads: c_int, shared_bytes: usize
        );
        priorities: c"cuCtxGetStreamPriorityRange" (min: *mut c_int, greatest: *mut c_int);
        create_stream: c"cuStreamCreateWithPriority" (
            stream: *mut *mut c_void, flags: c_uint, priority: c_int
        );
        destroy_stream: c"cuStreamDestroy_v2" (stream: *mut c_void);
        synchronize: c"cuStreamSynchronize" (stream: *mut c_void);
        copy: c"cuMemcpyAsync" (to: u64, from: u64, bytes: usize, stream: *mut c_void);
        fill: c"cuMemsetD8Async" (to: u64, value: u8, bytes: usize, stream: *mut c_void);
        write_value: c"cuStreamWriteValue64_v2" (stream: *mut c_void, to: u64, value: u64, flags: c_uint);
        allocate_host: c"cuMemHostAlloc" (memory: *mut *mut c_void, bytes: usize, flags: c_uint);
        free_host: c"cuMemFreeHost" (memory: *mut c_void);
        register_host: c"cuMemHostRegister_v2" (memory: *mut c_void, bytes: usize, flags: c_uint);
        unregister_host: c"cuMemHostUnregister" (memory: *mut c_void);
        device_pointer: c"cuMemHostGetDevicePointer_v2" (
            address: *mut u64, memory: *mut c_void, flags: c_uint
        );
    }
}

impl Calls {
    /// Those of the driver that the program has loaded, if it has.
    pub(super) fn loaded() -> Option<&'static Self> {
        static CALLS: OnceLock<Calls> = OnceLock::new();
        if let Some(calls) = CALLS.get() {
            return Some(calls);
        }
        Self::load(Library::loaded_driver()?).ok().map(|calls| CALLS.get_or_init(|| calls))
    }
}

/// An error of the driver with what was to be done.
pub(super) fn check(what: &str, result: Result<(), CudaError>) -> Result<(), GpuError> {
    let failed = |CudaError { code, .. }| GpuError {
        what: what.to_owned(),
        cause: format!("the driver says CUDA error {code}"),
    };
    result.map_err(failed)
}

/// Makes a context the calling thread's, for as long as this lives.
pub(super) struct Entered(&'static Calls);

impl Entered {
    /// Enters it.
    pub(super) fn new(calls: &'static Calls, context: u64) -> Result<Self, GpuError> {
        // SAFETY: the context was current once, or is a device's primary one that was retained.
        check("a context", unsafe { calls.push_context(context as *mut c_void) })?;
        Ok(Self(calls))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the context, which this has pushed.
        let _ = unsafe { self.0.pop_context(&raw mut context) };
    }
}
