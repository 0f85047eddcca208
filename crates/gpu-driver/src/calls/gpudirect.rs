//! GPU memory for network cards: which paths the driver offers, and the descriptors that stand for a range.

use crate::context;
use crate::driver::Driver;
use causeway_api::handle::Native;
use causeway_api::sys::{
    CUGPUDirectRDMAWritesOrdering_enum as Ordering, CUdevice, CUdevice_attribute as Attribute,
    CUflushGPUDirectRDMAWritesScope, CUflushGPUDirectRDMAWritesTarget, CUmemRangeHandleType, CUresult,
};
use causeway_gpu::CuResult;
use causeway_gpu::gpudirect::{
    GpuDirectChoice, GpuDirectFacts, GpuDirectMemory, GpuDirectPath, GpuDirectPaths, is_peermem_loaded,
};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

/// Ranges that become a dma-buf begin and end at pages of the host, which have this size on x86-64.
const PAGE: u64 = 4096;

/// The pages that hold a range: where they begin, and their bytes. Nothing for a range that is empty or has
/// no end.
fn pages_of(address: u64, bytes: usize) -> Option<(u64, usize)> {
    let start = address / PAGE * PAGE;
    let end = address.checked_add(bytes as u64)?.checked_next_multiple_of(PAGE)?;
    (bytes > 0).then(|| (start, (end - start) as usize))
}

impl Driver {
    pub(crate) fn find_gpudirect_paths(&self, device: CUdevice) -> GpuDirectPaths {
        let has = |attribute| self.number(device, attribute).is_ok_and(|value| value != 0);
        let facts = GpuDirectFacts {
            has_rdma: has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
            has_dma_buf: has(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
            has_peermem: is_peermem_loaded(Path::new("/sys")),
        };
        GpuDirectPaths::decide(GpuDirectChoice::from_environment(), facts)
    }

    fn number(&self, device: CUdevice, attribute: Attribute) -> CuResult<i32> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuDeviceGetAttribute(&mut value, attribute, device)? };
        Ok(value)
    }

    pub(crate) fn make_gpudirect_memory(
        &self,
        path: GpuDirectPath,
        address: u64,
        bytes: usize,
    ) -> CuResult<GpuDirectMemory> {
        match path {
            GpuDirectPath::HostMemory => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            GpuDirectPath::Peermem => Ok(GpuDirectMemory::Addresses),
            GpuDirectPath::DmaBuf => {
                let (start, size) = pages_of(address, bytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
                let descriptor = self.export_range(start, size)?;
                Ok(GpuDirectMemory::DmaBuf { descriptor, offset: address - start })
            }
        }
    }

    /// A dma-buf of whole pages.
    fn export_range(&self, start: u64, size: usize) -> CuResult<OwnedFd> {
        // Threads that receive bulk data have no current context; any of them knows the address.
        let context = match context::current(self.functions) {
            Ok(current) if current != Native::NULL => current,
            _ => self.contexts.any().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?,
        };
        let mut descriptor: i32 = -1;
        context::within(self.functions, context, || {
            let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
            let place = (&raw mut descriptor).cast();
            // SAFETY: there is room for a descriptor, which is what the driver writes for this kind.
            unsafe { self.functions.cuMemGetHandleForAddressRange(place, start, size, kind, 0) }
        })?;
        if descriptor < 0 {
            return Err(CUresult::CUDA_ERROR_UNKNOWN);
        }
        // SAFETY: the driver made the descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    pub(crate) fn flush_direct_writes(&self) -> CuResult<()> {
        let mut device: CUdevice = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCtxGetDevice(&mut device)? };
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING;
        let ordering = self.number(device, attribute).unwrap_or(0);
        if ordering >= Ordering::CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER.0.cast_signed() {
            return Ok(());
        }
        // SAFETY: no pointers.
        unsafe {
            self.functions.cuFlushGPUDirectRDMAWrites(
                CUflushGPUDirectRDMAWritesTarget::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                CUflushGPUDirectRDMAWritesScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_in_whole_pages() {
        assert_eq!(pages_of(0x1_0000, 4096), Some((0x1_0000, 4096)));
        assert_eq!(pages_of(0x1_0010, 4096), Some((0x1_0000, 8192)));
        assert_eq!(pages_of(0x1_0fff, 1), Some((0x1_0000, 4096)));
        assert_eq!(pages_of(0x1_0000, 0), None);
        assert_eq!(pages_of(u64::MAX - 10, 100), None);
        assert_eq!(pages_of(u64::MAX - 10, 5), None, "its last page ends where no address is");
    }
}
