//! BAR mappings of GPU memory: by what they are made, one of them, and the cache of them, through which bytes
//! are copied.

use core::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::gdrdrv::{BarError, Gdrdrv, Handle};
use super::mmio;
use crate::cuda::{self, DeviceMemory, Driver, Scope};

/// By what this process maps a GPU's BAR, or why it cannot. Found out once, with the first memory that is
/// asked about.
pub(crate) fn usable(driver: &'static Driver, memory: &DeviceMemory) -> Result<(), &'static str> {
    mapping_method(driver, memory).map(drop)
}

pub(super) fn mapping_method(
    driver: &'static Driver,
    memory: &DeviceMemory,
) -> Result<MappingMethod, &'static str> {
    static METHOD: OnceLock<Result<MappingMethod, String>> = OnceLock::new();
    if memory.is_managed {
        return Err("managed memory moves between host and GPU, and has no fixed address in the BAR");
    }
    METHOD
        .get_or_init(|| find(driver, memory))
        .as_ref()
        .map(|mapping_method| *mapping_method)
        .map_err(String::as_str)
}

fn find(driver: &'static Driver, memory: &DeviceMemory) -> Result<MappingMethod, String> {
    if Driver::is_remote() {
        return Err(BarError::Remote.to_string());
    }
    let no_module = match Gdrdrv::open() {
        // It is used until the process ends.
        Ok(module) => return Ok(MappingMethod::Gdrdrv(Box::leak(Box::new(module)))),
        Err(error) => error,
    };
    // Whether dma-bufs can be mapped is not told, but tried.
    let mapped = match Scope::of(driver, memory) {
        Ok(scope) => Window::new(MappingMethod::DmaBuf, &scope, memory, memory.start, memory.bytes).map(drop),
        Err(error) => Err(BarError::NoDmaBuf(error)),
    };
    mapped.map(|()| MappingMethod::DmaBuf).map_err(|error| format!("{no_module}; and {error}"))
}

/// Whether GDRCOPY's module is there, by the files below a root.
pub(crate) fn has_module(root: &Path) -> bool {
    root.join("dev/gdrdrv").exists()
}

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
// SAFETY: a window gives out its address and no references, and nothing of it changes as long as it is
// mapped.
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
        // SAFETY: so many bytes are mapped, and the caller has as many valid on the host.
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
        /// `DMA_BUF_IOCTL_SYNC`, and its flags.
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

/// Parts of memory that stay mapped, at most. Their bytes take up room in the BAR, which is small on many
/// GPUs.
const MAX_WINDOWS: usize = 16;

/// Bytes of a part of an allocation, which are mapped together.
const WINDOW_BYTES: u64 = 4 << 20;

/// Mapped parts of allocations.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// The one that was used last stands at the end.
    known: Vec<Known>,
}

/// A part that is mapped.
#[derive(Debug)]
struct Known {
    /// The number of the buffer. It is never given again, so that a part may be useless, and is never another
    /// buffer's.
    buffer: u64,
    /// Where the buffer begins.
    start: u64,
    window: Arc<Window>,
}

impl Windows {
    /// Copies memory of a GPU to memory of the host, with the processor.
    ///
    /// # Safety
    /// `to` is valid for so many bytes of the host's memory, which no other code uses, and nobody writes the
    /// others.
    pub(crate) unsafe fn read(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        from: u64,
        to: u64,
        bytes: usize,
    ) -> Result<(), BarError> {
        // SAFETY: the caller has `bytes` bytes of the host at `to`, which no other code uses, and nobody
        // writes the GPU's meanwhile.
        unsafe { self.copy(scope, memory, from, to, bytes, Direction::FromGpu) }
    }

    /// Copies memory of the host to memory of a GPU, with the processor.
    ///
    /// # Safety
    /// `from` is valid for so many bytes of the host's memory, which nobody writes, and nobody uses the
    /// others.
    pub(crate) unsafe fn write(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<(), BarError> {
        // SAFETY: the caller has `bytes` bytes of the host at `from`, which nobody writes, and nobody uses
        // the GPU's meanwhile.
        unsafe { self.copy(scope, memory, to, from, bytes, Direction::ToGpu) }
    }

    /// # Safety
    /// As of the two above.
    unsafe fn copy(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        on_gpu: u64,
        on_host: u64,
        bytes: usize,
        direction: Direction,
    ) -> Result<(), BarError> {
        if !memory.has(on_gpu, bytes as u64) {
            return Err(BarError::Outside);
        }
        let mut done = 0;
        while done < bytes {
            let at = on_gpu + done as u64;
            // At most WINDOW_BYTES.
            let left = (WINDOW_BYTES - (at - memory.start) % WINDOW_BYTES) as usize;
            let some = left.min(bytes - done);
            let host = (on_host + done as u64) as *mut u8;
            // SAFETY: a part of what the caller vouches for, on the host and on the GPU.
            unsafe { self.part(scope, memory, at)?.copy(at, host, some, direction) }?;
            done += some;
        }
        Ok(())
    }

    /// The window in which the part of an allocation lies that has an address, if it is mapped.
    pub(super) fn find(&mut self, memory: &DeviceMemory, address: u64) -> Option<Arc<Window>> {
        let is_it =
            |known: &Known| known.buffer == memory.buffer && known.window.mapped_at(address, 1).is_some();
        let known = self.known.remove(self.known.iter().position(is_it)?);
        let window = Arc::clone(&known.window);
        self.known.push(known);
        Some(window)
    }

    /// The same, which is mapped if it is not.
    pub(super) fn part(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        address: u64,
    ) -> Result<Arc<Window>, BarError> {
        if let Some(window) = self.find(memory, address) {
            return Ok(window);
        }
        let window = Arc::new(self.open(scope, memory, address)?);
        let (buffer, start) = (memory.buffer, memory.start);
        self.known.push(Known { buffer, start, window: Arc::clone(&window) });
        Ok(window)
    }

    fn open(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        address: u64,
    ) -> Result<Window, BarError> {
        let driver = scope.driver();
        // Memory that the program has freed goes before more is mapped, and then what was not used for
        // longest.
        let lives = |known: &Known| {
            DeviceMemory::at(driver, known.start).is_some_and(|there| there.buffer == known.buffer)
        };
        self.known.retain(lives);
        if self.known.len() == MAX_WINDOWS {
            self.known.remove(0);
        }
        let mapping_method = mapping_method(driver, memory).map_err(BarError::Unusable)?;
        let start = memory.start + (address - memory.start) / WINDOW_BYTES * WINDOW_BYTES;
        let bytes = WINDOW_BYTES.min(memory.start + memory.bytes - start);
        Window::new(mapping_method, scope, memory, start, bytes).or_else(|error| {
            // The BAR may be full.
            if self.known.is_empty() {
                return Err(error);
            }
            self.known.clear();
            Window::new(mapping_method, scope, memory, start, bytes)
        })
    }
}
