//! Memory of GPUs: what a message in it needs of the driver.
//!
//! The driver is the one that NCCL itself has loaded. Within a host a receiver maps the memory that the sender exports as
//! a descriptor, and copies from GPU to GPU. Elsewhere bytes pass through blocks of pinned memory of the host.

use core::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;

use causeway_cuda::{
    CudaError, DeviceMemory, Driver, GpuAccess, GpuNumber, Mapping, PendingCopy, Scope, abilities,
    export_unordered, gpu_access, gpu_number,
};
use causeway_sync::threads;
use thiserror::Error;

use crate::{log, staging_block};

/// Copies of a communicator at a time.
pub const MAX_COPIES: usize = 8;

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

    /// Makes what a communicator's copies need, before kernels wait for them: the context's stream, events, and pinned
    /// blocks.
    ///
    /// # Errors
    /// What the driver says.
    pub fn prepare(&self) -> Result<(), CudaError> {
        if self.memory.belongs_to_context() && !Driver::is_remote() {
            log::warn(
                "memory of cudaMalloc is sent by the plugin: another thread that frees memory delays its \
                 copies, and deadlocks with them if it waits for NCCL's kernel; with NCCL_CUMEM_ENABLE=1, \
                 NCCL uses other memory",
            );
        }
        let scope = self.scope()?;
        scope.prepare_copies(MAX_COPIES)?;
        // Not for GPUs elsewhere, whose copies pass through staging memory of their own.
        if !Driver::is_remote() {
            staging_block::pin_more(&scope, MAX_COPIES);
        }
        Ok(())
    }

    /// A descriptor by which another process maps the allocation; none where it has none.
    pub fn export(&self) -> Option<OwnedFd> {
        // NCCL's kernels may wait for the caller, and no copy of the program's is looked for: NCCL orders its own.
        self.memory.exportable.then(|| export_unordered(self.driver, &self.memory).ok()).flatten()
    }

    /// Whether both lie on one device.
    pub fn is_on_device_of(&self, other: &Self) -> bool {
        self.memory.device == other.memory.device
    }

    /// The GPU that it lies on, by a number that all processes know; 0 where the driver does not say.
    pub fn gpu(&self) -> GpuNumber {
        gpu_number(self.driver, self.memory.device).unwrap_or(0)
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
        // SAFETY: the caller keeps both addresses valid for `bytes` bytes until the copy is done.
        unsafe { PendingCopy::begin(&self.scope()?, to, from, bytes) }
    }

    /// Begins a copy from memory of the host to this.
    ///
    /// # Safety
    /// As of [`copy`](Self::copy).
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn copy_from_host(&self, to: u64, from: u64, bytes: usize) -> Result<PendingCopy, CudaError> {
        // SAFETY: the caller keeps both addresses valid for `bytes` bytes until the copy is done.
        unsafe { PendingCopy::begin_from_host(&self.scope()?, to, from, bytes) }
    }

    /// Where its copies are made: kernels of the program may wait for them while other threads wait for kernels.
    fn scope(&self) -> Result<Scope<'static>, CudaError> {
        Scope::of_copies(self.driver, self.memory.device)
    }
}

/// Memory that a peer has exported.
pub struct ImportedMemory {
    /// None where the system had no descriptor left for it.
    descriptor: Option<OwnedFd>,
    /// The GPU that it lies on.
    gpu: GpuNumber,
    bytes: u64,
    /// It is mapped for the device of the receiver's memory; none where that cannot be.
    mapping: OnceLock<Option<Mapping>>,
}

/// Why exported memory is not copied from.
#[derive(Debug, Error)]
pub enum MapError {
    /// Its GPU is none of this process's, or not reached by its.
    #[error(
        "this process does not see the sender's GPU, or its own GPU cannot access it: let each process see \
         all GPUs (`--gpus all` for containers, no CUDA_VISIBLE_DEVICES) and choose its own by number"
    )]
    Unseen,
    /// It did not come along.
    #[error("this process has no file descriptor left for the sender's memory: raise `ulimit -n`")]
    NoDescriptor,
    /// The driver refuses.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// What imported memory is good for.
pub enum ImportState {
    /// A copy can be made from this address on.
    Mapped(u64),
    /// It is going to be mapped.
    Unmapped,
    /// The device does not reach it.
    Unreachable,
}

impl ImportedMemory {
    /// With the GPU and the size that the peer says; the driver checks the size.
    pub fn new(descriptor: Option<OwnedFd>, gpu: GpuNumber, bytes: u64) -> Self {
        Self { descriptor, gpu, bytes, mapping: OnceLock::new() }
    }

    /// Bytes, as the peer says.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a device here can copy from it.
    pub fn state(&self) -> ImportState {
        match self.mapping.get() {
            Some(Some(mapping)) => ImportState::Mapped(mapping.address),
            Some(None) => ImportState::Unreachable,
            None => ImportState::Unmapped,
        }
    }

    /// Maps it for the device that `memory` lies on, unless it is mapped: a set-up call of the driver, not for a thread
    /// that kernels wait for.
    ///
    /// # Errors
    /// Why messages in it pass through the host.
    pub fn map_for(&self, memory: &GpuMemory) -> Result<(), MapError> {
        let mut result = Ok(());
        self.mapping.get_or_init(|| self.import_for(memory).map_err(|error| result = Err(error)).ok());
        result
    }

    fn import_for(&self, memory: &GpuMemory) -> Result<Mapping, MapError> {
        let (driver, device) = (memory.driver, memory.memory.device);
        // From a GPU that the driver does not know it copies by multiprocessors, which take turns of up to 2.4 ms with the
        // kernel that waits for the copy (two H200). So it does within one GPU, where processes take turns in any case.
        if gpu_access(driver, device, self.gpu) != GpuAccess::Peer {
            return Err(MapError::Unseen);
        }
        let descriptor = self.descriptor.as_ref().ok_or(MapError::NoDescriptor)?;
        let bytes = usize::try_from(self.bytes).map_err(|_| CudaError::UNKNOWN_MEMORY)?;
        let _scope = memory.scope()?;
        Ok(Mapping::import(driver, descriptor.as_fd(), bytes, device)?)
    }
}

impl Drop for ImportedMemory {
    fn drop(&mut self) {
        // On a thread of its own: this may be one that kernels wait for.
        if let Some(mapping) = self.mapping.take().flatten() {
            // Without a thread it stays mapped.
            let mut mapping = ManuallyDrop::new(mapping);
            // SAFETY: dropped once, here or never.
            let _ = threads::spawn("nccl-unmap", move || unsafe { ManuallyDrop::drop(&mut mapping) });
        }
    }
}
