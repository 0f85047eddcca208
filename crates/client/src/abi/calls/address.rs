//! Addresses, and memory that the program maps at them itself.

use crate::abi::entry::Outcome;
use crate::arguments::{list, write_out};
use crate::log::{refuse_probe, refuse_use};
use crate::model::device;
use crate::model::handles::RawHandle as _;
use crate::submit::{pool, send, virtual_memory as memory};
use causeway_api::calls;
use causeway_api::sys::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
    CUresult,
};
use causeway_api::types::AllocationProperties;
use core::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const DESCRIPTOR: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

pub unsafe fn cuMemAddressReserve(
    ptr: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    addr: CUdeviceptr,
    flags: u64,
) -> Outcome {
    if ptr.is_null() || flags != 0 {
        return Err(INVALID);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(ptr, memory::reserve(size as u64, alignment as u64, addr)?) }
}

pub unsafe fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) -> Outcome {
    memory::free_reserved(ptr, size as u64)
}

/// Where memory is to lie.
enum Backing {
    /// On a device, by the program's number.
    Device(i32),
    Host,
}

/// The refusal of handles by which no process can get memory. Programs try handles for a fabric and do without:
/// they need NVIDIA's IMEX, so that hardly any machine has them. NVIDIA's driver says then that they are not
/// permitted (580, H100), which PyTorch's symmetric memory takes as the sign to ask for descriptors; anything
/// else ends it.
fn refuse_handles(types: CUmemAllocationHandleType) -> CUresult {
    if types.0 & CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC.0 == 0 {
        return refuse_use!("handles of memory that are not file descriptors");
    }
    let _ = refuse_probe!("handles of memory for a fabric");
    CUresult::CUDA_ERROR_NOT_PERMITTED
}

/// Refuses to make memory with handles that cannot be had.
fn require_handles(types: CUmemAllocationHandleType, backing: &Backing) -> Outcome {
    match backing {
        Backing::Host if types != CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE => {
            Err(refuse_probe!("memory of the host with handles for other processes"))
        }
        _ if types.0 & !DESCRIPTOR.0 != 0 => Err(refuse_handles(types)),
        _ => Ok(()),
    }
}

/// What the program asks for, with the server's number of a device, and where.
///
/// # Safety
/// `prop` is null or has properties.
unsafe fn properties(prop: *const CUmemAllocationProp) -> Result<(AllocationProperties, Backing), CUresult> {
    // SAFETY: the caller passes null or properties.
    let requested = unsafe { prop.as_ref() }.ok_or(INVALID)?;
    if requested.type_ != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(INVALID);
    }
    let backing = backing(requested)?;
    let location_id = match backing {
        Backing::Device(_) => memory::location_on_server(&requested.location)?,
        Backing::Host => requested.location.id,
    };
    let properties = AllocationProperties {
        kind: requested.type_.0,
        handle_types: requested.requestedHandleTypes.0,
        location: requested.location.type_.0,
        location_id,
        compression: requested.allocFlags.compressionType,
        rdma: requested.allocFlags.gpuDirectRDMACapable,
        usage: requested.allocFlags.usage,
    };
    Ok((properties, backing))
}

/// Where memory is to lie, as `cuda.h` (13.0) says it of `cuMemCreate`.
fn backing(requested: &CUmemAllocationProp) -> Result<Backing, CUresult> {
    type Type = CUmemLocationType;
    let has_handles = requested.requestedHandleTypes != CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    match requested.location.type_ {
        Type::CU_MEM_LOCATION_TYPE_DEVICE => Ok(Backing::Device(requested.location.id)),
        Type::CU_MEM_LOCATION_TYPE_HOST if has_handles => Err(INVALID),
        Type::CU_MEM_LOCATION_TYPE_HOST => Ok(Backing::Host),
        Type::CU_MEM_LOCATION_TYPE_HOST_NUMA if !pool::is_node(requested.location.id) => Err(INVALID),
        Type::CU_MEM_LOCATION_TYPE_HOST_NUMA => Ok(Backing::Host),
        _ => Err(INVALID),
    }
}

