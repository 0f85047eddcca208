//! The entry points of the driver that are used, found in the library that the program has loaded.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::NonNull;
use std::sync::OnceLock;

use super::entry_points::LoadedDriver;
use super::error::CudaError;
use super::lookup::Lookup;
use crate::entry_points;

/// `CUmemLocation` and `CUmemAccessDesc` as the driver lays them out.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct AccessDescriptor {
    pub(super) location_type: c_int,
    pub(super) location_id: c_int,
    pub(super) flags: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct AllocationProperties {
    pub(super) allocation_type: c_int,
    pub(super) handle_types: c_int,
    pub(super) location_type: c_int,
    pub(super) location_id: c_int,
    pub(super) security: *mut c_void,
    pub(super) compression: u8,
    pub(super) gpudirect: u8,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 4],
}

const _: () = assert!(size_of::<AllocationProperties>() == 32 && size_of::<AccessDescriptor>() == 12);

/// One side of a [`PlaneCopy`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Plane {
    x: usize,
    y: usize,
    memory_type: c_uint,
    host: *mut c_void,
    device: u64,
    array: *mut c_void,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaneCopy {
    from: Plane,
    to: Plane,
    row_bytes: usize,
    rows: usize,
}

impl PlaneCopy {
    /// Rows that lie one behind the other at both sides.
    pub(super) fn rows(memory_type: c_uint, to: u64, from: u64, row_bytes: usize, rows: usize) -> Self {
        let null = core::ptr::null_mut();
        let side =
            |device| Plane { x: 0, y: 0, memory_type, host: null, device, array: null, pitch: row_bytes };
        Self { from: side(from), to: side(to), row_bytes, rows }
    }
}

const _: () = assert!(size_of::<PlaneCopy>() == 128);

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct IpcHandle(pub(super) [c_char; 64]);

entry_points! {
    /// The driver's functions, as in drivers since CUDA 11.4. Those after `optional` are not in every one, such as those of
    /// GPUs without virtual memory management: what needs them is refused there, as where they are and cannot do it, and
    /// what is not known to be idle is waited for.
    pub struct Driver {
        pointer_attribute: c"cuPointerGetAttribute" (*mut c_void, c_int, u64);
        pointer_attributes: c"cuPointerGetAttributes" (c_uint, *const c_int, *mut *mut c_void, u64);
        set_pointer_attribute: c"cuPointerSetAttribute" (*const c_void, c_int, u64);
        push_context: c"cuCtxPushCurrent_v2" (*mut c_void);
        pop_context: c"cuCtxPopCurrent_v2" (*mut *mut c_void);
        current_context: c"cuCtxGetCurrent" (*mut *mut c_void);
        context_device: c"cuCtxGetDevice" (*mut c_int);
        retain_primary: c"cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
        device_count: c"cuDeviceGetCount" (*mut c_int);
        device_attribute: c"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
        device_uuid: c"cuDeviceGetUuid" (*mut [u8; 16], c_int);
        device_name: c"cuDeviceGetName" (*mut c_char, c_int, c_int);
        exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode" (*mut c_int);
        stream_priorities: c"cuCtxGetStreamPriorityRange" (*mut c_int, *mut c_int);
        create_stream: c"cuStreamCreateWithPriority" (*mut *mut c_void, c_uint, c_int);
        synchronize_stream: c"cuStreamSynchronize" (*mut c_void);
        stream_is_capturing: c"cuStreamIsCapturing" (*mut c_void, *mut c_int);
        create_event: c"cuEventCreate" (*mut *mut c_void, c_uint);
        record_event: c"cuEventRecord" (*mut c_void, *mut c_void);
        query_event: c"cuEventQuery" (*mut c_void);
        synchronize_event: c"cuEventSynchronize" (*mut c_void);
        destroy_event: c"cuEventDestroy_v2" (*mut c_void);
        allocate_host: c"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        free_host: c"cuMemFreeHost" (*mut c_void);
        copy_async: c"cuMemcpyAsync" (u64, u64, usize, *mut c_void);
    } optional {
        can_access_peer: c"cuDeviceCanAccessPeer" (*mut c_int, c_int, c_int);
        peer_attribute: c"cuDeviceGetP2PAttribute" (*mut c_int, c_int, c_int, c_int);
        query_stream: c"cuStreamQuery" (*mut c_void);
        stream_context: c"cuStreamGetCtx" (*mut c_void, *mut *mut c_void);
        register_host: c"cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
        unregister_host: c"cuMemHostUnregister" (*mut c_void);
        load_module: c"cuModuleLoadData" (*mut *mut c_void, *const c_void);
        find_function: c"cuModuleGetFunction" (*mut *mut c_void, *mut c_void, *const c_char);
        launch: c"cuLaunchKernel" (
            *mut c_void,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            *mut c_void,
            *mut *mut c_void,
            *mut *mut c_void
        );
        get_ipc_handle: c"cuIpcGetMemHandle" (*mut IpcHandle, u64);
        open_ipc_handle: c"cuIpcOpenMemHandle_v2" (*mut u64, IpcHandle, c_uint);
        close_ipc_handle: c"cuIpcCloseMemHandle" (u64);
        create_context: c"cuCtxCreate_v2" (*mut *mut c_void, c_uint, c_int);
        copy_plane_async: c"cuMemcpy2DAsync_v2" (*const PlaneCopy, *mut c_void);
        create_memory: c"cuMemCreate" (*mut u64, usize, *const AllocationProperties, u64);
        retain_memory: c"cuMemRetainAllocationHandle" (*mut u64, u64);
        release_memory: c"cuMemRelease" (u64);
        export_memory: c"cuMemExportToShareableHandle" (*mut c_int, u64, c_int, u64);
        import_memory: c"cuMemImportFromShareableHandle" (*mut u64, *mut c_void, c_int);
        granularity: c"cuMemGetAllocationGranularity" (*mut usize, *const AllocationProperties, c_int);
        reserve_addresses: c"cuMemAddressReserve" (*mut u64, usize, usize, u64, u64);
        free_addresses: c"cuMemAddressFree" (u64, usize);
        map_memory: c"cuMemMap" (u64, usize, usize, u64, u64);
        unmap_memory: c"cuMemUnmap" (u64, usize);
        set_access: c"cuMemSetAccess" (u64, usize, *const AccessDescriptor, usize);
    }
}

