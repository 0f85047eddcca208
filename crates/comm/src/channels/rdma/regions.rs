//! Registration cache of GPU memory. What messages have used, up to a number.

use std::sync::Arc;

use causeway_ibverbs::{MemoryRegion, ProtectionDomain};

use crate::channels::cache::Cache;
use crate::cuda::{DeviceMemory, Scope};
use crate::verbs::{self, Use};

/// Allocations that stay registered for a peer, in each direction. What is registered stays in the GPU's
/// memory, also where the program has freed it.
const MAX_REGISTERED_REGIONS: usize = 32;

/// Allocations of which it is known that they cannot be registered.
const MAX_REFUSED: usize = 256;

/// Registrations by the number of the buffer.
#[derive(Debug)]
pub(crate) struct Regions {
    known: Cache<Arc<MemoryRegion>>,
    refused: Cache<()>,
}

impl Regions {
    pub(crate) fn new() -> Self {
        Self { known: Cache::new(MAX_REGISTERED_REGIONS), refused: Cache::new(MAX_REFUSED) }
    }

    /// The registration of an allocation, which is made if it can be; none where the card does not reach it.
    pub(crate) fn of(
        &mut self,
        domain: &ProtectionDomain,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        usage: Use,
    ) -> Option<Arc<MemoryRegion>> {
        let driver = scope.driver();
        if !verbs::is_gpudirect(driver, memory) || self.refused.get(memory.buffer).is_some() {
            return None;
        }
        if let Some(region) = self.known.get(memory.buffer) {
            return Some(Arc::clone(region));
        }
        // Memory that the program has freed goes before more is registered.
        self.known.retain(|buffer, region| {
            DeviceMemory::at(driver, region.address()).is_some_and(|there| there.buffer == buffer)
        });
        match self.known.open(|| verbs::register(domain, scope, memory, usage).map(Arc::new)) {
            Ok(region) => {
                self.known.insert(memory.buffer, Arc::clone(&region));
                Some(region)
            }
            Err(_) => {
                self.refused.insert(memory.buffer, ());
                None
            }
        }
    }
}
