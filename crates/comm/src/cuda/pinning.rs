//! Memory of the host that a GPU's engines read and write without the driver's own staging.

use core::ffi::c_void;

use super::error::CudaError;
use super::functions::{Driver, check};
use super::scope::Scope;

/// `CU_MEMHOSTREGISTER_PORTABLE`: for all contexts.
const PORTABLE: u32 = 1;

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
        let driver = scope.driver;
        // SAFETY: as promised by the caller.
        let status = unsafe { (driver.register_host)(address as *mut c_void, bytes, PORTABLE) };
        check("cuMemHostRegister", status)?;
        Ok(Self { driver, address })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the range was registered, and no copy of this crate's is under way there.
        unsafe { (self.driver.unregister_host)(self.address as *mut c_void) };
    }
}
