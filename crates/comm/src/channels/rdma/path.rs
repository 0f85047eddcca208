//! RDMA paths: what each end keeps of two joined cards, with the registration cache of GPU memory and the
//! registered staging slots.

use std::sync::Arc;

use causeway_ibverbs::{MemoryRegion, ProtectionDomain, RemoteMemory, Segment};

use crate::bootstrap::Connection;
use crate::channels::cache::Cache;
use crate::channels::protocol::{Message, Refusal, TransferError};
use crate::channels::staging::{HOST_SLOTS, HostSlots, Ring};
use crate::cuda::{self, DeviceMemory, Scope};
use crate::verbs::{self, EndpointAddress, Path, RdmaError, ReadTarget, Slots, Use};

/// The receiver's end: a path to the sender's card, and what bytes pass through.
#[derive(Debug)]
pub(crate) struct RdmaReader {
    /// In front of the memory, so that nothing comes any more when it goes.
    pub(super) path: Path,
    pub(super) regions: Regions,
    pub(super) slots: RdmaStaging,
    /// The sender's slots.
    pub(super) peer: RemoteMemory,
    pub(super) ring: Ring,
}

/// The sender's end: a path to the receiver's card.
#[derive(Debug)]
pub(crate) struct RdmaTarget {
    /// In front of the memory, so that no reader is left when it goes.
    target: ReadTarget,
    regions: Regions,
    pub(crate) slots: RdmaStaging,
}

impl RdmaTarget {
    /// Joins the receiver's card with one here: the answer to `Join` with so many more queue pairs. None
    /// where that cannot be, which the receiver has been told then, or knows.
    pub(crate) fn join(connection: &Connection, more: u16) -> Result<Option<Self>, TransferError> {
        if usize::from(more) >= verbs::MAX_QUEUE_PAIRS {
            return Err(connection.wrong("so many queue pairs"));
        }
        let peers = (0..=more).map(|_| connection.receive_endpoint()).collect::<Result<Vec<_>, _>>()?;
        let Ok((mut rdma_target, own)) = Self::prepare(connection, &peers) else {
            connection.send_message(Message::Refused(Refusal::Rdma))?;
            return Ok(None);
        };
        // At most as many as the peer has.
        connection.send_message(Message::Joined { more: own.len() as u16 - 1 })?;
        own.iter().try_for_each(|end| connection.send_endpoint(end))?;
        // Where rdma_cm does not join the two, it tells the receiver, too.
        Ok(rdma_target.target.finish().is_ok().then_some(rdma_target))
    }

    fn prepare(
        connection: &Connection,
        peers: &[EndpointAddress],
    ) -> Result<(Self, Vec<EndpointAddress>), RdmaError> {
        let target = ReadTarget::new(peers, connection.local_address())?;
        let slots = RdmaStaging::new(target.domain(), Use::Exposed)?;
        let own = target.ends(slots.endpoint_slots());
        Ok((Self { target, regions: Regions::new(), slots }, own))
    }

    /// Whether the receiver's card gets the right bytes when it reads so many at an address.
    pub(crate) fn reads_directly(&self, address: u64, bytes: u64) -> bool {
        self.target.reads_directly(address, bytes)
    }

    /// Where the receiver's card may read an address of an allocation; none where no card reaches that.
    pub(crate) fn expose(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        address: u64,
    ) -> Option<RemoteMemory> {
        let region = self.regions.of(self.target.domain(), scope, memory, Use::Exposed)?;
        Some(RemoteMemory { address, key: region.remote_key() })
    }
}

/// Slots in memory of the host that a GPU and a card reach.
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

    /// What is sent to the peer, who reads them.
    pub(crate) fn endpoint_slots(&self) -> Slots {
        let (count, bytes) = (HOST_SLOTS.count, HOST_SLOTS.bytes);
        Slots { memory: self.region.remote(0), count, bytes }
    }
}

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
