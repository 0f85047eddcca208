//! Registration of GPU memory. By a dma-buf that the GPU's driver makes of it, or by its
//! addresses, where the kernel has a module that knows them (nvidia-peermem).

use std::os::fd::AsFd as _;

use causeway_ibverbs::{Access, MemoryRegion, ProtectionDomain, Transport};

use super::error::RdmaError;
use crate::cuda::{self, DeviceMemory, Driver, Scope};

/// What a card does with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The peer reads it.
    Exposed,
    /// What is read from the peer goes there.
    Filled,
}

impl Use {
    pub(crate) fn access(self, domain: &ProtectionDomain) -> Access {
        match (self, domain.device().transport()) {
            (Self::Exposed, _) => Access::REMOTE_READ,
            // iWARP brings the bytes of a read as a write of the peer.
            (Self::Filled, Transport::Iwarp) => Access::REMOTE_WRITE,
            (Self::Filled, _) => Access::LOCAL_WRITE,
        }
    }
}

/// Whether a card reaches an allocation, as far as the GPU's driver says. Not managed memory, whose pages
/// move.
pub(crate) fn is_gpudirect(driver: &Driver, memory: &DeviceMemory) -> bool {
    !Driver::is_remote() && !memory.is_managed && cuda::abilities(driver, memory.device).gpudirect
}

/// Registers a whole allocation.
///
/// # Errors
/// When the card does not reach it, or the kernel lets it not: then bytes pass through memory of the host.
pub(crate) fn register(
    domain: &ProtectionDomain,
    scope: &Scope<'static>,
    memory: &DeviceMemory,
    usage: Use,
) -> Result<MemoryRegion, RdmaError> {
    if !is_gpudirect(scope.driver(), memory) {
        return Err(RdmaError::NotAccessible);
    }
    let length = usize::try_from(memory.bytes).map_err(|_| RdmaError::NotAccessible)?;
    let access = usage.access(domain);
    if let Ok((descriptor, offset)) = cuda::dma_buf(scope, memory) {
        let descriptor = descriptor.as_fd();
        // SAFETY: the dma-buf keeps the memory until the region goes, also where the program frees it. Who
        // reads and writes there is what the two ranks agree on for each message.
        let region = unsafe {
            MemoryRegion::register_dma_buf(domain, descriptor, offset, length, memory.start, access)
        };
        if let Ok(region) = region {
            return Ok(region);
        }
    }
    // SAFETY: where the program frees the memory, the module that knows the addresses takes them from the
    // card. Without such a module the kernel knows no memory there, and refuses.
    Ok(unsafe { MemoryRegion::register(domain, memory.start as *mut u8, length, access) }?)
}
