//! Fetch through the staging ring.

use super::fetcher::Fetcher;
use super::order::Order;
use crate::channels::Channel;
use crate::channels::TransferError;
use crate::channels::message::Message;
use crate::channels::staging::{PendingCopies, Ring};
use crate::cuda::{CudaError, PendingCopy, Scope};

impl Fetcher {
    /// Receives a payload through slots; while one is copied out the next one is heard of. Where a copy fails
    /// the rest is heard all the same, so that the peer and this end stay in step.
    pub(super) fn pass(
        &self,
        first: Option<Message>,
        order: &Order,
        scope: Result<Option<Scope<'static>>, CudaError>,
        ring: Ring,
        channel: Channel,
        address: impl Fn(u16) -> u64,
    ) -> Result<(), TransferError> {
        let mut outcome = scope.as_ref().map(drop).map_err(|error| *error);
        let mut first = first;
        let mut pending = PendingCopies::default();
        for (slot, at, bytes) in ring.pieces(order.bytes) {
            let message = match first.take() {
                Some(message) => message,
                None => self.receive_message(channel)?.0,
            };
            if message != (Message::Piece { slot, bytes }) {
                return Err(self.connection.wrong("another piece than the next"));
            }
            let (to, from, bytes) = (order.to + at, address(slot), bytes as usize);
            let copy = match (&scope, &outcome) {
                // SAFETY: the slot is mapped and holds these bytes, and the receive's memory is this
                // function's until the receive ends. The copy is waited for before this returns.
                (Ok(Some(scope)), Ok(())) => unsafe { PendingCopy::begin(scope, to, from, bytes) }.map(Some),
                (Ok(None), Ok(())) => {
                    // SAFETY: as above; both are memory of the host, which do not overlap.
                    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
                    Ok(None)
                }
                // There is nothing to be copied any more.
                _ => Ok(None),
            };
            pending.push(copy.unwrap_or_else(|error| keep(&mut outcome, error)), slot);
            if pending.len() >= usize::from(ring.count.div_ceil(2)) {
                self.free_first(&mut pending, &mut outcome)?;
            }
        }
        while pending.len() > 0 {
            self.free_first(&mut pending, &mut outcome)?;
        }
        Ok(outcome?)
    }

    /// Tells the sender of the slot that has been read first.
    fn free_first(
        &self,
        pending: &mut PendingCopies<u16>,
        outcome: &mut Result<(), CudaError>,
    ) -> Result<(), TransferError> {
        let slot = match pending.end_first() {
            Ok(Some(slot)) => slot,
            Ok(None) => return Ok(()),
            Err((error, slot)) => keep(outcome, error).unwrap_or(slot),
        };
        self.connection.send_message(Message::Free { slot })
    }
}

/// Keeps the first error of several.
fn keep<T>(outcome: &mut Result<(), CudaError>, error: CudaError) -> Option<T> {
    if outcome.is_ok() {
        *outcome = Err(error);
    }
    None
}
