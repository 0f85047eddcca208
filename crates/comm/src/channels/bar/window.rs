//! One BAR mapping of a range of GPU memory.

use core::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::error::BarError;
use super::gdrdrv::{Gdrdrv, Handle};
use super::mmio;
use crate::cuda::{self, DeviceMemory, Scope};

/// Pages of a GPU: what gdrdrv pins begins and ends with one.
pub(super) const GPU_PAGE: u64 = 64 << 10;

/// By what a BAR is mapped.
#[derive(Debug, Clone, Copy)]
pub(super) enum MappingMethod {
    Gdrdrv(&'static Gdrdrv),
    /// The driver itself, whose dma-bufs can be mapped.
    DmaBuf,
}

/// A range of addresses of a GPU that is mapped here.
#[derive(Debug)]
pub(super) struct Window {
    /// The GPU's address of its first byte.
    pub(super) start: u64,
    pub(super) bytes: usize,
    mapped: *mut c_void,
    pinning: Pinning,
}

#[derive(Debug)]
enum Pinning {
    Pinned(&'static Gdrdrv, Handle),
    DmaBuf(OwnedFd),
}

// SAFETY: a window gives out its address and no references.
unsafe impl Send for Window {}
// SAFETY: the same; nothing of it changes as long as it is mapped.
unsafe impl Sync for Window {}

/// In which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    FromGpu,
    ToGpu,
}

impl Window {
    /// Maps a range of an allocation, and the pages of the GPU that it touches; of a dma-buf all of it. Needs
    /// the allocation's scope.
    pub(super) fn new(
        mapping_method: MappingMethod,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        start: u64,
        bytes: u64,
    ) -> Result<Self, BarError> {
        match mapping_method {
            MappingMethod::Gdrdrv(module) => {
                let first = start / GPU_PAGE * GPU_PAGE;
                let end = start.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(GPU_PAGE));
                let length = usize::try_from(end.ok_or(BarError::Outside)? - first);
                let length = length.map_err(|_| BarError::Outside)?;
                let handle = module.pin(first, length)?;
                let (descriptor, offset) = module.mapping_offset(handle);
                match map(descriptor, length, offset) {
                    Ok(mapped) => {
                        let pinning = Pinning::Pinned(module, handle);
                        Ok(Self { start: first, bytes: length, mapped, pinning })
                    }
                    Err(error) => {
                        module.unpin(handle);
                        Err(error)
                    }
                }
            }
            MappingMethod::DmaBuf => {
                let (descriptor, offset) = cuda::dma_buf(scope, memory).map_err(BarError::NoDmaBuf)?;
                let length = usize::try_from(memory.bytes + offset).map_err(|_| BarError::Outside)?;
                let mapped = map(descriptor.as_raw_fd(), length, 0)?;
                let pinning = Pinning::DmaBuf(descriptor);
                Ok(Self { start: memory.start - offset, bytes: length, mapped, pinning })
            }
        }
    }

    /// Where an address of the GPU is mapped, if so many bytes are from there on.
    pub(super) fn mapped_at(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let contains = offset < self.bytes && bytes <= self.bytes - offset;
        contains.then(|| self.mapped.cast::<u8>().wrapping_add(offset))
    }

    /// Copies between the GPU's memory from an address on and memory of the host, with the processor.
    ///
    /// # Safety
    /// `host` is valid for so many bytes of the host's memory. No other code writes what is read, or uses
    /// what is written.
    pub(super) unsafe fn copy(
        &self,
        on_gpu: u64,
        host: *mut u8,
        bytes: usize,
        direction: Direction,
    ) -> Result<(), BarError> {
        let mapped = self.mapped_at(on_gpu, bytes).ok_or(BarError::Outside)?;
        let writes = direction == Direction::ToGpu;
        self.synchronise(writes, false);
        // SAFETY: so many bytes are mapped; the host's are as promised by the caller.
        unsafe {
            match direction {
                Direction::FromGpu => mmio::read(mapped, host, bytes),
                Direction::ToGpu => mmio::write(host, mapped, bytes),
            }
        }
        self.synchronise(writes, true);
        Ok(())
    }

    /// Makes what devices have written seen by the processor, or the other way round, where the kernel asks
    /// for that.
    fn synchronise(&self, writes: bool, ends: bool) {
        /// `DMA_BUF_IOCTL_SYNC`, and the flags of what it is told.
        const SYNC: c_ulong = 0x4008_6200;
        const READ: u64 = 1;
        const WRITE: u64 = 2;
        const END: u64 = 4;
        if let Pinning::DmaBuf(descriptor) = &self.pinning {
            let flags: u64 = if writes { WRITE } else { READ } | if ends { END } else { 0 };
            // SAFETY: the request's structure is one number. Where the exporter knows no such request there
            // is nothing to be done.
            unsafe { libc::ioctl(descriptor.as_raw_fd(), SYNC, &raw const flags) };
        }
    }
}

fn map(descriptor: c_int, bytes: usize, offset: i64) -> Result<*mut c_void, BarError> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let mapped =
        unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, descriptor, offset) };
    if mapped == libc::MAP_FAILED {
        return Err(BarError::Map { bytes, cause: io::Error::last_os_error() });
    }
    // SAFETY: the range was mapped above. A child has no use for it.
    unsafe { libc::madvise(mapped, bytes, libc::MADV_DONTFORK) };
    Ok(mapped)
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped by this, and given out to nobody who still uses it.
        unsafe { libc::munmap(self.mapped, self.bytes) };
        if let Pinning::Pinned(module, handle) = &self.pinning {
            module.unpin(*handle);
        }
    }
}
