//! Memory whose addresses the client chooses, by the driver's virtual memory management.

use crate::driver::Driver;
use crate::window::reserve_with_driver;
use causeway_api::handle::{Allocation, Native};
use causeway_api::snapshot::Window;
use causeway_api::sys::{
    CUdevice, CUdevice_attribute, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUresult,
};
use causeway_api::types::{AddressAccess, AllocationProperties};
use causeway_gpu::calls::VirtualMemoryCalls;
use causeway_gpu::device_memory::{ImportError, ImportedMemory};
use causeway_gpu::{CuResult, Staging};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes in front of the part of the window whose addresses the client gives out. Memory of nobody lies
/// there: kernels that read a little before their first allocation find memory with NVIDIA's own addresses,
/// too (H100, 2026-11-24).
const IN_FRONT: u64 = 2 << 20;

/// The part of the device window whose addresses the client gives out.
pub(crate) fn window_of_client(window: Window) -> Window {
    Window { address: window.address + IN_FRONT, size: window.size - IN_FRONT, ..window }
}

fn on_device(device: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

fn properties_of(properties: &AllocationProperties) -> CUmemAllocationProp {
    let mut requested = CUmemAllocationProp {
        type_: CUmemAllocationType(properties.kind),
        requestedHandleTypes: CUmemAllocationHandleType(properties.handle_types),
        location: CUmemLocation { type_: CUmemLocationType(properties.location), id: properties.location_id },
        ..CUmemAllocationProp::default()
    };
    requested.allocFlags.compressionType = properties.compression;
    requested.allocFlags.gpuDirectRDMACapable = properties.rdma;
    requested.allocFlags.usage = properties.usage;
    requested
}

// SAFETY of the calls below: pointers are to locals that live during the call; addresses and handles are the
// driver's to judge.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once for all, above")]
impl VirtualMemoryCalls for Driver {
    /// Makes memory that looks like that of `cuMemAlloc`, at an address of the window.
    fn memory_block_create(
        &self,
        address: CUdeviceptr,
        size: usize,
        device: CUdevice,
        accessors: &[CUdevice],
    ) -> CuResult<Native<Allocation>> {
        self.open_window()?;
        let mut properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: on_device(device),
            ..CUmemAllocationProp::default()
        };
        properties.allocFlags.gpuDirectRDMACapable = u8::from(self.has_rdma(device));
        let mut handle = 0;
        unsafe { self.functions.cuMemCreate(&mut handle, size, &properties, 0)? };
        let opened = unsafe { self.functions.cuMemMap(address, size, 0, handle, 0) }.and_then(|()| {
            let devices = core::iter::once(device).chain(accessors.iter().copied());
            self.open_to(address, size, devices).inspect_err(|_| {
                // The first error is the one that counts.
                let _ = unsafe { self.functions.cuMemUnmap(address, size) };
            })
        });
        if let Err(error) = opened {
            unsafe { self.functions.cuMemRelease(handle)? };
            return Err(error);
        }
        Ok(Native::from_value(handle))
    }

    fn memory_block_release(
        &self,
        block: Native<Allocation>,
        address: CUdeviceptr,
        size: usize,
    ) -> CuResult<()> {
        let unmapped = unsafe { self.functions.cuMemUnmap(address, size) };
        unsafe { self.functions.cuMemRelease(block.value()) }.and(unmapped)
    }

    fn address_window_open(&self) -> CuResult<()> {
        self.open_window()
    }

    fn address_access(&self, address: CUdeviceptr, size: usize, access: &[AddressAccess]) -> CuResult<()> {
        let access: Vec<_> = access
            .iter()
            .map(|entry| CUmemAccessDesc {
                location: CUmemLocation { type_: CUmemLocationType(entry.location), id: entry.location_id },
                flags: CUmemAccess_flags(entry.flags),
            })
            .collect();
        unsafe { self.functions.cuMemSetAccess(address, size, access.as_ptr(), access.len()) }
    }

    fn allocation_create(
        &self,
        size: usize,
        properties: AllocationProperties,
    ) -> CuResult<Native<Allocation>> {
        let mut handle = 0;
        let mut requested = properties_of(&properties);
        if is_hosts(requested.location.type_) {
            // The node that the program named is one of its own machine.
            requested.location = self.host_near_gpu()?;
        }
        unsafe { self.functions.cuMemCreate(&mut handle, size, &requested, 0)? };
        Ok(Native::from_value(handle))
    }

    fn allocation_release(&self, allocation: Native<Allocation>) -> CuResult<()> {
        unsafe { self.functions.cuMemRelease(allocation.value()) }
    }

    fn allocation_map(
        &self,
        allocation: Native<Allocation>,
        address: CUdeviceptr,
        size: usize,
        offset: usize,
    ) -> CuResult<()> {
        unsafe { self.functions.cuMemMap(address, size, offset, allocation.value(), 0) }
    }

    fn allocation_unmap(&self, address: CUdeviceptr, size: usize) -> CuResult<()> {
        unsafe { self.functions.cuMemUnmap(address, size) }
    }

    fn allocation_granularity(&self, properties: AllocationProperties, option: u32) -> CuResult<usize> {
        let mut granularity = 0;
        let option = CUmemAllocationGranularity_flags(option);
        unsafe {
            self.functions.cuMemGetAllocationGranularity(
                &mut granularity,
                &properties_of(&properties),
                option,
            )?;
        }
        Ok(granularity)
    }
}

