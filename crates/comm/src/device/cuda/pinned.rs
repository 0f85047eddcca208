//! Pinned host memory that kernels use. Pinned memory, of this process or of several.
//!
//! The functions are for the calling thread's context.

use core::ffi::c_void;

use super::calls::{Calls, check};
use crate::cuda::FOR_ALL_DEVICES;
use crate::device::gpu::{Block, GpuError, HostPages};
use crate::device::shared::{MappedFile, SharedFile};

/// Pinned memory of the host.
struct Pinned(&'static Calls, u64);

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `allocate`, and nobody uses it any more.
        let _ = unsafe { self.0.free_host(self.1 as *mut c_void) };
    }
}

/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const IO_MEMORY: u32 = 4;

/// Pages of somebody else that the driver knows.
struct Known(&'static Calls, u64);

impl Drop for Known {
    fn drop(&mut self) {
        // SAFETY: registered by `map_pages`, and nobody uses it any more.
        let _ = unsafe { self.0.unregister_host(self.1 as *mut c_void) };
    }
}

/// Lets kernels use pages that somebody else has mapped.
pub(super) fn map_pages(
    calls: &'static Calls,
    address: u64,
    bytes: u64,
    kind: HostPages,
) -> Result<Block, GpuError> {
    let memory = address as *mut c_void;
    let register = |flags| {
        // SAFETY: the driver checks whether the pages are mapped; who calls keeps them mapped.
        unsafe { calls.register_host(memory, bytes as usize, flags) }
    };
    let registered = match kind {
        HostPages::Memory => register(FOR_ALL_DEVICES),
        HostPages::Registers => register(FOR_ALL_DEVICES | IO_MEMORY),
    };
    let what = match kind {
        HostPages::Memory => "letting kernels use memory of a card's library",
        HostPages::Registers => "letting kernels use a card's registers",
    };
    check(what, registered)?;
    let owner = Box::new(Known(calls, address));
    let mut device = 0;
    // SAFETY: there is room for the address, and the pages were registered for devices.
    check(what, unsafe { calls.device_pointer(&raw mut device, memory, 0) })?;
    Ok(Block { address: device, bytes, descriptor: None, owner })
}

/// A mapped file whose memory is pinned.
struct Registered {
    calls: &'static Calls,
    mapped: MappedFile,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered by `pin`, and nobody uses it any more; it is unmapped behind this.
        let _ = unsafe { self.calls.unregister_host(self.mapped.address as *mut c_void) };
    }
}

/// New pinned memory, all of it 0.
pub(super) fn allocate(calls: &'static Calls, bytes: u64) -> Result<Block, GpuError> {
    let mut memory: *mut c_void = core::ptr::null_mut();
    // SAFETY: there is room for the address.
    check("pinned memory of the host", unsafe {
        calls.allocate_host(&raw mut memory, bytes as usize, FOR_ALL_DEVICES)
    })?;
    let owner = Box::new(Pinned(calls, memory as u64));
    let address = must_have_one_address(calls, memory)?;
    // SAFETY: new memory of so many bytes.
    unsafe { memory.cast::<u8>().write_bytes(0, bytes as usize) };
    Ok(Block { address, bytes, descriptor: None, owner })
}

/// Maps a file, and pins its memory for all devices.
pub(super) fn pin(calls: &'static Calls, file: &SharedFile, bytes: u64) -> Result<Block, GpuError> {
    let mapped = file.map().map_err(|cause| shared_failed(bytes, &cause))?;
    let memory = mapped.address as *mut c_void;
    // SAFETY: the range was mapped just now, and stays so until it is unregistered.
    check("pinning memory that processes share", unsafe {
        calls.register_host(memory, mapped.bytes, FOR_ALL_DEVICES)
    })?;
    let registered = Registered { calls, mapped };
    let address = must_have_one_address(calls, memory)?;
    Ok(Block { address, bytes, descriptor: None, owner: Box::new(registered) })
}

/// The error for memory that processes share.
pub(super) fn shared_failed(bytes: u64, cause: &std::io::Error) -> GpuError {
    GpuError { what: format!("{bytes} bytes of memory that processes share"), cause: cause.to_string() }
}

/// Pinned memory's address on the GPU, which is that of this process.
fn must_have_one_address(calls: &Calls, memory: *mut c_void) -> Result<u64, GpuError> {
    let mut device = 0;
    // SAFETY: there is room for the address, and the memory was mapped for devices.
    check("its address on the GPU", unsafe { calls.device_pointer(&raw mut device, memory, 0) })?;
    if device == memory as u64 {
        return Ok(device);
    }
    Err(GpuError {
        what: "pinned memory of the host".to_owned(),
        cause: "the GPU has another address for it than this process".to_owned(),
    })
}
