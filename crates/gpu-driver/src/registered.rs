//! Host memory that devices know: of this process, and of others, such as memory shared with the client.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use causeway_api::handle::{Context, Native};
use causeway_api::sys::CU_MEMHOSTREGISTER_PORTABLE;
use causeway_gpu::{CuResult, Registration};

use crate::context;
use crate::functions::Functions;
use crate::locks::{Mutex, RwLock, rank};

/// What lives as long as a registration does, or its context.
struct Known {
    context: Native<Context>,
    alive: AtomicBool,
}

/// All registrations, so that they hear of the end of their contexts.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<rank::Leaf, Vec<Weak<Known>>>);

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
            // SAFETY: the caller keeps the memory mapped until the registration has ended.
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
// SAFETY: the address is only named to the driver, which any thread may do.
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
            tracing::warn!(status = status.0, "cannot unregister registered memory");
        }
    }
}

/// Memory of this process that kernels reach, by its address on the device.
#[derive(Default)]
pub(crate) struct HostRanges {
    ranges: RwLock<rank::Leaf, BTreeMap<u64, Range>>,
    /// Whether there ever was any, so that sessions without pay one load.
    is_used: AtomicBool,
}

#[derive(Clone, Copy)]
struct Range {
    bytes: usize,
    memory: usize,
}

impl HostRanges {
    /// Takes in `bytes` at `memory`, which kernels reach at `address`, until they are
    /// [removed](Self::remove).
    pub(crate) fn add(&self, address: u64, bytes: usize, memory: *mut u8) {
        self.ranges.write().insert(address, Range { bytes, memory: memory as usize });
        self.is_used.store(true, Ordering::Release);
    }

    /// The memory at an address is about to go.
    pub(crate) fn remove(&self, address: u64) {
        self.ranges.write().remove(&address);
    }

    /// Where `bytes` at an address of the device lie in this process, if all of them do.
    pub(crate) fn find(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let ranges = self.ranges.read();
        let (start, range) = ranges.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        (offset < range.bytes && bytes <= range.bytes - offset).then(|| (range.memory + offset) as *mut u8)
    }
}
