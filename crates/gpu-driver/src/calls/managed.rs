//! Managed memory: memory of a device at an address of the client's choice, so that kernels have it at full
//! speed. This process has its bytes by copies, in a stream that waits for nothing.

use crate::block_hasher::BlockHasher;
use crate::context;
use crate::driver::Driver;
use crate::functions::Functions;
use crate::window::reserve_with_driver;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{
    CUdevice, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUresult, CUstream, CUstream_flags,
};
use causeway_gpu::block_hash::MAX_BYTES;
use causeway_gpu::{CuResult, DeviceBytes};
use std::sync::Arc;

/// Device memory is mapped in multiples of this (H200, driver 580); other devices refuse, and their clients
/// use host memory.
const GRANULARITY: usize = 2 << 20;

/// A piece of managed memory. What has been made of it so far goes with it.
struct Managed {
    functions: &'static Functions,
    context: Native<Context>,
    address: usize,
    bytes: usize,
    is_mapped: bool,
    stream: CUstream,
    hasher: Arc<BlockHasher>,
}

// SAFETY: the stream is a handle of the driver, which any thread may use with its context current.
unsafe impl Send for Managed {}

impl Driver {
    /// Memory of the current context's device at `address`, where the device and its neighbours allow that.
    pub(crate) fn on_device(&self, address: u64, bytes: usize) -> CuResult<Box<dyn DeviceBytes>> {
        let (start, size) = self.window_addresses.managed;
        let length = bytes.checked_next_multiple_of(GRANULARITY).filter(|length| *length > 0);
        let length = length.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let end = address.checked_add(length as u64);
        let is_within = address >= start && end.is_some_and(|end| end <= start + size);
        if !is_within || !address.is_multiple_of(GRANULARITY as u64) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        (*self
            .managed_window
            .0
            .lock()
            .get_or_insert_with(|| reserve_with_driver(self.functions, start, size)))?;
        let context = context::current(self.functions)?;
        let mut managed = Managed {
            functions: self.functions,
            context,
            hasher: self.block_hashers.of(self.functions, context),
            address: address as usize,
            bytes: length,
            is_mapped: false,
            stream: core::ptr::null_mut(),
        };
        managed.make()?;
        Ok(Box::new(managed))
    }
}

impl Managed {
    fn make(&mut self) -> CuResult<()> {
        let (driver, length, address) = (self.functions, self.bytes, self.address as u64);
        let (mut device, mut memory) = (0, 0);
        // SAFETY: results are locals.
        unsafe { driver.cuCtxGetDevice(&mut device)? };
        let access = self.access(device)?;
        // SAFETY: results and descriptions are locals; the range is one of the window, and the driver refuses
        // one that is in use.
        unsafe {
            let properties = CUmemAllocationProp {
                type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
                location: location(device),
                ..CUmemAllocationProp::default()
            };
            driver.cuMemCreate(&mut memory, length, &properties, 0)?;
            let mapped = driver.cuMemMap(address, length, 0, memory, 0);
            // The mapping keeps the memory.
            driver.cuMemRelease(memory)?;
            mapped?;
            self.is_mapped = true;
            driver.cuMemSetAccess(address, length, access.as_ptr(), access.len())?;
            driver.cuStreamCreate(&mut self.stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0)?;
            driver.cuMemsetD8Async(address, 0, length, self.stream)?;
            driver.cuStreamSynchronize(self.stream)
        }
    }

    /// Access for every device; an error where one of them does not reach the memory.
    fn access(&self, device: CUdevice) -> CuResult<Vec<CUmemAccessDesc>> {
        let mut count = 0;
        // SAFETY: the result is a local.
        unsafe { self.functions.cuDeviceGetCount(&mut count)? };
        for other in (0..count).filter(|other| *other != device) {
            let mut reaches = 0;
            // SAFETY: the result is a local.
            unsafe { self.functions.cuDeviceCanAccessPeer(&mut reaches, other, device)? };
            if reaches == 0 {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
        }
        let description = |device| CUmemAccessDesc {
            location: location(device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        Ok((0..count).map(description).collect())
    }
}

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

impl DeviceBytes for Managed {
    fn read(&self, at: usize, into: &mut [u8]) -> CuResult<()> {
        debug_assert!(at + into.len() <= self.bytes, "the engine reads inside the memory");
        self.hasher.note_copied(into.len());
        context::within(self.functions, self.context, || {
            // SAFETY: the range lies in the memory, and `into` is borrowed until the copy is done.
            unsafe {
                let from = (self.address + at) as u64;
                self.functions.cuMemcpyDtoHAsync_v2(
                    into.as_mut_ptr().cast(),
                    from,
                    into.len(),
                    self.stream,
                )?;
                self.functions.cuStreamSynchronize(self.stream)
            }
        })
    }

    fn write(&self, at: usize, bytes: &[u8]) -> CuResult<()> {
        debug_assert!(at + bytes.len() <= self.bytes, "the engine writes inside the memory");
        context::within(self.functions, self.context, || {
            // SAFETY: the range lies in the memory, and `bytes` is borrowed until the copy is done.
            unsafe {
                let to = (self.address + at) as u64;
                self.functions.cuMemcpyHtoDAsync_v2(
                    to,
                    bytes.as_ptr().cast_mut().cast(),
                    bytes.len(),
                    self.stream,
                )?;
                self.functions.cuStreamSynchronize(self.stream)
            }
        })
    }

    fn block_hashes(&self, at: usize, bytes: usize) -> Option<CuResult<Vec<u128>>> {
        debug_assert!(at + bytes <= self.bytes, "the engine reads inside the memory");
        // All of the last pair of words is mapped: as zeros, unless a kernel has written behind its memory.
        let (address, bytes) = ((self.address + at) as u64, bytes.next_multiple_of(16));
        if bytes > MAX_BYTES {
            return None;
        }
        // SAFETY: the part lies in the memory, which the engine frees when the device is idle.
        unsafe { self.hasher.hashes(address, bytes) }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let (address, length) = (self.address as u64, self.bytes);
        let undone = context::within(self.functions, self.context, || {
            // SAFETY: made by `make`, each part is undone once; the engine lets go when the device is idle.
            unsafe {
                if !self.stream.is_null() {
                    self.functions.cuStreamDestroy_v2(self.stream)?;
                }
                if self.is_mapped {
                    self.functions.cuMemUnmap(address, length)?;
                }
                Ok(())
            }
        });
        if let Err(status) = undone {
            tracing::warn!(status = status.0, "cannot release managed memory");
        }
    }
}
