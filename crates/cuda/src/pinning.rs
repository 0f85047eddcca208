//! Memory of the host that a GPU's engines read and write without the driver's own staging.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use super::entry_points::CudaError;
use super::functions::Driver;
use super::scope::Scope;
use crate::lookup::check_setup_call;

/// `CU_MEMHOSTREGISTER_PORTABLE`: for all contexts.
const PORTABLE: u32 = 1;

/// `CU_MEMHOSTALLOC_PORTABLE` and `_DEVICEMAP`, which have these values for registering, too: such memory has one
/// address for the host and all devices.
pub const FOR_ALL_DEVICES: u32 = 3;

/// A range that is registered with the driver while this lives.
#[derive(Debug)]
pub struct Pinned {
    driver: &'static Driver,
    address: u64,
}

impl Pinned {
    /// Registers a range. It may be mapped by other processes, too, which write into it (seen on an H200: 55
    /// GB/s in both directions). Not for GPUs elsewhere: there every copy passes through Causeway's own
    /// staging, and what another process writes would have to be looked for.
    ///
    /// # Safety
    /// The range is mapped until this is dropped.
    ///
    /// # Errors
    /// What the driver says; then copies are slower.
    pub unsafe fn new(scope: &Scope<'static>, address: u64, bytes: usize) -> Result<Self, CudaError> {
        check_setup_call("cuMemHostRegister");
        let driver = scope.driver;
        // SAFETY: the caller has the range mapped until this is dropped, which ends the registration.
        unsafe { driver.register_host(address as *mut c_void, bytes, PORTABLE) }?;
        Ok(Self { driver, address })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        check_setup_call("cuMemHostUnregister");
        // SAFETY: the range was registered, and no copy of this crate's is under way there.
        let _ = unsafe { self.driver.unregister_host(self.address as *mut c_void) };
    }
}

/// A word of the host's memory that kernels read.
#[derive(Debug)]
pub struct PinnedWord {
    driver: &'static Driver,
    word: NonNull<AtomicU64>,
}

// SAFETY: the word is used by atomic operations alone, from any thread, until this is dropped.
unsafe impl Send for PinnedWord {}
// SAFETY: the word is used by atomic operations alone, from any thread, until this is dropped.
unsafe impl Sync for PinnedWord {}

impl PinnedWord {
    /// A new one, which is 0.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(scope: &Scope<'static>) -> Result<Self, CudaError> {
        check_setup_call("cuMemHostAlloc");
        let driver = scope.driver;
        let mut memory: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the address.
        unsafe { driver.allocate_host(&raw mut memory, size_of::<u64>(), FOR_ALL_DEVICES) }?;
        let word = NonNull::new(memory.cast()).ok_or(CudaError { call: "cuMemHostAlloc", code: 2 })?;
        let pinned = Self { driver, word };
        pinned.write(0);
        Ok(pinned)
    }

    /// Where kernels read it.
    pub fn address(&self) -> u64 {
        self.word.as_ptr() as u64
    }

    /// Writes it, without a call of the driver.
    pub fn write(&self, word: u64) {
        // SAFETY: allocated, as aligned as a page, and freed when this is dropped.
        unsafe { self.word.as_ref() }.store(word, Ordering::Relaxed);
    }
}

impl Drop for PinnedWord {
    fn drop(&mut self) {
        check_setup_call("cuMemFreeHost");
        // SAFETY: allocated by `new`, and no kernel that reads it is launched any more.
        let _ = unsafe { self.driver.free_host(self.word.as_ptr().cast()) };
    }
}
