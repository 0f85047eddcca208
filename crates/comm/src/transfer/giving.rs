//! How does a sender give a payload to a peer, by each channel?

use std::os::fd::AsFd as _;

use causeway_ibverbs::RemoteMemory;

use super::card_slots::CardSlots;
use super::error::TransferError;
use super::lending::Lending;
use super::message::{Message, Refusal};
use super::network;
use super::offers::Offer;
use super::slots::{Begun, HOST_SLOTS, HostSlots, Ring};
use crate::bar::Windows;
use crate::bootstrap::{Connection, MESSAGE_BYTES};
use crate::channels::Channel;
use crate::cuda::{self, Bounce, DeviceMemory, Driver, PendingCopy, Scope};

/// What payloads of a peer go through, from one to the next.
#[derive(Debug)]
pub(super) struct Giver<'a> {
    connection: &'a Connection,
    /// The peer's memory; over a network, this end's.
    pub(super) slots: Option<HostSlots>,
    /// Memory on one of the GPUs here, with the GPU's number.
    bounce: Option<(i32, Ring, Bounce)>,
    /// The path to the peer's card.
    pub(super) lending: Option<Lending>,
    /// Memory of the GPUs here that is mapped.
    windows: Windows,
}

impl<'a> Giver<'a> {
    /// For a peer that has got nothing yet.
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self { connection, slots: None, bounce: None, lending: None, windows: Windows::default() }
    }
}

impl Giver<'_> {
    pub(super) fn give_over_network(
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

    pub(super) fn give_handle(
        &self,
        driver: &Driver,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        let handle = cuda::ipc_handle(driver, memory)?;
        if self.is_needed(memory, offer)? {
            self.connection.say(Message::Handle)?;
            for part in handle.as_chunks::<MESSAGE_BYTES>().0 {
                self.connection.say_bytes(part, None)?;
            }
        }
        Ok(())
    }

    pub(super) fn give_export(
        &self,
        driver: &Driver,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        let descriptor = cuda::export(driver, memory)?;
        if self.is_needed(memory, offer)? {
            self.connection.say_with(Message::Export { bytes: memory.bytes }, Some(descriptor.as_fd()))?;
        }
        Ok(())
    }

    /// Says where the payload lies, and hears whether the peer has that open.
    fn is_needed(&self, memory: &DeviceMemory, offer: &Offer) -> Result<bool, TransferError> {
        self.connection.say(Message::Region { buffer: memory.buffer })?;
        self.connection.say(Message::Offset { offset: offer.address - memory.start })?;
        match self.connection.hear()?.0 {
            Message::Need { needed } => Ok(needed),
            _ => Err(self.connection.wrong("an answer to a region")),
        }
    }

    pub(super) fn give_bounced(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        let wanted = Ring::of_bounce(offer.bytes);
        let fits =
            |(device, ring, _): &(i32, Ring, Bounce)| *device == memory.device && ring.bytes >= wanted.bytes;
        let known = self.bounce.take().filter(fits);
        let is_new = known.is_none();
        let (_, ring, bounce) = match known {
            Some(known) => known,
            None => {
                (memory.device, wanted, Bounce::new(scope.driver(), memory.device, wanted.total() as usize)?)
            }
        };
        let Ring { count, bytes, .. } = ring;
        let message = Message::Bounce { count, bytes, total: bounce.bytes as u64, is_new };
        self.connection.say_with(message, is_new.then(|| bounce.descriptor.as_fd()))?;
        if is_new {
            // The peer may not be able to map it, and says so.
            match self.connection.hear()?.0 {
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
    pub(super) fn give_staged(&mut self, scope: &Scope<'static>, offer: &Offer) -> Result<(), TransferError> {
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
    pub(super) fn give_from_bar(
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
    pub(super) fn give_by_card(
        &mut self,
        channel: Channel,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        if let Some(lending) = &mut self.lending {
            let is_inside = memory.has(offer.address, offer.bytes);
            let lent = if is_inside { lending.lend(scope, memory, offer.address) } else { None };
            if let Some(RemoteMemory { address, key }) = lent {
                return self.connection.say(Message::Lent { key, address });
            }
            lending.slots.pin(scope);
        }
        let slots = self.card_slots(channel)?;
        self.pass(offer.bytes, HOST_SLOTS, |slot, at, bytes| {
            // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is mapped
            // for as long as this runs, is nobody's now.
            Ok(Some(unsafe { PendingCopy::begin(scope, slots.address(slot), offer.address + at, bytes) }?))
        })
    }

    /// Gives what the program's memory held, which has been copied.
    pub(super) fn give_copy(&self, channel: Channel, copy: &[u8]) -> Result<(), TransferError> {
        match channel {
            Channel::Staged | Channel::Bar => {
                let slots = self.slots()?;
                self.pass_copy(copy, slots.ring, |slot| slots.address(slot))
            }
            Channel::Rdma | Channel::Loopback => {
                let slots = self.card_slots(channel)?;
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
    fn card_slots(&self, channel: Channel) -> Result<&CardSlots, TransferError> {
        let peer = self.connection.peer;
        let refused = TransferError::Refused { peer, channel, refusal: Refusal::Card };
        self.lending.as_ref().map(|lending| &lending.slots).ok_or(refused)
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
        let mut begun = Begun::default();
        for (number, (slot, at, bytes)) in ring.pieces(payload).enumerate() {
            if number >= usize::from(ring.count) {
                // The peer waits for all of them before this end waits for the peer.
                while begun.len() > 0 {
                    self.tell_first(&mut begun)?;
                }
                self.await_free(slot)?;
            }
            begun.push(begin(slot, at, bytes as usize)?, (slot, bytes));
            while begun.is_first_done() {
                self.tell_first(&mut begun)?;
            }
        }
        while begun.len() > 0 {
            self.tell_first(&mut begun)?;
        }
        Ok(())
    }

    /// Tells the peer of the slot that is full first.
    fn tell_first(&self, begun: &mut Begun<(u16, u32)>) -> Result<(), TransferError> {
        match begun.end_first().map_err(|(error, _)| error)? {
            Some((slot, bytes)) => self.connection.say(Message::Piece { slot, bytes }),
            None => Ok(()),
        }
    }

    fn await_free(&self, wanted: u16) -> Result<(), TransferError> {
        match self.connection.hear()?.0 {
            Message::Free { slot } if slot == wanted => Ok(()),
            _ => Err(self.connection.wrong("another slot than the next")),
        }
    }
}
