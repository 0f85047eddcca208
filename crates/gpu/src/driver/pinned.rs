//! Host memory that the GPU reaches by itself.

use super::context;
use super::functions::Functions;
use crate::CuResult;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::CUresult;

/// Pages of our own, registered with the driver.
///
/// Memory that the driver allocates ends with the context it was allocated in; these pages stay what they are,
/// only slower, when their context ends while somebody still uses them.
pub(super) struct Pages {
    address: *mut u8,
    bytes: usize,
    registered_in: Option<Native<Context>>,
}

// SAFETY: `Pages` owns its memory; access to its bytes is the business of its users.
unsafe impl Send for Pages {}
// SAFETY: as above, a shared reference gives out only the address.
unsafe impl Sync for Pages {}

impl Pages {
    /// New zeroed pages that are not registered.
    pub(super) fn new(bytes: usize) -> CuResult<Self> {
        // SAFETY: an anonymous mapping at an address that the system chooses.
        let address = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(Self { address: address.cast(), bytes, registered_in: None })
    }

    /// Registers them in `context`, for all contexts (`flags` are those of `cuMemHostRegister`).
    pub(super) fn register(
        &mut self,
        functions: &Functions,
        context: Native<Context>,
        flags: u32,
    ) -> CuResult<()> {
        context::within(functions, context, || {
            // SAFETY: the pages are mapped, and stay so until they are unregistered.
            unsafe { functions.cuMemHostRegister_v2(self.address.cast(), self.bytes, flags) }
        })?;
        self.registered_in = Some(context);
        Ok(())
    }

    /// Ends the registration, if their context has not ended it already.
    pub(super) fn unregister(&mut self, functions: &Functions) {
        if let Some(context) = self.registered_in.take() {
            let result = context::within(functions, context, || {
                // SAFETY: the pages were registered and nothing is copied to or from them any more.
                unsafe { functions.cuMemHostUnregister(self.address.cast()) }
            });
            if let Err(status) = result {
                tracing::warn!(status = status.0, "pinned memory could not be unregistered");
            }
        }
    }

    /// Notes that the context has ended, and the registration with it.
    pub(super) fn context_ended(&mut self) {
        self.registered_in = None;
    }

    /// In which context they are registered.
    pub(super) fn registered_in(&self) -> Option<Native<Context>> {
        self.registered_in
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The driver still knows these addresses: they must not come to mean other memory.
        if self.registered_in.is_some() {
            return;
        }
        // SAFETY: mapped by `new` with this size, and owned.
        unsafe { libc::munmap(self.address.cast(), self.bytes) };
    }
}
