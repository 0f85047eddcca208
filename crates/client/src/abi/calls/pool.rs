//! Stream-ordered allocation.

use crate::abi::entry::Outcome;
use crate::arguments::{list, write_out};
use crate::log::{refuse_probe, refuse_use};
use crate::model::address::window;
use crate::model::exchange::{self, Kind};
use crate::model::graph::memory::Allocation;
use crate::model::graph::work::Work;
use crate::model::handles::RawHandle as _;
use crate::model::memory::{self, Origin};
use crate::model::{context, device, graph};
use crate::submit::graph::build::Servers;
use crate::submit::pool::PoolLocation;
use crate::submit::pool::host_ranges::Ranges;
use crate::submit::pool::{self, PoolState};
use crate::submit::streams::DefaultStream;
use crate::submit::{capture, ipc, send, streams};
use causeway_api::calls;
use causeway_api::handle::Handle;
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps,
    CUmemPoolPtrExportData, CUmemoryPool, CUresult, CUstream,
};
use core::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Arc;

const DESCRIPTOR: CUmemAllocationHandleType =
    CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

const READ_AND_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

/// The pool that the program passed.
fn resolve(pool: CUmemoryPool) -> Result<Arc<PoolState>, CUresult> {
    pool::get(Handle::from_raw(pool))
}

pub unsafe fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(pool_out, pool::default_of_device(dev)?.handle.as_raw()) }
}

pub unsafe fn cuDeviceGetMemPool(out: *mut CUmemoryPool, dev: CUdevice) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, pool::current_of_device(dev)?.handle.as_raw()) }
}

pub unsafe fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> Outcome {
    device::device(dev)?;
    pool::set_current_of_device(dev, &resolve(pool)?)
}