impl Driver {
    /// Whether its calls are carried to a server: then it is Causeway's client library. The library itself is
    /// asked, which a program may have loaded for itself alone, as CUDA's runtime and Python do.
    pub fn is_remote() -> bool {
        static IS_REMOTE: OnceLock<bool> = OnceLock::new();
        if let Some(known) = IS_REMOTE.get() {
            return *known;
        }
        LoadedDriver::find().is_some_and(|driver| {
            *IS_REMOTE.get_or_init(|| driver.function(c"causeway_client_marker").is_some())
        })
    }

    /// Whether kernels and the host can poll the same word of the host's memory: not where the GPUs are a server's with a
    /// mirror of it.
    pub fn shares_host_memory() -> bool {
        let Some(driver) = LoadedDriver::find().filter(|_| Self::is_remote()) else { return true };
        // Older client libraries do not say.
        let Some(address) = driver.function(c"causeway_client_shares_memory") else { return true };
        // SAFETY: the client library's function of this name takes nothing and returns a number.
        let shares =
            unsafe { core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> c_int>(address) };
        // SAFETY: it may be called at any time.
        unsafe { shares() != 0 }
    }

    /// The driver, which this process loads and starts by itself; none where there is none, or it does not
    /// start.
    pub fn started() -> Option<&'static Self> {
        // SAFETY: the name ends with a zero; what the driver does when it is loaded is its own affair, as in
        // any program that links it.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let address = LoadedDriver::find()?.function(c"cuInit")?;
        // SAFETY: a function of this name in a library of the driver's name takes flags and returns a status.
        let init = unsafe {
            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(c_uint) -> c_int>(address)
        };
        // SAFETY: it may be called at any time, with 0.
        let status = unsafe { init(0) };
        if status == 0 { Self::loaded() } else { None }
    }

    /// The driver that the program has loaded, if it has.
    pub fn loaded() -> Option<&'static Self> {
        static DRIVER: Lookup<Driver> = Lookup::new();
        DRIVER.get(Self::load)
    }
}

/// A status as a result.
pub(super) fn check(call: &'static str, code: c_int) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError { call, code }) }
}
