//! Buffers of all kinds.

use super::Run;
use crate::driver::{Error, Handle};
use crate::interpret::store_words;
use crate::program::BufferKind;
use std::alloc::Layout;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Where a buffer is, while it exists.
#[derive(Default)]
pub struct Place {
    host: AtomicPtr<u8>,
    named: AtomicPtr<u8>,
    device: AtomicU64,
}

impl Place {
    /// Its address for code of the host; null if it has none.
    pub fn host(&self) -> *mut u8 {
        self.host.load(Ordering::Acquire)
    }

    /// Its address of the host by which copies name it; null if it has none.
    pub fn named(&self) -> *mut u8 {
        self.named.load(Ordering::Acquire)
    }

    /// Its address for kernels; 0 if it has none.
    pub fn device(&self) -> u64 {
        self.device.load(Ordering::Acquire)
    }
}

fn pages(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.next_multiple_of(4096), 4096).ok()
}

fn no_memory() -> Error {
    Error { call: "the allocator", code: 2 }
}

/// Whether a buffer's pages lie at two addresses: one that is registered and that copies name, and another
/// for code of the host, whose writes the first one's page table does not show.
fn is_twice(kind: BufferKind, buffer: usize) -> bool {
    kind == BufferKind::Registered && buffer % 2 == 1
}

/// Memory with two addresses.
fn map_twice(size: usize) -> Result<[*mut u8; 2], Error> {
    let length = pages(size).ok_or_else(no_memory)?.size();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new file and new mappings of it, at addresses of the system's choice.
    let places = unsafe {
        let file = libc::memfd_create(c"causeway-model".as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 || libc::ftruncate(file, length as libc::off_t) != 0 {
            return Err(no_memory());
        }
        let map = || libc::mmap(core::ptr::null_mut(), length, access, libc::MAP_SHARED, file, 0);
        let places = [map(), map()];
        libc::close(file);
        places
    };
    if places.contains(&libc::MAP_FAILED) { Err(no_memory()) } else { Ok(places.map(<*mut _>::cast)) }
}

impl Run<'_> {
    /// Makes a buffer; one of a pool in a stream.
    pub(super) fn make(&self, buffer: usize, stream: Option<Handle>) -> Result<(), Error> {
        let made = &self.program.buffers[buffer];
        let size = made.size;
        self.enter(made.device)?;
        let mut named = None;
        let (host, device) = match made.kind {
            BufferKind::Device => (core::ptr::null_mut(), self.machine.allocate(size)?),
            BufferKind::Pool => {
                let stream = stream.unwrap_or(core::ptr::null_mut());
                (core::ptr::null_mut(), self.machine.allocate_async(size, stream)?)
            }
            BufferKind::Pinned => (self.machine.allocate_host(size, false)?, 0),
            BufferKind::Mapped => {
                let host = self.machine.allocate_host(size, true)?;
                (host, self.machine.device_pointer(host)?)
            }
            BufferKind::Managed => {
                let address = self.machine.allocate_managed(size)?;
                (core::ptr::with_exposed_provenance_mut(address as usize), address)
            }
            BufferKind::Registered if is_twice(made.kind, buffer) => {
                let [registered, host] = map_twice(size)?;
                self.machine.register(registered, size)?;
                // As programs do whose kernels use it, too.
                self.machine.device_pointer(registered)?;
                named = Some(registered);
                (host, 0)
            }
            BufferKind::Registered | BufferKind::Pageable => {
                let layout = pages(size).ok_or_else(no_memory)?;
                // SAFETY: the layout's size is not 0.
                let host = unsafe { std::alloc::alloc_zeroed(layout) };
                if host.is_null() {
                    return Err(no_memory());
                }
                if made.kind == BufferKind::Registered {
                    self.machine.register(host, size)?;
                }
                (host, 0)
            }
        };
        self.places[buffer].host.store(host, Ordering::Release);
        self.places[buffer].named.store(named.unwrap_or(host), Ordering::Release);
        self.places[buffer].device.store(device, Ordering::Release);
        Ok(())
    }

    /// Makes a buffer that exists from the start, and gives it its contents.
    pub(super) fn make_initial(&self, buffer: usize) -> Result<(), Error> {
        self.make(buffer, None)?;
        let made = &self.program.buffers[buffer];
        let key = self.program.initial_key(buffer);
        if made.kind.is_device() {
            let mut bytes = vec![0; made.size];
            store_words(&mut bytes, key);
            self.machine.upload(self.places[buffer].device(), &bytes)
        } else {
            self.write_all(buffer, key);
            Ok(())
        }
    }

    /// Fills a buffer of the host with the words of a key.
    pub(super) fn write_all(&self, buffer: usize, key: u32) {
        let size = self.program.buffers[buffer].size;
        // SAFETY: the buffer was just made, and nobody knows it yet.
        store_words(unsafe { core::slice::from_raw_parts_mut(self.places[buffer].host(), size) }, key);
    }

    /// Ends a buffer if it exists; one of a pool in a stream, if one is given.
    pub(super) fn release(&self, buffer: usize, stream: Option<Handle>) -> Result<(), Error> {
        let place = &self.places[buffer];
        let host = place.host.swap(core::ptr::null_mut(), Ordering::AcqRel);
        let named = place.named.swap(core::ptr::null_mut(), Ordering::AcqRel);
        let device = place.device.swap(0, Ordering::AcqRel);
        if host.is_null() && device == 0 {
            return Ok(());
        }
        let made = &self.program.buffers[buffer];
        self.enter(made.device)?;
        match (made.kind, stream) {
            (BufferKind::Pool, Some(stream)) => self.machine.free_async(device, stream),
            (BufferKind::Device | BufferKind::Pool | BufferKind::Managed, _) => self.machine.free(device),
            (BufferKind::Pinned | BufferKind::Mapped, _) => self.machine.free_host(host),
            (BufferKind::Registered, _) if is_twice(made.kind, buffer) => {
                self.machine.unregister(named)?;
                let length = pages(made.size).ok_or_else(no_memory)?.size();
                for place in [host, named] {
                    // SAFETY: mapped with this length, and nobody uses it any more.
                    unsafe { libc::munmap(place.cast(), length) };
                }
                Ok(())
            }
            (BufferKind::Registered | BufferKind::Pageable, _) => {
                if made.kind == BufferKind::Registered {
                    self.machine.unregister(host)?;
                }
                let layout = pages(made.size).ok_or_else(no_memory)?;
                // SAFETY: it was allocated with this layout, and nobody uses it any more.
                unsafe { std::alloc::dealloc(host, layout) };
                Ok(())
            }
        }
    }
}
