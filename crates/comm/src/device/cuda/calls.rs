//! The driver's calls that a team needs, found in the library that the program has loaded. None of those that
//! a lane makes waits for a kernel.
//!
//! The current context of a thread is set for them, and restored.

use core::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::cuda::entry_points;
use crate::device::gpu::GpuError;

entry_points! {
    /// The calls, as in every driver since CUDA 11.7.
    pub(super) struct Calls {
        current_context: c"cuCtxGetCurrent" (*mut *mut c_void);
        set_context: c"cuCtxSetCurrent" (*mut c_void);
        push_context: c"cuCtxPushCurrent_v2" (*mut c_void);
        pop_context: c"cuCtxPopCurrent_v2" (*mut *mut c_void);
        context_device: c"cuCtxGetDevice" (*mut c_int);
        retain_primary: c"cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
        device_attribute: c"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
        occupancy: c"cuOccupancyMaxActiveBlocksPerMultiprocessor" (*mut c_int, *mut c_void, c_int, usize);
        priorities: c"cuCtxGetStreamPriorityRange" (*mut c_int, *mut c_int);
        create_stream: c"cuStreamCreateWithPriority" (*mut *mut c_void, c_uint, c_int);
        destroy_stream: c"cuStreamDestroy_v2" (*mut c_void);
        synchronize: c"cuStreamSynchronize" (*mut c_void);
        copy: c"cuMemcpyAsync" (u64, u64, usize, *mut c_void);
        fill: c"cuMemsetD8Async" (u64, u8, usize, *mut c_void);
        write_value: c"cuStreamWriteValue64_v2" (*mut c_void, u64, u64, c_uint);
        allocate_host: c"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        free_host: c"cuMemFreeHost" (*mut c_void);
        register_host: c"cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
        unregister_host: c"cuMemHostUnregister" (*mut c_void);
        device_pointer: c"cuMemHostGetDevicePointer_v2" (*mut u64, *mut c_void, c_uint);
    }
}

impl Calls {
    /// Those of the driver that the program has loaded, if it has.
    pub(super) fn loaded() -> Option<&'static Self> {
        static CALLS: OnceLock<Calls> = OnceLock::new();
        if let Some(calls) = CALLS.get() {
            return Some(calls);
        }
        Self::load().map(|calls| CALLS.get_or_init(|| calls))
    }
}

/// A status as a result.
pub(super) fn check(what: &str, code: c_int) -> Result<(), GpuError> {
    if code == 0 {
        return Ok(());
    }
    Err(GpuError { what: what.to_owned(), cause: format!("the driver says CUDA error {code}") })
}

/// Makes a context the calling thread's, for as long as this lives.
pub(super) struct Entered(&'static Calls);

impl Entered {
    /// Enters it.
    pub(super) fn new(calls: &'static Calls, context: u64) -> Result<Self, GpuError> {
        // SAFETY: the context was current once, or is a device's primary one that was retained.
        check("a context", unsafe { (calls.push_context)(context as *mut c_void) })?;
        Ok(Self(calls))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the context, which this has pushed.
        unsafe { (self.0.pop_context)(&raw mut context) };
    }
}
