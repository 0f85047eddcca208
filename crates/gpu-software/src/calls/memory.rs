//! Allocations and memory pools.

use crate::SoftwareGpu;
use causeway_api::handle::{MemoryPool, Native, Stream};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUmemPool_attribute};
use causeway_gpu::CuResult;
use causeway_gpu::calls::MemoryCalls;

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
