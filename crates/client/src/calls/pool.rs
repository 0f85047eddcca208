//! Stream-ordered allocation.

use super::Outcome;
use crate::entry::{DefaultStream, give, refuse_use};
use crate::handles::{self, Registry};
use crate::memory::{self, Origin};
use crate::session;
use crate::{capture, context, device, stream};
use causeway_api::calls;
use causeway_api::handle::{Handle, MemoryPool};
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
};
use core::ffi::c_void;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// What the client keeps of a pool: its device.
static POOLS: Registry<MemoryPool, CUdevice> = Registry::new();
/// The default pool of each device that was asked for it.
static DEFAULTS: LazyLock<Mutex<HashMap<CUdevice, Handle<MemoryPool>>>> = LazyLock::new(Mutex::default);
/// The pool that a device allocates from, where that is not its default pool.
static CURRENT: LazyLock<Mutex<HashMap<CUdevice, Handle<MemoryPool>>>> = LazyLock::new(Mutex::default);

fn default_pool(dev: CUdevice) -> Result<Handle<MemoryPool>, CUresult> {
    let device = device::on_server(dev)?;
    let mut defaults = DEFAULTS.lock();
    if let Some(pool) = defaults.get(&dev) {
        return Ok(*pool);
    }
    let pool = handles::create::<MemoryPool>();
    session::post_in(context::current_or_none(), &calls::memory_pool_default { pool, device })?;
    POOLS.insert(pool, Arc::new(dev));
    defaults.insert(dev, pool);
    Ok(pool)
}

pub unsafe fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { give(pool_out, default_pool(dev)?.as_raw()) }
}

pub unsafe fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) -> Outcome {
    let current = CURRENT.lock().get(&dev).copied();
    let current = match current {
        Some(current) if handles::is_valid(current) => current,
        _ => default_pool(dev)?,
    };
    // SAFETY: room for the result, or null.
    unsafe { give(pool, current.as_raw()) }
}

pub unsafe fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> Outcome {
    let pool = handles::given::<MemoryPool>(pool)?;
    let request = calls::memory_pool_current_set { device: device::on_server(dev)?, pool };
    session::post_in(context::current_or_none(), &request)?;
    CURRENT.lock().insert(dev, pool);
    Ok(())
}

pub unsafe fn cuMemPoolCreate(out: *mut CUmemoryPool, poolProps: *const CUmemPoolProps) -> Outcome {
    // SAFETY: properties, or null.
    let properties = unsafe { poolProps.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let is_on_device = properties.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    let is_pinned = properties.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    let is_private = properties.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    if !is_on_device || !is_pinned || !is_private {
        return Err(refuse_use!("memory pools that are shared between processes or lie in host memory"));
    }
    if out.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let dev = properties.location.id;
    let pool = handles::create::<MemoryPool>();
    let request =
        calls::memory_pool_create { pool, device: device::on_server(dev)?, limit: properties.maxSize };
    session::call_in(context::current_or_none(), &request)?;
    POOLS.insert(pool, Arc::new(dev));
    // SAFETY: not null, so there is room for the result.
    unsafe { give(out, pool.as_raw()) }
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
    let pool = handles::given::<MemoryPool>(pool)?;
    if value.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the attribute says which number the value is.
    let value = unsafe {
        if is_long(attribute)? { value.cast::<u64>().read() } else { u64::from(value.cast::<u32>().read()) }
    };
    let request = calls::memory_pool_attribute_set { pool, attribute, value };
    session::call_in(context::current_or_none(), &request)
}

pub unsafe fn cuMemPoolGetAttribute(
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Outcome {
    let pool = handles::given::<MemoryPool>(pool)?;
    let is_long = is_long(attribute)?;
    let request = calls::memory_pool_attribute_get { pool, attribute };
    let found = session::call_in(context::current_or_none(), &request)?;
    // SAFETY: null, or room for the number that the attribute is.
    unsafe {
        if is_long { give(value.cast::<u64>(), found) } else { give(value.cast::<u32>(), found as u32) }
    }
}

pub unsafe fn cuMemAllocAsync(
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    hStream: CUstream,
    default_stream: DefaultStream,
) -> Outcome {
    // SAFETY: the same arguments.
    unsafe { allocate(dptr, bytesize, Handle::NULL, hStream, default_stream) }
}

pub unsafe fn cuMemAllocFromPoolAsync(
    dptr: *mut CUdeviceptr,
    bytesize: usize,
    pool: CUmemoryPool,
    hStream: CUstream,
    default_stream: DefaultStream,
) -> Outcome {
    let pool = handles::given::<MemoryPool>(pool)?;
    // SAFETY: the same arguments.
    unsafe { allocate(dptr, bytesize, pool, hStream, default_stream) }
}

/// # Safety
/// `out` is null or has room for an address.
unsafe fn allocate(
    out: *mut CUdeviceptr,
    size: usize,
    pool: Handle<MemoryPool>,
    hStream: CUstream,
    default_stream: DefaultStream,
) -> Outcome {
    if out.is_null() || size == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let stream = stream::state(handles::stream(hStream, default_stream)?)?;
    if capture::of(&stream) != 0 {
        return Err(refuse_use!("allocations inside a captured graph"));
    }
    let device = context::state(stream.context)?.device;
    let request = calls::memory_allocate_async { size, pool, stream: stream.handle };
    let address = session::call_in(stream.context, &request)?;
    memory::add(address, size as u64, stream.context, device, Origin::Pool);
    // SAFETY: not null, so there is room for the result.
    unsafe { give(out, address) }
}

pub unsafe fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream, default_stream: DefaultStream) -> Outcome {
    let stream = stream::state(handles::stream(hStream, default_stream)?)?;
    if dptr == 0 {
        return Ok(());
    }
    if capture::of(&stream) != 0 {
        return Err(refuse_use!("freeing memory inside a captured graph"));
    }
    memory::take(dptr)?;
    session::post_in(stream.context, &calls::memory_free_async { address: dptr, stream: stream.handle })
}
