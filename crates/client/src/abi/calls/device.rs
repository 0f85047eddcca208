//! Devices, answered from the snapshot that the server sent when the session was opened.
//!
//! Peer access between devices.

use core::ffi::{c_char, c_void};

use causeway_api::calls;
use causeway_api::snapshot::Peer;
use causeway_api::sys::{
    CUatomicOperation, CUcontext, CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUdevprop,
    CUexecAffinityType, CUresult, CUuuid,
};

use crate::abi::entry::Outcome;
use crate::arguments::{list, store, write_optional, write_out};
use crate::model::device::{self, device};
use crate::model::{address, context};
use crate::remote::session;
use crate::submit::{send, virtual_memory};

pub unsafe fn cuDeviceGet(out: *mut CUdevice, ordinal: i32) -> Outcome {
    device(ordinal)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, ordinal) }
}

pub unsafe fn cuDeviceGetCount(count: *mut i32) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(count, device::all().len() as i32) }
}

pub unsafe fn cuDeviceGetName(name: *mut c_void, len: i32, dev: CUdevice) -> Outcome {
    // SAFETY: room for `len` bytes, or null.
    unsafe { write_text(name, len, &device(dev)?.info.name) }
}

/// Stores as much of `text` as there is room for, and a NUL.
///
/// # Safety
/// `out` is null or has room for `capacity` bytes.
pub unsafe fn write_text(out: *mut c_void, capacity: i32, text: &str) -> Outcome {
    if out.is_null() || capacity <= 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let length = text.len().min(capacity as usize - 1);
    // SAFETY: `length` bytes and the NUL are not more than `capacity`.
    unsafe {
        store(out.cast::<u8>(), length, text.as_bytes())?;
        out.cast::<u8>().add(length).write(0);
    }
    Ok(())
}

pub unsafe fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) -> Outcome {
    let bytes = device(dev)?.info.uuid.map(|byte| byte as c_char);
    // SAFETY: room for the result, or null.
    unsafe { write_out(uuid, CUuuid { bytes }) }
}

pub unsafe fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) -> Outcome {
    // SAFETY: the program has room for a UUID at `uuid`, or passes null.
    unsafe { cuDeviceGetUuid(uuid, dev) }
}

/// A LUID is Windows' name for a device; no driver for Linux has one.
pub unsafe fn cuDeviceGetLuid(_luid: *mut c_void, _mask: *mut u32, dev: CUdevice) -> Outcome {
    device(dev)?;
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

pub unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(bytes, device(dev)?.info.total_memory as usize) }
}

/// What this library cannot do for a device that could. Programs that ask first take another way.
const NOT_THROUGH_CAUSEWAY: &[CUdevice_attribute] = &[
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
];

/// What needs the window of addresses for memory that host and device share.
const IN_THE_HOST_WINDOW: &[CUdevice_attribute] = &[
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
];

/// What needs the window of addresses for device memory, and a driver that maps memory of the host at chosen
/// addresses.
const HOST_ALLOCATIONS: &[CUdevice_attribute] = &[
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
];

/// What needs the window of addresses for device memory.
const IN_THE_WINDOW: &[CUdevice_attribute] = &[
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
];

pub unsafe fn cuDeviceGetAttribute(pi: *mut i32, attrib: CUdevice_attribute, dev: CUdevice) -> Outcome {
    let device = device(dev)?;
    let value = match device.attribute(attrib) {
        Some(_) if NOT_THROUGH_CAUSEWAY.contains(&attrib) => 0,
        Some(_) if IN_THE_WINDOW.contains(&attrib) && address::window::window(device.server).is_none() => 0,
        Some(_)
            if attrib == CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
                && !crate::model::host_window::is_open_for(
                    session::with(device.server)?.snapshot.host_window,
                ) =>
        {
            0
        }
        // Pools of host memory are this library's own, whatever the server's driver has.
        _ if IN_THE_HOST_WINDOW.contains(&attrib) => {
            crate::model::host_window::is_open_for(session::with(device.server)?.snapshot.host_window).into()
        }
        // Which node is meant makes no difference here.
        _ if HOST_ALLOCATIONS.contains(&attrib) => virtual_memory::is_supported(device.server).into(),
        Some(value) => value,
        // The runtime asks for attributes that are newer than a server's driver; that is "no".
        None if (1..CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX.0).contains(&attrib.0) => 0,
        None => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(pi, value) }
}

