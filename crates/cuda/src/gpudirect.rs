//! What makes memory of a GPU reachable for other devices, in drivers that have it.

use core::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::OnceLock;

use super::device::writes_are_ordered;
use super::entry_points::{CudaError, Library, NOT_SUPPORTED};
use super::memory::DeviceMemory;
use super::scope::Scope;
use crate::entry_points;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF: c_int = 1;

/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX`, and `..._TO_OWNER`.
const CURRENT_CONTEXT: c_int = 0;
const TO_OWNER: c_int = 100;

/// Pages of the host, of which a dma-buf has whole ones.
const PAGE: u64 = 4096;

entry_points! {
    /// Functions of CUDA 11.7 and later.
    struct Newer {
        range_handle: c"cuMemGetHandleForAddressRange" (
            handle: *mut c_void, address: u64, bytes: usize, handle_type: c_int, flags: u64
        );
        flush_writes: c"cuFlushGPUDirectRDMAWrites" (target: c_int, scope: c_int);
    }
}

fn newer(call: &'static str) -> Result<&'static Newer, CudaError> {
    static FUNCTIONS: OnceLock<Option<Newer>> = OnceLock::new();
    let load = || Newer::load(Library::loaded_driver()?).ok();
    FUNCTIONS.get_or_init(load).as_ref().ok_or(CudaError { call, code: NOT_SUPPORTED })
}

/// A dma-buf of the whole pages that an allocation lies in, and where in it the allocation begins. Needs a
/// scope.
///
/// # Errors
/// What the driver says: when it makes none of such memory, or the kernel lets it not.
pub fn dma_buf(_: &Scope<'static>, memory: &DeviceMemory) -> Result<(OwnedFd, u64), CudaError> {
    const CALL: &str = "cuMemGetHandleForAddressRange";
    let start = memory.start / PAGE * PAGE;
    let end = memory.start.checked_add(memory.bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
    let bytes = end.ok_or(CudaError::UNKNOWN_MEMORY)? - start;
    let mut descriptor: c_int = -1;
    // SAFETY: there is room for a descriptor, which is what the driver writes for this kind.
    unsafe { newer(CALL)?.range_handle((&raw mut descriptor).cast(), start, bytes as usize, DMA_BUF, 0) }?;
    if descriptor < 0 {
        return Err(CudaError::UNKNOWN_MEMORY);
    }
    // SAFETY: the driver made the descriptor for the caller.
    Ok((unsafe { OwnedFd::from_raw_fd(descriptor) }, memory.start - start))
}

/// Makes what another device has written to memory of a GPU visible to kernels that begin from now on. Needs
/// a scope of that memory.
///
/// # Errors
/// What the driver says.
pub fn flush_writes(scope: &Scope<'static>, memory: &DeviceMemory) -> Result<(), CudaError> {
    const CALL: &str = "cuFlushGPUDirectRDMAWrites";
    if writes_are_ordered(scope.driver(), memory.device) {
        return Ok(());
    }
    // SAFETY: numbers alone.
    unsafe { newer(CALL)?.flush_writes(CURRENT_CONTEXT, TO_OWNER) }
}
