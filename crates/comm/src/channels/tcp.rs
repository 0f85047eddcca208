//! Channel `tcp`: over TCP, through memory of the host at both ends: what is left where nothing else works.
//!
//! A payload travels in pieces behind the messages that announce them: while one piece travels the next is
//! copied out of the sender's GPU, and the one before into the receiver's.

use super::channel::{Channel, Ends, Missing};
use super::ops::ChannelOps;
use super::protocol::{Message, TransferError};
use super::receiver::{Destination, FetchRequest, Receiver};
use super::sender::{Payload, PayloadSender};
use super::staging::{HOST_SLOTS, HostSlots, PendingCopies, Ring};
use crate::bootstrap::Connection;
use crate::cuda::{CudaError, PendingCopy, Scope};
use crate::matching::Source;
use crate::pair::Pair;

/// The channel.
pub(super) struct Tcp;

impl ChannelOps for Tcp {
    fn probe(&self, pair: &Pair, _: &Ends) -> Result<(), Missing> {
        pair.network.as_ref().map(drop).map_err(|why| Missing::NoNetwork(why.clone()))
    }

    /// A network of 400 Gbit/s.
    fn max_rate(&self) -> f64 {
        50.0
    }

    fn advice(&self, missing: &Missing) -> Option<&'static str> {
        matches!(missing, Missing::NoNetwork(_)).then_some(
            "For ranks that share nothing of a host, give both containers a network with addresses, and \
             name the hosts in CAUSEWAY_COMM_HOSTS.",
        )
    }

    fn is_between_hosts(&self) -> bool {
        true
    }

    fn accepts(&self, _: &Source) -> bool {
        true
    }

    fn passes_host_memory(&self) -> bool {
        true
    }

    fn carries_copies(&self) -> bool {
        true
    }

    fn send(&self, sender: &mut PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError> {
        if sender.slots.is_none() {
            sender.slots = Some(HostSlots::new(HOST_SLOTS).map_err(TransferError::Memory)?.0);
        }
        if let Some(slots) = &mut sender.slots {
            slots.pin(payload.scope);
        }
        send(sender.connection, sender.slots()?, payload.bytes, |to, at, bytes| {
            // SAFETY: the program leaves the range alone until the offer ends, and the slot is nobody's now.
            unsafe { PendingCopy::begin(payload.scope, to, payload.address + at, bytes) }
        })
    }

    fn send_copy(&self, sender: &PayloadSender<'_>, _: Channel, copy: &[u8]) -> Result<(), TransferError> {
        send_copy(sender.connection, HOST_SLOTS, copy)
    }

    fn receive(
        &self,
        receiver: &mut Receiver,
        request: &FetchRequest,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        // Memory of the host is received into as it is.
        let scope = destination.memory.and_then(|_| destination.scope().transpose()).transpose()?;
        let slots = match receiver.slots.take() {
            Some(slots) => slots,
            None => {
                receiver.has_opened = true;
                HostSlots::new(HOST_SLOTS).map_err(TransferError::Memory)?.0
            }
        };
        let slots = receiver.slots.insert(slots);
        if let Some(scope) = &scope {
            slots.pin(scope);
        }
        receiver.request(Channel::Tcp, request)?;
        let (slots, scope) = (receiver.slots()?, scope.as_ref());
        let next = || receiver.receive_message(Channel::Tcp).map(|(message, _)| message);
        // SAFETY: the receive's memory is this function's until the receive ends.
        unsafe { receive(&receiver.connection, slots, request.bytes, request.to, scope, next) }
    }
}

/// Sends a payload, each piece of which `begin` begins to copy to an address. It says where in the payload
/// the piece begins, and its bytes.
fn send(
    connection: &Connection,
    slots: &HostSlots,
    payload: u64,
    begin: impl Fn(u64, u64, usize) -> Result<PendingCopy, CudaError>,
) -> Result<(), TransferError> {
    let mut pending = PendingCopies::default();
    for (slot, at, bytes) in slots.ring.pieces(payload) {
        pending.push(Some(begin(slots.address(slot), at, bytes as usize)?), (slot, bytes));
        // One is sent while one is copied, so that no slot is filled before it was sent.
        if pending.len() > 1 || slots.ring.count == 1 {
            send_first(connection, slots, &mut pending)?;
        }
    }
    while pending.len() > 0 {
        send_first(connection, slots, &mut pending)?;
    }
    Ok(())
}

fn send_first(
    connection: &Connection,
    slots: &HostSlots,
    pending: &mut PendingCopies<(u16, u32)>,
) -> Result<(), TransferError> {
    let Some((slot, bytes)) = pending.end_first().map_err(|(error, _)| error)? else { return Ok(()) };
    // SAFETY: the slot is mapped, as long as that, and this end's alone; the copy into it is done.
    let piece = unsafe { core::slice::from_raw_parts(slots.address(slot) as *const u8, bytes as usize) };
    connection.send_message(Message::Piece { slot, bytes })?;
    connection.send_payload(piece)
}

/// Sends a payload that lies in memory of the host, in the pieces of the same ring.
fn send_copy(connection: &Connection, ring: Ring, copy: &[u8]) -> Result<(), TransferError> {
    for (slot, at, bytes) in ring.pieces(copy.len() as u64) {
        connection.send_message(Message::Piece { slot, bytes })?;
        connection.send_payload(&copy[at as usize..][..bytes as usize])?;
    }
    Ok(())
}

/// Receives a payload into memory of the host, or of a GPU where there is a scope. `receive` gives the
/// sender's next message. Where a copy fails the rest is received all the same, so that both ends stay in
/// step.
///
/// # Safety
/// `to` is valid for the payload, and no other code uses it.
unsafe fn receive(
    connection: &Connection,
    slots: &HostSlots,
    payload: u64,
    to: u64,
    scope: Option<&Scope<'static>>,
    receive: impl Fn() -> Result<Message, TransferError>,
) -> Result<(), TransferError> {
    let mut pending = PendingCopies::default();
    let mut outcome = Ok(());
    for (slot, at, bytes) in slots.ring.pieces(payload) {
        if receive()? != (Message::Piece { slot, bytes }) {
            return Err(connection.wrong("another piece than the next"));
        }
        if pending.len() == usize::from(slots.ring.count) {
            outcome = outcome.and(pending.end_first().map(drop).map_err(|(error, ())| error));
        }
        let target = if scope.is_some() { slots.address(slot) } else { to + at };
        // SAFETY: a slot that is mapped, as long as that, and not copied from any more, or a part of the
        // caller's memory for the payload.
        let piece = unsafe { core::slice::from_raw_parts_mut(target as *mut u8, bytes as usize) };
        connection.receive_payload(piece)?;
        if let (Some(scope), Ok(())) = (scope, &outcome) {
            // SAFETY: the part lies within the payload, for which the caller has `to` valid; the copy is
            // waited for before this returns.
            match unsafe { PendingCopy::begin(scope, to + at, target, bytes as usize) } {
                Ok(copy) => pending.push(Some(copy), ()),
                Err(error) => outcome = Err(error),
            }
        }
    }
    while pending.len() > 0 {
        outcome = outcome.and(pending.end_first().map(drop).map_err(|(error, ())| error));
    }
    Ok(outcome?)
}
