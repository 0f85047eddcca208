//! Buffers on both sides, and what is written into them.

use core::ffi::c_void;
use std::alloc::{Layout, alloc_zeroed, dealloc};

use super::driver::{DriverError, Gpu, Handle, cuda};
use crate::machine::PAGE;

/// Memory on a device; freed with this value.
#[derive(Debug)]
pub struct DeviceMemory {
    gpu: &'static Gpu,
    context: Handle,
    address: u64,
}

impl DeviceMemory {
    /// Memory of the context that is current, which is `context`.
    pub fn new(gpu: &'static Gpu, context: Handle, bytes: usize) -> Result<Self, DriverError> {
        let mut address = 0;
        cuda!(gpu, cuMemAlloc_v2(&mut address, bytes))?;
        Ok(Self { gpu, context, address })
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // A failure has nobody to be told to, and the memory goes with the process anyway.
        let _ = self.gpu.enter(self.context).and_then(|()| cuda!(self.gpu, cuMemFree_v2(self.address)));
        let _ = self.gpu.enter(self.gpu.context);
    }
}

/// Memory of the host; freed with this value.
#[derive(Debug)]
pub struct HostMemory {
    start: *mut u8,
    bytes: usize,
    /// The driver that pinned it; none for pageable memory.
    pinned: Option<&'static Gpu>,
}

impl HostMemory {
    /// Memory as programs get it from the system, at the beginning of a page.
    pub fn pageable(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Self { start, bytes, pinned: None }
    }

    /// Memory from `cuMemHostAlloc`.
    pub fn pinned(gpu: &'static Gpu, bytes: usize) -> Result<Self, DriverError> {
        let mut start: *mut c_void = core::ptr::null_mut();
        cuda!(gpu, cuMemHostAlloc(&mut start, bytes, 0))?;
        // SAFETY: the driver gave this much memory.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { start: start.cast(), bytes, pinned: Some(gpu) })
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes.max(1), PAGE).expect("sizes of copies are far below the address space")
    }

    /// Its first byte, or one behind it.
    pub fn at(&self, offset: usize) -> *mut c_void {
        assert!(offset < self.bytes, "an address outside of the buffer");
        // SAFETY: the offset lies in the buffer.
        unsafe { self.start.add(offset).cast() }
    }

    /// What is in it, to be changed. No copy may be under way.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory has been written, belongs to this value, and the borrow is the only one.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        match self.pinned {
            // A failure has nobody to be told to, and the memory goes with the process anyway.
            Some(gpu) => drop(cuda!(gpu, cuMemFreeHost(self.start.cast()))),
            // SAFETY: it was allocated with this layout.
            None => unsafe { dealloc(self.start, Self::layout(self.bytes)) },
        }
    }
}
