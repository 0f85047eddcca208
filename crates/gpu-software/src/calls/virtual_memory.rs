//! Memory at addresses that the client chooses.

use crate::{SoftwareGpu, virtual_memory};
use causeway_api::handle::{Allocation, Native};
use causeway_api::sys::{CUdevice, CUdeviceptr};
use causeway_api::types::{AddressAccess, AllocationProperties};
use causeway_gpu::CuResult;
use causeway_gpu::calls::VirtualMemoryCalls;

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
