//! How do the bytes of a message travel over a network? In pieces behind the words that announce them, by way
//! of memory of the host at both ends: while one piece travels the next is copied out of the sender's GPU,
//! and the one before into the receiver's.

use super::error::TransferError;
use super::message::Message;
use super::slots::{Begun, HostSlots, Ring};
use crate::bootstrap::Connection;
use crate::cuda::{CudaError, PendingCopy, Scope};

/// Sends a payload, each piece of which `begin` begins to copy to an address. It says where in the payload
/// the piece begins, and its bytes.
pub(super) fn send(
    connection: &Connection,
    slots: &HostSlots,
    payload: u64,
    begin: impl Fn(u64, u64, usize) -> Result<PendingCopy, CudaError>,
) -> Result<(), TransferError> {
    let mut begun = Begun::default();
    for (slot, at, bytes) in slots.ring.pieces(payload) {
        begun.push(Some(begin(slots.address(slot), at, bytes as usize)?), (slot, bytes));
        // One is sent while one is copied, so that no slot is filled before it was sent.
        if begun.len() > 1 || slots.ring.count == 1 {
            send_first(connection, slots, &mut begun)?;
        }
    }
    while begun.len() > 0 {
        send_first(connection, slots, &mut begun)?;
    }
    Ok(())
}

fn send_first(
    connection: &Connection,
    slots: &HostSlots,
    begun: &mut Begun<(u16, u32)>,
) -> Result<(), TransferError> {
    let Some((slot, bytes)) = begun.end_first().map_err(|(error, _)| error)? else { return Ok(()) };
    // SAFETY: the slot is mapped, as long as that, and this end's alone; the copy into it is done.
    let piece = unsafe { core::slice::from_raw_parts(slots.address(slot) as *const u8, bytes as usize) };
    connection.say(Message::Piece { slot, bytes })?;
    connection.say_payload(piece)
}

/// Sends a payload that lies in memory of the host, in the pieces of the same ring.
pub(super) fn send_copy(connection: &Connection, ring: Ring, copy: &[u8]) -> Result<(), TransferError> {
    for (slot, at, bytes) in ring.pieces(copy.len() as u64) {
        connection.say(Message::Piece { slot, bytes })?;
        connection.say_payload(&copy[at as usize..][..bytes as usize])?;
    }
    Ok(())
}

/// Receives a payload into memory of the host, or of a GPU where there is a scope. `hear` gives the sender's
/// next message. Where a copy fails the rest is received all the same, so that both ends stay in step.
///
/// # Safety
/// `to` is valid for the payload, and nobody else uses it.
pub(super) unsafe fn receive(
    connection: &Connection,
    slots: &HostSlots,
    payload: u64,
    to: u64,
    scope: Option<&Scope<'static>>,
    hear: impl Fn() -> Result<Message, TransferError>,
) -> Result<(), TransferError> {
    let mut begun = Begun::default();
    let mut outcome = Ok(());
    for (slot, at, bytes) in slots.ring.pieces(payload) {
        if hear()? != (Message::Piece { slot, bytes }) {
            return Err(connection.wrong("another piece than the next"));
        }
        if begun.len() == usize::from(slots.ring.count) {
            outcome = outcome.and(begun.end_first().map(drop).map_err(|(error, ())| error));
        }
        let place = if scope.is_some() { slots.address(slot) } else { to + at };
        // SAFETY: a slot that is mapped, as long as that, and not copied from any more, or as promised by the
        // caller.
        let piece = unsafe { core::slice::from_raw_parts_mut(place as *mut u8, bytes as usize) };
        connection.hear_payload(piece)?;
        if let (Some(scope), Ok(())) = (scope, &outcome) {
            // SAFETY: as promised by the caller; the copy is waited for before this returns.
            match unsafe { PendingCopy::begin(scope, to + at, place, bytes as usize) } {
                Ok(copy) => begun.push(Some(copy), ()),
                Err(error) => outcome = Err(error),
            }
        }
    }
    while begun.len() > 0 {
        outcome = outcome.and(begun.end_first().map(drop).map_err(|(error, ())| error));
    }
    Ok(outcome?)
}
