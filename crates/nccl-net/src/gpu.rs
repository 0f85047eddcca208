//! Memory of GPUs: what a message in it needs of the driver.
//!
//! The driver is the one that NCCL itself has loaded. Within a host a receiver maps the memory that the sender exports as
//! a descriptor, and copies from GPU to GPU. Elsewhere bytes pass through blocks of pinned memory of the host.

use core::ptr::NonNull;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use causeway_cuda::{
    CudaError, DeviceMemory, Driver, Mapping, PendingCopy, Pinned, Scope, abilities, export_unordered,
};
use causeway_sync::threads;

/// Bytes of a block through which a part of a message passes.
pub const STAGING_BYTES: usize = 512 << 10;

/// Blocks that are kept for further parts.
const MAX_FREE_BLOCKS: usize = 64;

/// The driver, where memory of its GPUs can be sent. One whose GPUs are elsewhere counts if `remote`.
pub fn driver(remote: bool) -> Option<&'static Driver> {
    let driver = Driver::loaded()?;
    // Every machine with a GPU has a first one.
    (remote || !Driver::is_remote()).then_some(driver).filter(|driver| abilities(driver, 0).export)
}

/// Memory of a GPU that NCCL has registered.
#[derive(Debug, Clone, Copy)]
pub struct GpuMemory {
    driver: &'static Driver,
    memory: DeviceMemory,
}

impl GpuMemory {
    /// The memory at an address.
    ///
    /// # Errors
    /// When the driver knows no memory of a GPU there.
    pub fn at(driver: &'static Driver, address: u64) -> Result<Self, CudaError> {
        let memory = DeviceMemory::at(driver, address).ok_or(CudaError::UNKNOWN_MEMORY)?;
        Ok(Self { driver, memory })
    }

    /// A descriptor by which another process maps the allocation; none where it has none.
    pub fn export(&self) -> Option<OwnedFd> {
        // NCCL's kernels may wait for the caller, and no copy of the program's is looked for: NCCL orders its own.
        self.memory.exportable.then(|| export_unordered(self.driver, &self.memory).ok()).flatten()
    }

    /// Bytes of the allocation.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Where in the allocation a range begins, if it is in it.
    pub fn offset_of(&self, address: u64, bytes: u64) -> Option<u64> {
        self.memory.has(address, bytes).then(|| address - self.memory.start)
    }

    /// Begins a copy between any memory and this.
    ///
    /// # Safety
    /// Both addresses are valid for so many bytes, or addresses of a GPU, until the copy is done.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<PendingCopy, CudaError> {
        let scope = Scope::of(self.driver, &self.memory)?;
        // SAFETY: as promised by the caller.
        unsafe { PendingCopy::begin(&scope, to, from, bytes) }
    }
}

/// Memory that a peer has exported.
pub struct ImportedMemory {
    descriptor: OwnedFd,
    bytes: u64,
    /// It is mapped when a device here first copies from it.
    mapping: Option<Arc<Mapping>>,
}

impl ImportedMemory {
    /// With the size that the peer says; the driver checks it.
    pub fn new(descriptor: OwnedFd, bytes: u64) -> Self {
        Self { descriptor, bytes, mapping: None }
    }

    /// Bytes, as the peer says.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a device here has copied from it.
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// The memory, mapped for the device that `memory` lies on.
    ///
    /// # Errors
    /// What the driver says: when the device does not reach it, or there are not so many bytes.
    pub fn map_for(&mut self, memory: &GpuMemory) -> Result<Arc<Mapping>, CudaError> {
        let device = memory.memory.device;
        let _scope = Scope::of(memory.driver, &memory.memory)?;
        let mapping = match &self.mapping {
            Some(mapping) => Arc::clone(mapping),
            None => {
                let bytes = usize::try_from(self.bytes).map_err(|_| CudaError::UNKNOWN_MEMORY)?;
                let mapping = Mapping::import(memory.driver, self.descriptor.as_fd(), bytes, device)?;
                Arc::clone(self.mapping.insert(Arc::new(mapping)))
            }
        };
        mapping.let_use(device)?;
        Ok(mapping)
    }
}

/// Unmaps imported memory on a thread of its own: the driver may wait for kernels meanwhile, which wait for messages.
pub fn unmap_later(memory: ImportedMemory) {
    // Without a thread it is unmapped here.
    let _ = threads::spawn("nccl-unmap", move || drop(memory));
}

/// A block of memory of the host, pinned where the driver lets it be.
pub struct StagingBlock {
    memory: NonNull<u8>,
    pinned: Option<Pinned>,
}

// SAFETY: the memory is this block's alone.
unsafe impl Send for StagingBlock {}

/// Blocks that are used again.
static FREE: Mutex<Vec<StagingBlock>> = Mutex::new(Vec::new());

impl StagingBlock {
    /// One of [`STAGING_BYTES`], to be used with this memory.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn take(memory: &GpuMemory) -> Result<Self, CudaError> {
        if let Some(block) = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(block);
        }
        let scope = Scope::of(memory.driver, &memory.memory)?;
        // SAFETY: new pages, wherever the system has room.
        let pages = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                STAGING_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let pages = NonNull::new(pages).filter(|pages| pages.as_ptr() != libc::MAP_FAILED);
        let pages = pages.ok_or(CudaError { call: "mmap", code: 2 })?.cast();
        // Not for GPUs elsewhere, whose copies pass through staging memory of their own.
        let pins = !Driver::is_remote();
        // SAFETY: the pages stay until the block goes, which ends the registration first.
        let pinned = pins.then(|| unsafe { Pinned::new(&scope, pages.as_ptr() as u64, STAGING_BYTES) }.ok());
        Ok(Self { memory: pages, pinned: pinned.flatten() })
    }

    /// Its first byte.
    pub fn memory(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Keeps it for another part.
    pub fn release(self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MAX_FREE_BLOCKS {
            free.push(self);
        }
    }
}

impl Drop for StagingBlock {
    fn drop(&mut self) {
        self.pinned = None;
        // SAFETY: the pages that `take` has mapped.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), STAGING_BYTES) };
    }
}