pub unsafe fn cuMemCreate(
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> Outcome {
    if handle.is_null() || size == 0 || flags != 0 {
        return Err(INVALID);
    }
    // SAFETY: properties, or null.
    let (properties, backing) = unsafe { properties(prop) }?;
    require_handles(CUmemAllocationHandleType(properties.handle_types), &backing)?;
    let created = match backing {
        Backing::Device(device) => memory::create(size as u64, properties, device)?,
        Backing::Host => memory::create_in_host(size as u64, properties)?,
    };
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(handle, created.as_raw()) }
}

pub unsafe fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> Outcome {
    memory::release(&*memory::resolve(handle)?)
}

pub unsafe fn cuMemMap(
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> Outcome {
    // CUDA has no other values of these yet.
    if offset != 0 || flags != 0 {
        return Err(INVALID);
    }
    memory::map(ptr, size as u64, &memory::resolve(handle)?)
}

pub unsafe fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> Outcome {
    memory::unmap(ptr, size as u64)
}

pub unsafe fn cuMemSetAccess(
    ptr: CUdeviceptr,
    size: usize,
    desc: *const CUmemAccessDesc,
    count: usize,
) -> Outcome {
    // SAFETY: as many entries as the program says.
    let entries = unsafe { list(desc, count) }?;
    if entries.is_empty() {
        return Err(INVALID);
    }
    memory::set_access(ptr, size as u64, entries)
}

pub unsafe fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, ptr: CUdeviceptr) -> Outcome {
    // SAFETY: a location, or null.
    let location = unsafe { location.as_ref() }.ok_or(INVALID)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(flags, u64::from(memory::access(ptr, location)?)) }
}

pub unsafe fn cuMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
) -> Outcome {
    // SAFETY: properties, or null.
    let (mut properties, backing) = unsafe { properties(prop) }?;
    // Handles that cannot be had are refused when memory is made, as with NVIDIA's driver: NCCL and PyTorch
    // take an error of this call for the end, and one of `cuMemCreate` as the sign to do without.
    properties.handle_types &= DESCRIPTOR.0;
    let found = match backing {
        Backing::Device(device) => {
            let request = calls::allocation_granularity { properties, option: option.0 };
            send::call_in(device::without_context(device)?, &request)?
        }
        // Of this library's own making: its addresses are the session's window's.
        Backing::Host => memory::host_granularity()? as usize,
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(granularity, found) }
}

pub unsafe fn cuMemGetAllocationPropertiesFromHandle(
    prop: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> Outcome {
    let state = memory::resolve(handle)?;
    let known = &state.properties;
    let mut reported = CUmemAllocationProp {
        type_: CUmemAllocationType(known.kind),
        requestedHandleTypes: CUmemAllocationHandleType(known.handle_types),
        location: state.location(),
        ..CUmemAllocationProp::default()
    };
    reported.allocFlags.compressionType = known.compression;
    reported.allocFlags.gpuDirectRDMACapable = known.rdma;
    reported.allocFlags.usage = known.usage;
    // SAFETY: room for the result, or null.
    unsafe { write_out(prop, reported) }
}

pub unsafe fn cuMemRetainAllocationHandle(
    handle: *mut CUmemGenericAllocationHandle,
    addr: *mut c_void,
) -> Outcome {
    if handle.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(handle, memory::retain(addr as CUdeviceptr)?.as_raw()) }
}

pub unsafe fn cuMemExportToShareableHandle(
    shareableHandle: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    handleType: CUmemAllocationHandleType,
    flags: u64,
) -> Outcome {
    if shareableHandle.is_null() || flags != 0 {
        return Err(INVALID);
    }
    if handleType != DESCRIPTOR {
        return Err(refuse_handles(handleType));
    }
    let descriptor = memory::export(&*memory::resolve(handle)?)?;
    // SAFETY: for this type of handle there is room for a descriptor, which is the program's from here on.
    unsafe { write_out(shareableHandle.cast::<c_int>(), descriptor.into_raw_fd()) }
}

pub unsafe fn cuMemImportFromShareableHandle(
    handle: *mut CUmemGenericAllocationHandle,
    osHandle: *mut c_void,
    shHandleType: CUmemAllocationHandleType,
) -> Outcome {
    if handle.is_null() {
        return Err(INVALID);
    }
    if shHandleType != DESCRIPTOR {
        return Err(refuse_handles(shHandleType));
    }
    let number = c_int::try_from(osHandle as usize).map_err(|_| INVALID)?;
    // SAFETY: the program passes an open descriptor; another number is refused when it is read.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(handle, memory::import(descriptor)?.as_raw()) }
}