fn is_hosts(location: CUmemLocationType) -> bool {
    location == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        || location == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
}

/// Memory of the host. Written after `cuda.h` (13.0), and not tried with a GPU.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once for all, above")]
impl Driver {
    /// The host's memory that is next to the first device. Drivers know a node of the host since CUDA 12.2,
    /// and the host as such since 13.
    fn host_near_gpu(&self) -> CuResult<CUmemLocation> {
        let first = *self.all_devices()?.first().ok_or(CUresult::CUDA_ERROR_NO_DEVICE)?;
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
        let mut node = 0;
        unsafe { self.functions.cuDeviceGetAttribute(&mut node, attribute, first)? };
        // A host without nodes says -1, and its memory is that of node 0.
        Ok(CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: node.max(0) })
    }

    /// All memory of an allocation of the host, at an address of the driver's choice.
    pub(crate) fn host_memory_of(&self, allocation: Native<Allocation>, bytes: usize) -> CuResult<Staging> {
        let functions = self.functions;
        let mut address = 0;
        unsafe { functions.cuMemAddressReserve(&mut address, bytes, 0, 0, 0)? };
        let opened = unsafe { functions.cuMemMap(address, bytes, 0, allocation.value(), 0) }.and_then(|()| {
            let access = CUmemAccessDesc {
                location: self.host_near_gpu()?,
                flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
            unsafe { functions.cuMemSetAccess(address, bytes, &raw const access, 1) }.inspect_err(|_| {
                // The first error is the one that counts.
                let _ = unsafe { functions.cuMemUnmap(address, bytes) };
            })
        });
        if let Err(error) = opened {
            // As above.
            let _ = unsafe { functions.cuMemAddressFree(address, bytes) };
            return Err(error);
        }
        // The driver has mapped all of these bytes for this process, and only `release` takes them away.
        Ok(unsafe {
            Staging::new(address as *mut u8, bytes, move |_, bytes| {
                let freed = functions
                    .cuMemUnmap(address, bytes)
                    .and_then(|()| functions.cuMemAddressFree(address, bytes));
                if let Err(error) = freed {
                    tracing::warn!(status = error.0, "cannot unmap host memory");
                }
            })
        })
    }
}

#[expect(clippy::undocumented_unsafe_blocks, reason = "said once for all, above")]
impl Driver {
    /// Reserves the window, if that has not been done. Fails for ever when the driver gives other addresses.
    pub(crate) fn open_window(&self) -> CuResult<()> {
        *self.device_window.0.lock().get_or_insert_with(|| {
            reserve_with_driver(
                self.functions,
                self.window_addresses.device.address,
                self.window_addresses.device.size,
            )?;
            if let Err(status) = self.map_in_front() {
                tracing::debug!(status = status.0, "no guard range in front of the device's memory");
            }
            Ok(())
        })
    }

