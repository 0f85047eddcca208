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
    device: AtomicU64,
}

impl Place {
    /// Its address for the host; null if it has none.
    pub fn host(&self) -> *mut u8 {
        self.host.load(Ordering::Acquire)
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

impl Run<'_> {
    /// Makes a buffer; one of a pool in a stream.
    pub(super) fn make(&self, buffer: usize, stream: Option<Handle>) -> Result<(), Error> {
        let made = &self.program.buffers[buffer];
        let size = made.size;
        self.enter(made.device)?;
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
