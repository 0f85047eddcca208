//! Payload sender, by channel.

use std::os::fd::AsFd as _;

use causeway_ibverbs::RemoteMemory;

use super::network;
use super::offers::Offer;
use crate::bootstrap::{Connection, MESSAGE_BYTES};
use crate::channels::Channel;
use crate::channels::TransferError;
use crate::channels::bar::Windows;
use crate::channels::message::{Message, Refusal};
use crate::channels::rdma::regions::Regions;
use crate::channels::rdma::staging::RdmaStaging;
use crate::channels::staging::{HOST_SLOTS, HostSlots, PendingCopies, Ring};
use crate::cuda::{self, Bounce, DeviceMemory, Driver, PendingCopy, Scope};
use crate::verbs::{EndpointAddress, RdmaError, ReadTarget, Use};

/// What payloads of a peer go through, from one to the next.
#[derive(Debug)]
pub(super) struct PayloadSender<'a> {
    connection: &'a Connection,
    /// The peer's memory; over a network, this end's.
    pub(super) slots: Option<HostSlots>,
    /// Memory on one of the GPUs here, with the GPU's number.
    bounce: Option<(i32, Ring, Bounce)>,
    /// The path to the peer's card.
    pub(super) rdma_path: Option<RdmaPath>,
    /// Memory of the GPUs here that is mapped.
    windows: Windows,
}

impl<'a> PayloadSender<'a> {
    /// For a peer that has got nothing yet.
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self { connection, slots: None, bounce: None, rdma_path: None, windows: Windows::default() }
    }
}

