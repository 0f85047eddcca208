//! Registered staging slots for RDMA. Slots in memory of the host,
//! which a GPU and a card reach.

use causeway_ibverbs::{MemoryRegion, ProtectionDomain, Segment};

use crate::channels::staging::{HOST_SLOTS, HostSlots};
use crate::cuda::{self, Scope};
use crate::verbs::{RdmaError, Slots, Use};

/// Slots that are known to a card.
#[derive(Debug)]
pub(crate) struct RdmaStaging {
    /// In front of the slots, so that the card forgets them first.
    region: MemoryRegion,
    slots: HostSlots,
}

impl RdmaStaging {
    pub(crate) fn new(domain: &ProtectionDomain, usage: Use) -> Result<Self, RdmaError> {
        let (slots, _) = HostSlots::new(HOST_SLOTS).map_err(std::io::Error::other)?;
        slots.prefer_node(cuda::node_of_rdma_device(domain.device().name()));
        let start = slots.address(0) as *mut u8;
        // SAFETY: the slots are mapped until the region has gone. They are used by this end's copies and by
        // the card in turn, as the two ranks tell each other.
        let region = unsafe {
            MemoryRegion::register(domain, start, HOST_SLOTS.total() as usize, usage.access(domain))
        }?;
        Ok(Self { region, slots })
    }

    /// Lets the GPU's engine reach them without a detour, where the driver can.
    pub(crate) fn pin(&mut self, scope: &Scope<'static>) {
        self.slots.pin(scope);
    }

    /// The address of a slot.
    pub(crate) fn address(&self, slot: u16) -> u64 {
        self.slots.address(slot)
    }

    /// The first bytes of a slot, for a request of this end.
    pub(crate) fn segment(&self, slot: u16, bytes: u32) -> Segment {
        self.region.segment(HOST_SLOTS.offset(slot % HOST_SLOTS.count) as usize, bytes as usize)
    }

    /// What the peer is told, who reads them.
    pub(crate) fn endpoint_slots(&self) -> Slots {
        let (count, bytes) = (HOST_SLOTS.count, HOST_SLOTS.bytes);
        Slots { memory: self.region.remote(0), count, bytes }
    }
}
