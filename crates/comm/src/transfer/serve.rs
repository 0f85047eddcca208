//! What does the sender's thread do for a peer? It waits for requests, and gives what was offered.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use super::error::TransferError;
use super::message::{Message, Refusal};
use super::offers::{Offer, OfferState, Offers};
use super::slots::{BOUNCE_SLOTS, HostSlots, Ring};
use crate::channels::Channel;
use crate::cuda::{self, Bounce, CudaError, DeviceMemory, Driver, Scope};
use crate::meeting::{Connection, MESSAGE_BYTES};

/// What a peer's requests need from one to the next.
#[derive(Debug)]
struct Server<'a> {
    connection: &'a Connection,
    offers: &'a Offers,
    /// The peer's memory.
    slots: Option<HostSlots>,
    /// Memory on one of the GPUs here, with the GPU's number.
    bounce: Option<(i32, Bounce)>,
}

/// Serves a peer until it goes, or says what makes no sense. What it has been offered then has failed.
pub(crate) fn serve(connection: &Connection, offers: &Offers) {
    let mut server = Server { connection, offers, slots: None, bounce: None };
    loop {
        match connection.receive() {
            Ok(Some((bytes, descriptor))) => {
                if server.answer(&bytes, descriptor).is_err() {
                    break;
                }
            }
            // It has nothing to ask for.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Ok(None) | Err(_) => break,
        }
    }
    connection.shut();
    offers.end_all(connection.peer);
}

