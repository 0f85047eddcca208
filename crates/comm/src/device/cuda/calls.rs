//! The driver's calls that a team needs, found in the library that the program has loaded. None of those that
//! a lane makes waits for a kernel.

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
