//! The entry points of the driver that are used, found in the library that the program has loaded.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::NonNull;
use std::sync::OnceLock;

use causeway_api::sys::{CUDA_MEMCPY2D, CUipcMemHandle, CUmemAccessDesc, CUmemAllocationProp};

use super::entry_points::Library;
use super::lookup::Lookup;
use crate::entry_points;

entry_points! {
    /// The driver's functions, as in drivers since CUDA 11.4. Those after `optional` are not in every one, such as those of
    /// GPUs without virtual memory management: what needs them is refused there, as where they are and cannot do it, and
    /// what is not known to be idle is waited for.
    pub struct Driver {
        pointer_attribute: c"cuPointerGetAttribute" (value: *mut c_void, attribute: c_int, address: u64);
        pointer_attributes: c"cuPointerGetAttributes" (
            count: c_uint, attributes: *const c_int, values: *mut *mut c_void, address: u64
        );
        set_pointer_attribute: c"cuPointerSetAttribute" (
            value: *const c_void, attribute: c_int, address: u64
        );
        push_context: c"cuCtxPushCurrent_v2" (context: *mut c_void);
        pop_context: c"cuCtxPopCurrent_v2" (context: *mut *mut c_void);
        current_context: c"cuCtxGetCurrent" (context: *mut *mut c_void);
        context_device: c"cuCtxGetDevice" (device: *mut c_int);
        retain_primary: c"cuDevicePrimaryCtxRetain" (context: *mut *mut c_void, device: c_int);
        device_count: c"cuDeviceGetCount" (count: *mut c_int);
        device_attribute: c"cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: c_int);
        device_uuid: c"cuDeviceGetUuid" (uuid: *mut [u8; 16], device: c_int);
        device_name: c"cuDeviceGetName" (name: *mut c_char, length: c_int, device: c_int);
        exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode" (mode: *mut c_int);
        stream_priorities: c"cuCtxGetStreamPriorityRange" (min: *mut c_int, greatest: *mut c_int);
        create_stream: c"cuStreamCreateWithPriority" (
            stream: *mut *mut c_void, flags: c_uint, priority: c_int
        );
        synchronize_stream: c"cuStreamSynchronize" (stream: *mut c_void);
        stream_is_capturing: c"cuStreamIsCapturing" (stream: *mut c_void, is_capturing: *mut c_int);
        create_event: c"cuEventCreate" (event: *mut *mut c_void, flags: c_uint);
        record_event: c"cuEventRecord" (event: *mut c_void, stream: *mut c_void);
        query_event: c"cuEventQuery" (event: *mut c_void);
        synchronize_event: c"cuEventSynchronize" (event: *mut c_void);
        destroy_event: c"cuEventDestroy_v2" (event: *mut c_void);
        allocate_host: c"cuMemHostAlloc" (memory: *mut *mut c_void, bytes: usize, flags: c_uint);
        free_host: c"cuMemFreeHost" (memory: *mut c_void);
        copy_async: c"cuMemcpyAsync" (to: u64, from: u64, bytes: usize, stream: *mut c_void);
    } optional {
        can_access_peer: c"cuDeviceCanAccessPeer" (can_access: *mut c_int, device: c_int, peer: c_int);
        peer_attribute: c"cuDeviceGetP2PAttribute" (
            value: *mut c_int, attribute: c_int, device: c_int, peer: c_int
        );
        query_stream: c"cuStreamQuery" (stream: *mut c_void);
        stream_context: c"cuStreamGetCtx" (stream: *mut c_void, context: *mut *mut c_void);
        register_host: c"cuMemHostRegister_v2" (memory: *mut c_void, bytes: usize, flags: c_uint);
        unregister_host: c"cuMemHostUnregister" (memory: *mut c_void);
        load_module: c"cuModuleLoadData" (module: *mut *mut c_void, image: *const c_void);
        find_function: c"cuModuleGetFunction" (
            function: *mut *mut c_void, module: *mut c_void, name: *const c_char
        );
        launch: c"cuLaunchKernel" (
            function: *mut c_void, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
            block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: *mut c_void,
            parameters: *mut *mut c_void, extra: *mut *mut c_void
        );
        get_ipc_handle: c"cuIpcGetMemHandle" (handle: *mut CUipcMemHandle, address: u64);
        open_ipc_handle: c"cuIpcOpenMemHandle_v2" (address: *mut u64, handle: CUipcMemHandle, flags: c_uint);
        close_ipc_handle: c"cuIpcCloseMemHandle" (address: u64);
        create_context: c"cuCtxCreate_v2" (context: *mut *mut c_void, flags: c_uint, device: c_int);
        copy_plane_async: c"cuMemcpy2DAsync_v2" (copy: *const CUDA_MEMCPY2D, stream: *mut c_void);
        create_memory: c"cuMemCreate" (
            allocation: *mut u64, bytes: usize, properties: *const CUmemAllocationProp, flags: u64
        );
        retain_memory: c"cuMemRetainAllocationHandle" (allocation: *mut u64, address: u64);
        release_memory: c"cuMemRelease" (allocation: u64);
        export_memory: c"cuMemExportToShareableHandle" (
            descriptor: *mut c_int, allocation: u64, handle_type: c_int, flags: u64
        );
        import_memory: c"cuMemImportFromShareableHandle" (
            allocation: *mut u64, descriptor: *mut c_void, handle_type: c_int
        );
        granularity: c"cuMemGetAllocationGranularity" (
            granularity: *mut usize, properties: *const CUmemAllocationProp, option: c_int
        );
        reserve_addresses: c"cuMemAddressReserve" (
            address: *mut u64, bytes: usize, alignment: usize, hint: u64, flags: u64
        );
        free_addresses: c"cuMemAddressFree" (address: u64, bytes: usize);
        map_memory: c"cuMemMap" (address: u64, bytes: usize, offset: usize, allocation: u64, flags: u64);
        unmap_memory: c"cuMemUnmap" (address: u64, bytes: usize);
        set_access: c"cuMemSetAccess" (
            address: u64, bytes: usize, access: *const CUmemAccessDesc, count: usize
        );
    }
}

entry_points! {
    struct Start {
        init: c"cuInit" (flags: c_uint);
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
        Library::loaded_driver().is_some_and(|driver| *IS_REMOTE.get_or_init(|| driver.is_client()))
    }

    /// Whether kernels and the host can poll the same word of the host's memory: not where the GPUs are a server's with a
    /// mirror of it.
    pub fn shares_host_memory() -> bool {
        let Some(driver) = Library::loaded_driver().filter(|_| Self::is_remote()) else { return true };
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
        // SAFETY: what the driver does when it is loaded is its own affair, as in any program that links it.
        let library = unsafe { Library::open("libcuda.so.1") }.ok()?;
        let start = Start::load(library).ok()?;
        // SAFETY: it may be called at any time, with 0.
        unsafe { start.init(0) }.ok()?;
        Self::loaded()
    }

    /// The driver that the program has loaded, if it has.
    pub fn loaded() -> Option<&'static Self> {
        static DRIVER: Lookup<Driver> = Lookup::new();
        DRIVER.get(|| Self::load(Library::loaded_driver()?).ok())
    }
}