/// The place that a location and a kind of memory mean.
///
/// # Safety
/// `location` is null or a location.
unsafe fn location_of(
    location: *const CUmemLocation,
    kind: CUmemAllocationType,
) -> Result<PoolLocation, CUresult> {
    // SAFETY: the caller passes null or a location.
    let location = unsafe { location.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    pool::fixed_location(location, kind)
}

pub unsafe fn cuMemGetDefaultMemPool(
    pool_out: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Outcome {
    // SAFETY: a location, or null; room for the result, or null.
    unsafe { write_out(pool_out, pool::default_of(location_of(location, kind)?)?.handle.as_raw()) }
}

pub unsafe fn cuMemGetMemPool(
    out: *mut CUmemoryPool,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Outcome {
    // SAFETY: a location, or null; room for the result, or null.
    unsafe { write_out(out, pool::current_of(location_of(location, kind)?)?.handle.as_raw()) }
}

pub unsafe fn cuMemSetMemPool(
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Outcome {
    // SAFETY: a location, or null.
    pool::set_current(unsafe { location_of(location, kind) }?, &resolve(pool)?)
}

pub unsafe fn cuMemPoolCreate(out: *mut CUmemoryPool, poolProps: *const CUmemPoolProps) -> Outcome {
    // SAFETY: properties, or null.
    let properties = unsafe { poolProps.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if properties.reserved.iter().any(|byte| *byte != 0) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let location = pool::pool_location(&properties.location, properties.allocType)?;
    let is_private = properties.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    if !is_private {
        match location {
            PoolLocation::Device(device)
                if properties.handleTypes == DESCRIPTOR
                    && window::window(device::device(device)?.server).is_some() => {}
            PoolLocation::Device(_) | PoolLocation::Host(Some(_))
                if properties.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC =>
            {
                return Err(refuse_probe!("memory pools with handles for a fabric"));
            }
            PoolLocation::Device(_) | PoolLocation::Host(Some(_)) => {
                return Err(refuse_use!("memory pools with these handles for other processes"));
            }
            PoolLocation::Host(None) | PoolLocation::Managed(..) => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
    }
    if out.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let pool = pool::create(location, properties.maxSize, properties.handleTypes.0)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(out, pool.handle.as_raw()) }
}

pub unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> Outcome {
    pool::destroy(&*resolve(pool)?)
}

pub unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize) -> Outcome {
    let pool = resolve(pool)?;
    match (&pool.ranges, &pool.heap) {
        (Some(ranges), _) => {
            ranges.trim(minBytesToKeep as u64);
            Ok(())
        }
        (None, Some(heap)) => {
            heap.trim(minBytesToKeep as u64);
            Ok(())
        }
        (None, None) => {
            let nowhere = device::without_context(pool.device)?;
            send::post_in(nowhere, &calls::cuMemPoolTrimTo { pool: pool.handle, minBytesToKeep })
        }
    }
}

pub unsafe fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) -> Outcome {
    let pool = resolve(pool)?;
    // SAFETY: as many entries as the program says.
    let entries = unsafe { list(map, count) }?;
    let none = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if let Some(ranges) = &pool.ranges {
        return entries.iter().try_for_each(|entry| set_access_to_ranges(ranges, entry));
    }
    for entry in entries {
        if entry.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if device::device(entry.location.id)?.server != device::device(pool.device)?.server {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        let device = device::on_server(entry.location.id)?;
        match &pool.heap {
            // The pool's own device keeps its access.
            _ if entry.location.id == pool.device && entry.flags == none => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            _ if entry.location.id == pool.device => {}
            Some(heap) => heap.set_access(device, entry.flags)?,
            None => {
                return Err(refuse_use!(
                    "access of other devices to pools of a server without virtual memory"
                ));
            }
        }
    }
    Ok(())
}

/// Sets who reaches memory of the host or managed memory, as a driver (580) does.
fn set_access_to_ranges(ranges: &Ranges, entry: &CUmemAccessDesc) -> Outcome {
    type Flags = CUmemAccess_flags;
    if entry.flags == Flags::CU_MEM_ACCESS_FLAGS_PROT_READ {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if ![Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE, Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE]
        .contains(&entry.flags)
    {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let location = known_location(&entry.location)?;
    let is_devices = entry.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    if ranges.is_hosts() && !is_devices && entry.flags == Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE {
        // The host keeps its access to its own memory.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    ranges.set_access(location, entry.flags.0);
    Ok(())
}

/// A device, the host or a node of it, by type and number; the number counts for devices alone.
fn known_location(location: &CUmemLocation) -> Result<(u32, i32), CUresult> {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            device::device(location.id)?;
            Ok((location.type_.0, location.id))
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
            Ok((location.type_.0, 0))
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub unsafe fn cuMemPoolGetAccess(
    flags: *mut CUmemAccess_flags,
    memPool: CUmemoryPool,
    location: *mut CUmemLocation,
) -> Outcome {
    let pool = resolve(memPool)?;
    // SAFETY: a location, or null.
    let location = unsafe { location.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let known = known_location(location)?;
    let is_devices = location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    if let Some(ranges) = &pool.ranges {
        let from_the_start = if ranges.is_hosts() && !is_devices { READ_AND_WRITE.0 } else { 0 };
        let access = ranges.access_of(known).unwrap_or(from_the_start);
        // SAFETY: room for the result, or null.
        return unsafe { write_out(flags, CUmemAccess_flags(access)) };
    }
    if !is_devices {
        // SAFETY: room for the result, or null.
        return unsafe { write_out(flags, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE) };
    }
    let on_server = device::on_server(location.id)?;
    let access = match &pool.heap {
        _ if location.id == pool.device => READ_AND_WRITE,
        Some(heap) => heap.access_of(on_server),
        None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(flags, access) }
}

/// Whether an attribute is a 64-bit number; the others are 32-bit ones.
fn is_long(attribute: CUmemPool_attribute) -> Result<bool, CUresult> {
    match attribute {
        CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => Ok(false),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        | CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        | CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
        | CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        | CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => Ok(true),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub unsafe fn cuMemPoolSetAttribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Outcome {
    let pool = resolve(pool)?;
    if value.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the attribute says which number the value is.
    let value = unsafe {
        if is_long(attribute)? { value.cast::<u64>().read() } else { u64::from(value.cast::<u32>().read()) }
    };
    pool.set_attribute(attribute, value)
}

pub unsafe fn cuMemPoolGetAttribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Outcome {
    let pool = resolve(pool)?;
    let is_long = is_long(attribute)?;
    let found = pool.attribute(attribute)?;
    // SAFETY: null, or room for the number that the attribute is.
    unsafe {
        if is_long {
            write_out(value.cast::<u64>(), found)
        } else {
            write_out(value.cast::<u32>(), found as u32)
        }
    }
}

pub unsafe fn cuMemAllocAsync(
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    hStream: CUstream,
    default_stream: DefaultStream,
) -> Outcome {
    // SAFETY: the program has room for an address at `dptr`, or passes null.
    unsafe { allocate(dptr, bytesize, None, hStream, default_stream) }
}

pub unsafe fn cuMemAllocFromPoolAsync(
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    hStream: CUstream,
    default_stream: DefaultStream,
) -> Outcome {
    let pool = resolve(pool)?;
    // SAFETY: the program has room for an address at `dptr`, or passes null.
    unsafe { allocate(dptr, bytesize, Some(&pool), hStream, default_stream) }
}

/// # Safety
/// Memory is neither allocated nor freed in the legacy stream while a capture forbids calls that may wait:
/// the driver (580, H100) says 900, and the capture is spoilt.
fn refuse_legacy_in_capture(stream: CUstream, default_stream: DefaultStream) -> Outcome {
    if streams::named(stream, default_stream)?.is_null() {
        capture::refuse_unsafe()?;
    }
    Ok(())
}

/// `out` is null or has room for an address.
unsafe fn allocate(
    out: *mut CUdeviceptr,
    size: usize,
    pool: Option<&PoolState>,
    hStream: CUstream,
    default_stream: DefaultStream,
) -> Outcome {
    if out.is_null() || size == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    refuse_legacy_in_capture(hStream, default_stream)?;
    let stream = context::stream(streams::resolve(hStream, default_stream)?)?;
    let device = context::state(stream.context)?.device;
    if capture::of(&stream) != 0 {
        if pool.is_some_and(|pool| pool.ranges.is_some()) {
            // NVIDIA's driver makes no such memory in a graph, either.
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let (graph, tips) = capture::capture_point(&stream)?;
        let allocation = Allocation::on(graph, &tips, device, size, &Servers)?;
        let address = allocation.address;
        capture::add(&stream, Work::Allocate(allocation))?;
        // SAFETY: not null, so there is room for the result.
        return unsafe { write_out(out, address) };
    }
    let address = match pool {
        Some(pool) => pool::allocate(pool, size, &stream)?,
        None => pool::allocate(&*pool::current_of_device(device)?, size, &stream)?,
    };
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(out, address) }
}

pub unsafe fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream, default_stream: DefaultStream) -> Outcome {
    let stream = context::stream(streams::resolve(hStream, default_stream)?)?;
    if dptr == 0 {
        return Ok(());
    }
    refuse_legacy_in_capture(hStream, default_stream)?;
    if capture::of(&stream) != 0 {
        if !graph::memory::may_be_freed(dptr) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        return capture::add(&stream, Work::Free(dptr));
    }
    if let Some(freed) = graph::memory::free(dptr) {
        return freed;
    }
    pool::free(dptr, &stream)
}

pub unsafe fn cuMemPoolExportToShareableHandle(
    handle_out: *mut c_void,
    pool: CUmemoryPool,
    handleType: CUmemAllocationHandleType,
    flags: u64,
) -> Outcome {
    let pool = resolve(pool)?;
    if handle_out.is_null() || flags != 0 || handleType != DESCRIPTOR || pool.handle_types != DESCRIPTOR.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let device = device::on_server(pool.device)?;
    let descriptor = exchange::descriptor(Kind::Pool, &device.to_le_bytes())?;
    // SAFETY: for this type of handle there is room for a descriptor, which is the program's from here on.
    unsafe { write_out(handle_out.cast::<c_int>(), descriptor.into_raw_fd()) }
}

pub unsafe fn cuMemPoolImportFromShareableHandle(
    pool_out: *mut CUmemoryPool,
    handle: *mut c_void,
    handleType: CUmemAllocationHandleType,
    flags: u64,
) -> Outcome {
    let number = c_int::try_from(handle as usize);
    let (Ok(number), false) = (number, pool_out.is_null() || flags != 0 || handleType != DESCRIPTOR) else {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: the program passes an open descriptor; another number is refused when it is read.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    let device = i32::from_le_bytes(exchange::read(descriptor, Kind::Pool)?);
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pool_out, pool::import(device)?.handle.as_raw()) }
}

pub unsafe fn cuMemPoolExportPointer(
    shareData_out: *mut CUmemPoolPtrExportData,
    ptr: CUdeviceptr,
) -> Outcome {
    let piece = memory::find(ptr).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if pool::of_piece(&piece).is_none_or(|pool| pool.handle_types != DESCRIPTOR.0) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let reserved = exchange::bytes(ipc::export(ptr, Origin::Pool)?);
    // SAFETY: room for the result, or null.
    unsafe { write_out(shareData_out, CUmemPoolPtrExportData { reserved }) }
}

pub unsafe fn cuMemPoolImportPointer(
    ptr_out: *mut CUdeviceptr,
    pool: CUmemoryPool,
    shareData: *mut CUmemPoolPtrExportData,
) -> Outcome {
    // SAFETY: the data, or null.
    let data = unsafe { shareData.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if ptr_out.is_null() || !resolve(pool)?.is_imported {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let address = ipc::open(&exchange::chars(data.reserved), Origin::PoolImport)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(ptr_out, address) }
}