impl PayloadSender<'_> {
    pub(super) fn send_over_network(
        &mut self,
        scope: &Scope<'static>,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        if self.slots.is_none() {
            self.slots = Some(HostSlots::new(HOST_SLOTS).map_err(TransferError::Memory)?.0);
        }
        if let Some(slots) = &mut self.slots {
            slots.pin(scope);
        }
        network::send(self.connection, self.slots()?, offer.bytes, |to, at, bytes| {
            // SAFETY: the program leaves the range alone until the offer ends, and the slot is nobody's now.
            unsafe { PendingCopy::begin(scope, to, offer.address + at, bytes) }
        })
    }

    pub(super) fn send_ipc_handle(
        &self,
        driver: &Driver,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        let handle = cuda::ipc_handle(driver, memory)?;
        if self.is_needed(memory, offer)? {
            self.connection.send_message(Message::Handle)?;
            for part in handle.as_chunks::<MESSAGE_BYTES>().0 {
                self.connection.send_message_bytes(part, None)?;
            }
        }
        Ok(())
    }

    pub(super) fn send_export(
        &self,
        driver: &Driver,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        let descriptor = cuda::export(driver, memory)?;
        if self.is_needed(memory, offer)? {
            self.connection
                .send_with_descriptor(Message::Export { bytes: memory.bytes }, Some(descriptor.as_fd()))?;
        }
        Ok(())
    }

    /// Says where the payload lies, and hears whether the peer has that open.
    fn is_needed(&self, memory: &DeviceMemory, offer: &Offer) -> Result<bool, TransferError> {
        self.connection.send_message(Message::Region { buffer: memory.buffer })?;
        self.connection.send_message(Message::Offset { offset: offer.address - memory.start })?;
        match self.connection.receive_message()?.0 {
            Message::Need { needed } => Ok(needed),
            _ => Err(self.connection.wrong("an answer to a region")),
        }
    }

    pub(super) fn send_bounced(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        let needed = Ring::of_bounce(offer.bytes);
        let fits =
            |(device, ring, _): &(i32, Ring, Bounce)| *device == memory.device && ring.bytes >= needed.bytes;
        let known = self.bounce.take().filter(fits);
        let is_new = known.is_none();
        let (_, ring, bounce) = match known {
            Some(known) => known,
            None => {
                (memory.device, needed, Bounce::new(scope.driver(), memory.device, needed.total() as usize)?)
            }
        };
        let Ring { count, bytes, .. } = ring;
        let message = Message::Bounce { count, bytes, total: bounce.bytes as u64, is_new };
        self.connection.send_with_descriptor(message, is_new.then(|| bounce.descriptor.as_fd()))?;
        if is_new {
            // The peer may not be able to map it, and says so.
            match self.connection.receive_message()?.0 {
                Message::Need { needed: true } => {}
                Message::Need { needed: false } => return Ok(()),
                _ => return Err(self.connection.wrong("an answer to a bounce buffer")),
            }
        }
        let start = bounce.mapping.address;
        let passed = self.pass(offer.bytes, ring, |slot, at, bytes| {
            // SAFETY: as for slots of the host; the buffer is mapped.
            Ok(Some(unsafe {
                PendingCopy::begin(scope, start + ring.offset(slot), offer.address + at, bytes)
            }?))
        });
        self.bounce = Some((memory.device, ring, bounce));
        passed
    }

    /// Has the GPU fill the peer's slots.
    pub(super) fn send_staged(&mut self, scope: &Scope<'static>, offer: &Offer) -> Result<(), TransferError> {
        if let Some(slots) = &mut self.slots {
            slots.pin(scope);
        }
        let slots = self.slots()?;
        self.pass(offer.bytes, slots.ring, |slot, at, bytes| {
            // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is mapped
            // for as long as this runs, is nobody's now.
            Ok(Some(unsafe { PendingCopy::begin(scope, slots.address(slot), offer.address + at, bytes) }?))
        })
    }

    /// Has the processor fill the peer's slots out of the GPU's BAR.
    pub(super) fn send_from_bar(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        let mut windows = core::mem::take(&mut self.windows);
        let slots = self.slots()?;
        let passed = self.pass(offer.bytes, slots.ring, |slot, at, bytes| {
            // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is mapped
            // for as long as this runs, is nobody's now.
            let read = unsafe { windows.read(scope, memory, offer.address + at, slots.address(slot), bytes) };
            read.map(|()| None).map_err(TransferError::Bar)
        });
        self.windows = windows;
        passed
    }

    /// Lets the peer's card read the payload where it lies, or else out of slots.
    pub(super) fn send_by_rdma(
        &mut self,
        channel: Channel,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        if let Some(rdma_path) = &mut self.rdma_path {
            let is_within = memory.has(offer.address, offer.bytes);
            let exposed = if is_within { rdma_path.expose(scope, memory, offer.address) } else { None };
            if let Some(RemoteMemory { address, key }) = exposed {
                return self.connection.send_message(Message::Exposed { key, address });
            }
            rdma_path.slots.pin(scope);
        }
        let slots = self.rdma_staging(channel)?;
        self.pass(offer.bytes, HOST_SLOTS, |slot, at, bytes| {
            // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is mapped
            // for as long as this runs, is nobody's now.
            Ok(Some(unsafe { PendingCopy::begin(scope, slots.address(slot), offer.address + at, bytes) }?))
        })
    }

    /// Gives what the program's memory held, which has been copied.
    pub(super) fn send_copy(&self, channel: Channel, copy: &[u8]) -> Result<(), TransferError> {
        match channel {
            Channel::Staged | Channel::Bar => {
                let slots = self.slots()?;
                self.pass_copy(copy, slots.ring, |slot| slots.address(slot))
            }
            Channel::Rdma | Channel::Loopback => {
                let slots = self.rdma_staging(channel)?;
                self.pass_copy(copy, HOST_SLOTS, |slot| slots.address(slot))
            }
            Channel::Tcp => network::send_copy(self.connection, HOST_SLOTS, copy),
            _ => {
                let peer = self.connection.peer;
                Err(TransferError::Refused { peer, channel, refusal: Refusal::Copied })
            }
        }
    }

    fn pass_copy(&self, copy: &[u8], ring: Ring, address: impl Fn(u16) -> u64) -> Result<(), TransferError> {
        self.pass(copy.len() as u64, ring, |slot, at, bytes| {
            let from = &copy[at as usize..][..bytes];
            // SAFETY: the slot is mapped for as long as this runs, as long as that, and nobody's now.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), address(slot) as *mut u8, bytes) };
            Ok(None)
        })
    }

    /// The slots that the peer's card reads, which has been joined before it fetches anything by it.
    fn rdma_staging(&self, channel: Channel) -> Result<&RdmaStaging, TransferError> {
        let peer = self.connection.peer;
        let refused = TransferError::Refused { peer, channel, refusal: Refusal::Rdma };
        self.rdma_path.as_ref().map(|rdma_path| &rdma_path.slots).ok_or(refused)
    }

    /// The peer's slots, which it hands over before it fetches anything through them.
    fn slots(&self) -> Result<&HostSlots, TransferError> {
        let (peer, channel, refusal) = (self.connection.peer, Channel::Staged, Refusal::Slots);
        self.slots.as_ref().ok_or(TransferError::Refused { peer, channel, refusal })
    }

    /// Passes a payload through slots, which `begin` begins to fill. All that are free are begun at once, so that
    /// the copies follow each other, and the peer hears of each as soon as it is seen to be full.
    fn pass(
        &self,
        payload: u64,
        ring: Ring,
        mut begin: impl FnMut(u16, u64, usize) -> Result<Option<PendingCopy>, TransferError>,
    ) -> Result<(), TransferError> {
        let mut pending = PendingCopies::default();
        for (number, (slot, at, bytes)) in ring.pieces(payload).enumerate() {
            if number >= usize::from(ring.count) {
                // The peer waits for all of them before this end waits for the peer.
                while pending.len() > 0 {
                    self.send_oldest_piece(&mut pending)?;
                }
                self.await_free(slot)?;
            }
            pending.push(begin(slot, at, bytes as usize)?, (slot, bytes));
            while pending.is_first_done() {
                self.send_oldest_piece(&mut pending)?;
            }
        }
        while pending.len() > 0 {
            self.send_oldest_piece(&mut pending)?;
        }
        Ok(())
    }

    /// Tells the peer of the slot that is full first.
    fn send_oldest_piece(&self, pending: &mut PendingCopies<(u16, u32)>) -> Result<(), TransferError> {
        match pending.end_first().map_err(|(error, _)| error)? {
            Some((slot, bytes)) => self.connection.send_message(Message::Piece { slot, bytes }),
            None => Ok(()),
        }
    }

    fn await_free(&self, expected: u16) -> Result<(), TransferError> {
        match self.connection.receive_message()?.0 {
            Message::Free { slot } if slot == expected => Ok(()),
            _ => Err(self.connection.wrong("another slot than the next")),
        }
    }
}

