//! Fetch through the GPUs' BARs.

use super::fetcher::{Destination, Fetcher};
use super::order::Order;
use crate::channels::Channel;
use crate::channels::TransferError;
use crate::channels::message::Message;

impl Fetcher {
    /// Receives a payload through the slots, which the sender has been told of. Where a copy fails the rest
    /// is heard all the same, so that the peer and this end stay in step.
    pub(super) fn pass_to_bar(
        &mut self,
        first: Message,
        order: &Order,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        let slots = self.slots.as_ref().ok_or_else(|| self.connection.wrong("slots"))?;
        let scope = destination.scope();
        let mut outcome = scope.as_ref().map(drop).map_err(|error| TransferError::from(*error));
        let mut first = Some(first);
        for (slot, at, bytes) in slots.ring.pieces(order.bytes) {
            let message = match first.take() {
                Some(message) => message,
                None => self.receive_message(Channel::Bar)?.0,
            };
            if message != (Message::Piece { slot, bytes }) {
                return Err(self.connection.wrong("another piece than the next"));
            }
            let (to, from, bytes) = (order.to + at, slots.address(slot), bytes as usize);
            match (&outcome, &scope, &destination.memory) {
                (Ok(()), Ok(Some(scope)), Some(memory)) => {
                    // SAFETY: the slot is mapped and holds these bytes, and the receive's memory is this
                    // function's until the receive ends.
                    let written = unsafe { self.windows.write(scope, memory, to, from, bytes) };
                    outcome = written.map_err(TransferError::Bar);
                }
                (Ok(()), ..) => {
                    // SAFETY: as above; both are memory of the host, which do not overlap.
                    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
                }
                // There is nothing to be copied any more.
                (Err(_), ..) => {}
            }
            self.connection.send_message(Message::Free { slot })?;
        }
        outcome
    }
}
