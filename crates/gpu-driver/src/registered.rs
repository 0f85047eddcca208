//! Host memory of others that the devices know, such as memory shared with the client.

use crate::context;
use crate::functions::Functions;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::CU_MEMHOSTREGISTER_PORTABLE;
use causeway_gpu::{CuResult, Registration};
use causeway_sync::face::Mutex;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// What lives as long as a registration does, or its context.
struct Known {
    context: Native<Context>,
    alive: AtomicBool,
}

/// All registrations, so that they hear of the end of their contexts.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<Vec<Weak<Known>>>);

impl Registrations {
    /// Registers memory in `context`, for all contexts.
    ///
    /// # Safety
    /// The memory must stay mapped until the result is dropped.
    pub(crate) unsafe fn register(
        &self,
        functions: &'static Functions,
        context: Native<Context>,
        address: *mut u8,
        bytes: usize,
    ) -> CuResult<Box<dyn Registration>> {
        context::within(functions, context, || {
            // SAFETY: mapped as long as this function demands.
            unsafe { functions.cuMemHostRegister_v2(address.cast(), bytes, CU_MEMHOSTREGISTER_PORTABLE) }
        })?;
        let known = Arc::new(Known { context, alive: AtomicBool::new(true) });
        self.0.lock().push(Arc::downgrade(&known));
        Ok(Box::new(Registered { functions, address, known }))
    }

    /// The driver ends the registrations of a context with it.
    pub(crate) fn forget(&self, context: Native<Context>) {
        self.0.lock().retain(|known| {
            let Some(known) = known.upgrade() else { return false };
            if known.context == context {
                known.alive.store(false, Ordering::Release);
            }
            known.context != context
        });
    }
}

struct Registered {
    functions: &'static Functions,
    address: *mut u8,
    known: Arc<Known>,
}

// SAFETY: the address is only named to the driver, which any thread may do.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registration for Registered {
    fn is_alive(&self) -> bool {
        self.known.alive.load(Ordering::Acquire)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.known.alive.swap(false, Ordering::AcqRel) {
            return;
        }
        let result = context::within(self.functions, self.known.context, || {
            // SAFETY: it was registered, and nothing is copied to or from it any more.
            unsafe { self.functions.cuMemHostUnregister(self.address.cast()) }
        });
        if let Err(status) = result {
            tracing::warn!(status = status.0, "registered memory could not be unregistered");
        }
    }
}