/// A path to the receiver's card.
#[derive(Debug)]
pub(super) struct RdmaPath {
    /// In front of the memory, so that no reader is left when it goes.
    target: ReadTarget,
    regions: Regions,
    slots: RdmaStaging,
}

impl RdmaPath {
    /// Joins the receiver's card with one here: the answer to `Join`. None where that cannot be, which the
    /// receiver has been told then, or knows.
    pub(super) fn join(connection: &Connection) -> Result<Option<Self>, TransferError> {
        let peer = connection.receive_endpoint()?;
        let Ok((mut rdma_path, own)) = Self::prepare(connection, &peer) else {
            connection.send_message(Message::Refused(Refusal::Rdma))?;
            return Ok(None);
        };
        connection.send_message(Message::Joined)?;
        connection.send_endpoint(&own)?;
        // Where rdma_cm does not join the two, it tells the receiver, too.
        Ok(rdma_path.target.finish().is_ok().then_some(rdma_path))
    }

    fn prepare(
        connection: &Connection,
        peer: &EndpointAddress,
    ) -> Result<(Self, EndpointAddress), RdmaError> {
        let target = ReadTarget::new(peer, connection.local_address())?;
        let slots = RdmaStaging::new(target.domain(), Use::Exposed)?;
        let own = target.end(slots.endpoint_slots());
        Ok((Self { target, regions: Regions::new(), slots }, own))
    }

    /// Where the receiver's card may read an address of an allocation; none where no card reaches that.
    pub(super) fn expose(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        address: u64,
    ) -> Option<RemoteMemory> {
        let region = self.regions.of(self.target.domain(), scope, memory, Use::Exposed)?;
        Some(RemoteMemory { address, key: region.remote_key() })
    }
}