pub unsafe fn cuDeviceGetExecAffinitySupport(
    pi: *mut i32,
    _kind: CUexecAffinityType,
    dev: CUdevice,
) -> Outcome {
    device(dev)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(pi, 0) }
}

pub unsafe fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice) -> Outcome {
    let device = device(dev)?;
    let value = |attribute| device.attribute(attribute).unwrap_or(0);
    let properties = CUdevprop {
        maxThreadsPerBlock: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        maxThreadsDim: device.limits.block.map(|size| size as i32),
        maxGridSize: device.limits.grid.map(|size| size as i32),
        sharedMemPerBlock: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        totalConstantMemory: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        SIMDWidth: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        memPitch: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        regsPerBlock: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        clockRate: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        textureAlign: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(prop, properties) }
}

pub unsafe fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, dev: CUdevice) -> Outcome {
    let device = device(dev)?;
    let value = |attribute| device.attribute(attribute).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE);
    // SAFETY: room for both results, or null.
    unsafe {
        write_optional(major, value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?);
        write_optional(minor, value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?);
    }
    Ok(())
}

/// No operation on memory of the program is atomic for a device that is elsewhere.
pub unsafe fn cuDeviceGetHostAtomicCapabilities(
    capabilities: *mut u32,
    operations: *const CUatomicOperation,
    count: u32,
    dev: CUdevice,
) -> Outcome {
    device(dev)?;
    if count == 0 || operations.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and `count` operations by the program's word.
    let operations = unsafe { list(operations, count as usize) }?;
    if operations.iter().any(|operation| operation.0 >= CUatomicOperation::CU_ATOMIC_OPERATION_MAX.0) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: room for `count` results, or null.
    unsafe { store(capabilities, count as usize, &vec![0; count as usize]) }
}

/// What a device may do with the memory of one that is on another server.
static NOTHING: Peer = Peer { can_access: false, attributes: Vec::new() };

/// What the server said about a pair of devices; nothing for a device and itself.
fn pair(dev: CUdevice, peer: CUdevice) -> Result<Option<&'static Peer>, CUresult> {
    let (dev, peer) = (device(dev)?, device(peer)?);
    if dev.server != peer.server {
        return Ok(Some(&NOTHING));
    }
    let snapshot = &session::with(dev.server)?.snapshot;
    let (dev, peer) = (dev.ordinal as usize, peer.ordinal as usize);
    Ok(snapshot.peers.get(dev * snapshot.devices.len() + peer).filter(|_| dev != peer))
}

pub unsafe fn cuDeviceCanAccessPeer(canAccessPeer: *mut i32, dev: CUdevice, peerDev: CUdevice) -> Outcome {
    let can = pair(dev, peerDev)?.is_some_and(|peer| peer.can_access);
    // SAFETY: room for the result, or null.
    unsafe { write_out(canAccessPeer, i32::from(can)) }
}

pub unsafe fn cuDeviceGetP2PAttribute(
    value: *mut i32,
    attrib: CUdevice_P2PAttribute,
    srcDevice: CUdevice,
    dstDevice: CUdevice,
) -> Outcome {
    let peer = pair(srcDevice, dstDevice)?.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    let found = peer.attributes.iter().find(|(number, _)| *number == attrib.0 as i32);
    // SAFETY: room for the result, or null.
    unsafe { write_out(value, found.map_or(0, |(_, value)| *value)) }
}

/// Posted: whether the program may do this is known here, and so is whether it has done it before.
pub unsafe fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: u32) -> Outcome {
    if Flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (current, peer) = (context::current_state()?, context::resolve(peerContext)?);
    // A device is not a peer of its own.
    if !pair(current.device, peer.device)?.is_some_and(|peer| peer.can_access) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    if !current.peers.lock().insert(peer.handle.value()) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    send::post(&calls::cuCtxEnablePeerAccess { peerContext: peer.handle, Flags })
}

pub unsafe fn cuCtxDisablePeerAccess(peerContext: CUcontext) -> Outcome {
    let (current, peer) = (context::current_state()?, context::resolve(peerContext)?);
    if !current.peers.lock().remove(&peer.handle.value()) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    send::post(&calls::cuCtxDisablePeerAccess { peerContext: peer.handle })
}
