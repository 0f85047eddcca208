//! Memory registration with the network cards.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_ibverbs::{Access, MemoryRegion, RegisterError, Transport};

use crate::state::State;
use causeway_transport::DeviceUse;

impl State {
    /// Registers memory of this side's owner. What may not be written is registered for being read.
    ///
    /// # Safety
    /// The memory must stay mapped until it has been [forgotten](Self::forget), and nobody may rely on its
    /// bytes while it is exposed to the peer for writing.
    pub unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), RegisterError> {
        let read = Access::REMOTE_READ;
        // SAFETY: as this function demands.
        let made = |access| unsafe { MemoryRegion::register(&self.domain, start, length, access) };
        let (region, is_writable) = match made(read | Access::REMOTE_WRITE) {
            Ok(region) => (region, true),
            Err(refused) => (made(read).map_err(|_| refused)?, false),
        };
        // What overlaps with known memory is left to staging.
        self.registrations.write().enter(start as usize, length, is_writable, Arc::new(region));
        Ok(())
    }

    /// Takes the registration of memory back: no card reaches it any more.
    pub fn forget(&self, start: *mut u8) {
        let region = self.registrations.write().remove(start as usize);
        drop(region);
    }

    /// Registers device memory.
    ///
    /// # Safety
    /// The memory must stay allocated as long as the result lives.
    pub unsafe fn register_device(
        &self,
        buffer: Option<(BorrowedFd<'_>, u64)>,
        address: u64,
        length: usize,
        usage: DeviceUse,
    ) -> Result<MemoryRegion, RegisterError> {
        let access = match (usage, self.domain.device().transport()) {
            (DeviceUse::ExposedForRead, _) => Access::REMOTE_READ,
            // iWARP brings the bytes of a read as a write of the peer.
            (DeviceUse::Own, Transport::Iwarp) => Access::REMOTE_WRITE,
            (DeviceUse::Own, _) => Access::LOCAL_WRITE,
        };
        // SAFETY: as this function demands.
        unsafe {
            match buffer {
                Some((descriptor, offset)) => {
                    MemoryRegion::register_dma_buf(&self.domain, descriptor, offset, length, address, access)
                }
                None => MemoryRegion::register(&self.domain, address as *mut u8, length, access),
            }
        }
    }

    /// The registration in which all of this memory lies.
    pub fn registered(&self, start: *const u8, length: usize) -> Option<Arc<MemoryRegion>> {
        self.registrations.read().find(start as usize, length, false)
    }
}
