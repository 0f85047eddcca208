//! Allocations and memory pools.

use crate::driver::Driver;
use causeway_api::handle::{MemoryPool, Native, Stream};
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUresult,
};
use causeway_gpu::CuResult;
use causeway_gpu::calls::MemoryCalls;

/// The last attribute of a pool whose value is one of the 32-bit or 64-bit numbers that fit here.
const LAST_ATTRIBUTE: u32 = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH.0;

fn known(attribute: CUmemPool_attribute) -> CuResult<()> {
    if (1..=LAST_ATTRIBUTE).contains(&attribute.0) { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) }
}

impl MemoryCalls for Driver {
    causeway_api_macros::driver_calls!(memory);

    fn memory_allocate(&self, size: usize) -> CuResult<CUdeviceptr> {
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuMemAlloc_v2(&mut address, size)? };
        Ok(address)
    }

    /// Allocates in stream order from a pool; the null pool stands for the device's current one.
    fn memory_allocate_async(
        &self,
        size: usize,
        pool: Native<MemoryPool>,
        stream: Native<Stream>,
    ) -> CuResult<CUdeviceptr> {
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        unsafe {
            if pool == Native::NULL {
                self.functions.cuMemAllocAsync(&mut address, size, stream.as_raw())?;
            } else {
                self.functions.cuMemAllocFromPoolAsync(&mut address, size, pool.as_raw(), stream.as_raw())?;
            }
        }
        Ok(address)
    }

    fn memory_free_async(&self, address: CUdeviceptr, stream: Native<Stream>) -> CuResult<()> {
        // SAFETY: no pointers of this process; the driver knows its allocations.
        unsafe { self.functions.cuMemFreeAsync(address, stream.as_raw()) }
    }

    /// Makes a pool of device memory without handles for other processes; `limit` 0 is the driver's choice.
    fn memory_pool_create(&self, device: CUdevice, limit: usize) -> CuResult<Native<MemoryPool>> {
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            maxSize: limit,
            ..CUmemPoolProps::default()
        };
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointers are to locals.
        unsafe { self.functions.cuMemPoolCreate(&mut raw, &properties)? };
        Ok(Native::from_raw(raw))
    }

    fn memory_pool_default(&self, device: CUdevice) -> CuResult<Native<MemoryPool>> {
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuDeviceGetDefaultMemPool(&mut raw, device)? };
        Ok(Native::from_raw(raw))
    }

    /// The value of an attribute. Some are 32 bits wide: the driver then fills the lower half.
    fn memory_pool_attribute_get(
        &self,
        pool: Native<MemoryPool>,
        attribute: CUmemPool_attribute,
    ) -> CuResult<u64> {
        known(attribute)?;
        let mut value = 0u64;
        // SAFETY: the driver writes at most 64 bits for these attributes.
        unsafe { self.functions.cuMemPoolGetAttribute(pool.as_raw(), attribute, (&raw mut value).cast())? };
        Ok(value)
    }

    fn memory_pool_attribute_set(
        &self,
        pool: Native<MemoryPool>,
        attribute: CUmemPool_attribute,
        mut value: u64,
    ) -> CuResult<()> {
        known(attribute)?;
        // SAFETY: the driver reads at most 64 bits for these attributes.
        unsafe { self.functions.cuMemPoolSetAttribute(pool.as_raw(), attribute, (&raw mut value).cast()) }
    }

    /// Sets the pool that allocations without one come from; the null pool stands for the default one.
    fn memory_pool_current_set(&self, device: CUdevice, pool: Native<MemoryPool>) -> CuResult<()> {
        let pool = if pool == Native::NULL { self.memory_pool_default(device)? } else { pool };
        // SAFETY: the pool is the driver's own.
        unsafe { self.functions.cuDeviceSetMemPool(device, pool.as_raw()) }
    }
}