impl Server<'_> {
    fn answer(
        &mut self,
        bytes: &[u8; MESSAGE_BYTES],
        descriptor: Option<OwnedFd>,
    ) -> Result<(), TransferError> {
        let peer = self.connection.peer;
        match Message::decode(bytes) {
            Some(Message::Slots { count, bytes }) => {
                let ring = Ring::checked(count, bytes)
                    .ok_or_else(|| self.connection.wrong("slots of such a size"))?;
                let descriptor =
                    descriptor.ok_or_else(|| self.connection.wrong("slots without a descriptor"))?;
                self.slots = Some(HostSlots::of_peer(descriptor, ring).map_err(TransferError::Memory)?);
                Ok(())
            }
            Some(Message::Fetch { channel, operation }) => match self.give(channel, operation) {
                Err(error) if !error.ends_connection() => {
                    self.connection.say(Message::Refused(refusal(&error)))
                }
                outcome => outcome,
            },
            Some(Message::Done { operation }) => {
                self.offers.end(operation, peer, OfferState::Done);
                Ok(())
            }
            Some(Message::Abandoned { operation }) => {
                self.offers.end(operation, peer, OfferState::Failed);
                Ok(())
            }
            // What was under way when this end gave up.
            Some(Message::Free { .. }) => Ok(()),
            _ => Err(self.connection.wrong("a message that is not for a sender")),
        }
    }

    fn give(&mut self, channel: Channel, operation: u64) -> Result<(), TransferError> {
        let refused = |refusal| TransferError::Refused { peer: self.connection.peer, channel, refusal };
        let unknown = || refused(Refusal::Unknown);
        let offer = self.offers.begin(operation, self.connection.peer).ok_or_else(unknown)?;
        if let Some(copy) = offer.copy.clone() {
            return if channel == Channel::Staged {
                self.give_copy(&copy)
            } else {
                Err(refused(Refusal::Copied))
            };
        }
        let found =
            Driver::loaded().and_then(|driver| Some((driver, DeviceMemory::at(driver, offer.address)?)));
        let (driver, memory) = found.ok_or_else(|| refused(Refusal::Channel))?;
        let scope = Scope::of(driver, &memory)?;
        let is_inside = offer.address - memory.start <= memory.bytes.saturating_sub(offer.bytes)
            && offer.bytes <= memory.bytes;
        match channel {
            Channel::Ipc if memory.ipc && is_inside => self.give_handle(driver, &memory, &offer),
            Channel::Vmm if memory.exportable && is_inside => self.give_export(driver, &memory, &offer),
            Channel::Vmm if memory.device_exports => self.give_bounced(driver, &scope, &memory, &offer),
            Channel::Staged => {
                let slots = self.slots()?;
                self.pass(offer.bytes, slots.ring, |slot, at, bytes| {
                    // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is
                    // mapped for as long as this runs, is nobody's now.
                    unsafe { scope.copy(slots.address(slot), offer.address + at, bytes) }
                })
            }
            _ => Err(refused(Refusal::Channel)),
        }
    }

    fn give_handle(
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

    fn give_export(
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

    fn give_bounced(
        &mut self,
        driver: &'static Driver,
        scope: &Scope<'_>,
        memory: &DeviceMemory,
        offer: &Offer,
    ) -> Result<(), TransferError> {
        let known = self.bounce.take().filter(|(device, _)| *device == memory.device);
        let is_new = known.is_none();
        let bounce = match known {
            Some((_, bounce)) => bounce,
            None => Bounce::new(driver, memory.device, BOUNCE_SLOTS.total() as usize)?,
        };
        let Ring { count, bytes } = BOUNCE_SLOTS;
        let message = Message::Bounce { count, bytes, total: bounce.bytes as u64, is_new };
        self.connection.say_with(message, is_new.then(|| bounce.descriptor.as_fd()))?;
        let start = bounce.mapping.address;
        // The peer may not be able to map it, and says so.
        let passed = match self.connection.hear()?.0 {
            Message::Need { needed: true } => {
                self.pass(offer.bytes, BOUNCE_SLOTS, |slot, at, bytes| {
                    // SAFETY: as for slots of the host; the buffer is mapped.
                    unsafe { scope.copy(start + BOUNCE_SLOTS.offset(slot), offer.address + at, bytes) }
                })
            }
            Message::Need { needed: false } => return Ok(()),
            _ => Err(self.connection.wrong("an answer to a bounce buffer")),
        };
        self.bounce = Some((memory.device, bounce));
        passed
    }

    /// Gives what the program's memory held.
    fn give_copy(&self, copy: &[u8]) -> Result<(), TransferError> {
        let slots = self.slots()?;
        self.pass(copy.len() as u64, slots.ring, |slot, at, bytes| {
            let from = &copy[at as usize..][..bytes];
            // SAFETY: the slot is mapped for as long as this runs, as long as that, and nobody's now.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), slots.address(slot) as *mut u8, bytes) };
            Ok(())
        })
    }

    /// The peer's slots, which it hands over before it fetches anything through them.
    fn slots(&self) -> Result<&HostSlots, TransferError> {
        self.slots.as_ref().ok_or_else(|| self.connection.wrong("no slots before a fetch"))
    }

    /// Passes a payload through slots, which `copy` fills.
    fn pass(
        &self,
        payload: u64,
        ring: Ring,
        copy: impl Fn(u16, u64, usize) -> Result<(), CudaError>,
    ) -> Result<(), TransferError> {
        for (number, (slot, at, bytes)) in ring.pieces(payload).enumerate() {
            if number >= usize::from(ring.count) {
                self.await_free(slot)?;
            }
            copy(slot, at, bytes as usize)?;
            self.connection.say(Message::Piece { slot, bytes })?;
        }
        Ok(())
    }

    fn await_free(&self, wanted: u16) -> Result<(), TransferError> {
        match self.connection.hear()?.0 {
            Message::Free { slot } if slot == wanted => Ok(()),
            _ => Err(self.connection.wrong("another slot than the next")),
        }
    }
}

/// What a peer is told.
fn refusal(error: &TransferError) -> Refusal {
    match error {
        TransferError::Refused { refusal, .. } => *refusal,
        TransferError::Cuda(CudaError { code, .. }) => Refusal::Cuda(code.unsigned_abs()),
        _ => Refusal::Channel,
    }
}
