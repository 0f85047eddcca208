//! Allocations and memory pools, and memory at addresses that the client chooses.

use causeway_api::handle::{Allocation, MemoryPool, Native, Stream};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUmemPool_attribute};
use causeway_api::types::{AddressAccess, AllocationProperties};
use causeway_gpu::CuResult;
use causeway_gpu::calls::{MemoryCalls, VirtualMemoryCalls};

use crate::{SoftwareGpu, virtual_memory};

impl MemoryCalls for SoftwareGpu {
    fn cuMemGetInfo_v2(&self) -> CuResult<(usize, usize)> {
        self.contexts.current()?;
        Ok(self.memory.info())
    }

    fn memory_allocate(&self, size: usize) -> CuResult<CUdeviceptr> {
        self.memory.allocate(&*self.contexts.current()?, size)
    }

    fn memory_allocate_async(
        &self,
        size: usize,
        pool: Native<MemoryPool>,
        stream: Native<Stream>,
    ) -> CuResult<CUdeviceptr> {
        let stream = self.stream(stream)?;
        self.memory.allocate_async(&*self.context_of(stream)?, size, pool.value(), stream)
    }

    fn memory_free_async(&self, address: CUdeviceptr, stream: Native<Stream>) -> CuResult<()> {
        self.memory.free_async(address, self.stream(stream)?)
    }

    fn memory_pool_create(&self, device: CUdevice, limit: usize) -> CuResult<Native<MemoryPool>> {
        self.check_device(device)?;
        Ok(Native::from_value(self.memory.create_pool(limit)))
    }

    fn memory_pool_default(&self, device: CUdevice) -> CuResult<Native<MemoryPool>> {
        self.check_device(device)?;
        Ok(Native::from_value(self.memory.default_pool(device)))
    }

    fn memory_pool_attribute_get(
        &self,
        pool: Native<MemoryPool>,
        attribute: CUmemPool_attribute,
    ) -> CuResult<u64> {
        self.memory.pool(pool.value())?.attribute(attribute)
    }

    fn memory_pool_attribute_set(
        &self,
        pool: Native<MemoryPool>,
        attribute: CUmemPool_attribute,
        value: u64,
    ) -> CuResult<()> {
        self.memory.pool(pool.value())?.set_attribute(attribute, value)
    }

    fn memory_pool_current_set(&self, device: CUdevice, pool: Native<MemoryPool>) -> CuResult<()> {
        self.check_device(device)?;
        self.memory.set_current_pool(device, pool.value())
    }

    fn cuMemPoolTrimTo(&self, pool: Native<MemoryPool>, keep: usize) -> CuResult<()> {
        self.memory.trim_pool(pool.value(), keep)
    }

    fn cuMemPoolDestroy(&self, pool: Native<MemoryPool>) -> CuResult<()> {
        self.memory.destroy_pool(pool.value())
    }
}

impl VirtualMemoryCalls for SoftwareGpu {
    fn memory_block_create(
        &self,
        address: CUdeviceptr,
        size: usize,
        device: CUdevice,
        accessors: &[i32],
    ) -> CuResult<Native<Allocation>> {
        self.check_device(device)?;
        accessors.iter().try_for_each(|accessor| self.check_device(*accessor))?;
        self.virtual_memory.create_block(address, size as u64, device).map(Native::from_value)
    }

    fn memory_block_release(
        &self,
        block: Native<Allocation>,
        address: CUdeviceptr,
        size: usize,
    ) -> CuResult<()> {
        let unmapped = self.virtual_memory.unmap(address, size as u64);
        self.virtual_memory.release(block.value()).and(unmapped)
    }

    fn address_window_open(&self) -> CuResult<()> {
        // Reserved from the start.
        Ok(())
    }

    fn address_access(&self, address: CUdeviceptr, size: usize, access: &[AddressAccess]) -> CuResult<()> {
        access.iter().try_for_each(|entry| self.check_device(entry.location_id))?;
        self.virtual_memory.set_access(address, size as u64, access)
    }

    fn allocation_create(
        &self,
        size: usize,
        properties: AllocationProperties,
    ) -> CuResult<Native<Allocation>> {
        let made = if virtual_memory::is_hosts(&properties) {
            self.virtual_memory.create_in_host(size as u64)
        } else {
            virtual_memory::check(&properties)?;
            self.check_device(properties.location_id)?;
            self.virtual_memory.create(size as u64, properties.location_id)
        };
        made.map(Native::from_value)
    }

    fn allocation_release(&self, allocation: Native<Allocation>) -> CuResult<()> {
        self.virtual_memory.release(allocation.value())
    }

    fn allocation_map(
        &self,
        allocation: Native<Allocation>,
        address: CUdeviceptr,
        size: usize,
        offset: usize,
    ) -> CuResult<()> {
        self.virtual_memory.map(allocation.value(), address, size as u64, offset as u64)
    }

    fn allocation_unmap(&self, address: CUdeviceptr, size: usize) -> CuResult<()> {
        self.virtual_memory.unmap(address, size as u64)
    }

    fn allocation_granularity(&self, properties: AllocationProperties, _option: u32) -> CuResult<usize> {
        virtual_memory::check(&properties)?;
        self.check_device(properties.location_id)?;
        Ok(virtual_memory::GRANULARITY as usize)
    }
}