    /// Maps memory of the first device in front of the client's part of the window, for all devices that
    /// reach it.
    fn map_in_front(&self) -> CuResult<()> {
        let devices = self.all_devices()?;
        let start = self.window_addresses.device.address;
        let first = *devices.first().ok_or(CUresult::CUDA_ERROR_NO_DEVICE)?;
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            location: on_device(first),
            ..CUmemAllocationProp::default()
        };
        let mut memory = 0;
        unsafe { self.functions.cuMemCreate(&mut memory, IN_FRONT as usize, &properties, 0)? };
        let mapped = unsafe { self.functions.cuMemMap(start, IN_FRONT as usize, 0, memory, 0) };
        // The mapping keeps the memory.
        unsafe { self.functions.cuMemRelease(memory)? };
        mapped?;
        self.open_to(start, IN_FRONT as usize, core::iter::once(first))?;
        for other in devices.into_iter().skip(1) {
            // One that does not reach the first has nothing there.
            let _ = self.open_to(start, IN_FRONT as usize, core::iter::once(other));
        }
        Ok(())
    }

    fn open_to(&self, address: u64, size: usize, devices: impl Iterator<Item = CUdevice>) -> CuResult<()> {
        let read_and_write = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access: Vec<_> = devices
            .map(|device| CUmemAccessDesc { location: on_device(device), flags: read_and_write })
            .collect();
        unsafe { self.functions.cuMemSetAccess(address, size, access.as_ptr(), access.len()) }
    }

    fn has_rdma(&self, device: CUdevice) -> bool {
        use causeway_api::sys::CUdevice_attribute as Attribute;
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
        let mut value = 0;
        let requested = unsafe { self.functions.cuDeviceGetAttribute(&mut value, attribute, device) };
        requested.is_ok() && value != 0
    }

    pub(crate) fn export_descriptor(&self, allocation: Native<Allocation>) -> CuResult<OwnedFd> {
        let mut descriptor = -1;
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        unsafe {
            let place = (&raw mut descriptor).cast();
            self.functions.cuMemExportToShareableHandle(place, allocation.value(), kind, 0)?;
        }
        if descriptor < 0 {
            return Err(CUresult::CUDA_ERROR_UNKNOWN);
        }
        // The driver made the descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    pub(crate) fn import_descriptor(&self, descriptor: &OwnedFd) -> CuResult<Native<Allocation>> {
        let mut handle = 0;
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // The number of a descriptor travels in the place of an address.
        let number = core::ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        unsafe { self.functions.cuMemImportFromShareableHandle(&mut handle, number, kind)? };
        Ok(Native::from_value(handle))
    }
}

/// Memory of another process's device. The steps are those of the driver's own documentation for importing a
/// shareable handle; the mapping keeps the memory, so that neither its handle nor its descriptor is needed
/// any more.
// SAFETY of the calls below: as above.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once for all, above")]
impl Driver {
    pub(crate) fn map_imported(
        &self,
        descriptor: &OwnedFd,
        size: usize,
        device: CUdevice,
    ) -> Result<ImportedMemory, ImportError> {
        let functions = self.functions;
        let handle = self.import_descriptor(descriptor).map_err(ImportError::Import)?.value();
        let mapped = self.reserve_anywhere(size).and_then(|address| {
            unsafe { functions.cuMemMap(address, size, 0, handle, 0) }
                .map_err(ImportError::Map)
                .and_then(|()| {
                    self.open_to(address, size, core::iter::once(device)).map_err(|error| {
                        // The first error is the one that counts.
                        let _ = unsafe { functions.cuMemUnmap(address, size) };
                        ImportError::Access(error)
                    })
                })
                .map(|()| address)
                .inspect_err(|_| {
                    // As above.
                    let _ = unsafe { functions.cuMemAddressFree(address, size) };
                })
        });
        if let Err(error) = unsafe { functions.cuMemRelease(handle) } {
            tracing::warn!(status = error.0, "cannot release a handle of another process's memory");
        }
        mapped.map(|address| ImportedMemory { address, size: size as u64 })
    }

    fn reserve_anywhere(&self, size: usize) -> Result<CUdeviceptr, ImportError> {
        let mut address = 0;
        let reserved = unsafe { self.functions.cuMemAddressReserve(&mut address, size, 0, 0, 0) };
        reserved.map(|()| address).map_err(ImportError::Addresses)
    }

    pub(crate) fn unmap_memory_of_peer(&self, address: CUdeviceptr, size: usize) -> CuResult<()> {
        unsafe {
            self.functions.cuMemUnmap(address, size)?;
            self.functions.cuMemAddressFree(address, size)
        }
    }
}
