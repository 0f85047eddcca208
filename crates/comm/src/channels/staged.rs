//! Channel `staged`: through pinned memory of the host that both ranks map, in pieces: one copies from its
//! GPU while the other copies to its own.

use super::channel::{Channel, Ends, Missing};
use super::ops::{ChannelOps, SHARE_A_FOLDER};
use super::protocol::{Message, TransferError};
use super::receiver::{Destination, FetchRequest, Receiver};
use super::sender::{Payload, PayloadSender};
use crate::cuda::PendingCopy;
use crate::matching::Source;
use crate::pair::{Locality, Pair};

/// The channel.
pub(super) struct Staged;

impl ChannelOps for Staged {
    /// A rank without a GPU takes part as well: its side is a copy within the host.
    fn probe(&self, pair: &Pair, _: &Ends) -> Result<(), Missing> {
        if pair.locality == Locality::OtherHost {
            return Err(Missing::OtherHost);
        }
        pair.memory.as_ref().map(drop).map_err(|why| Missing::NoMemory(why.clone()))
    }

    /// PCI Express 6.0 with 16 lanes.
    fn max_rate(&self) -> f64 {
        128.0
    }

    fn advice(&self, missing: &Missing) -> Option<&'static str> {
        matches!(missing, Missing::OtherHost | Missing::NoMemory(_)).then_some(SHARE_A_FOLDER)
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

    /// Has the GPU fill the peer's slots.
    fn send(&self, sender: &mut PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError> {
        if let Some(slots) = &mut sender.slots {
            slots.pin(payload.scope);
        }
        let slots = sender.slots()?;
        sender.pass(payload.bytes, slots.ring, |slot, at, bytes| {
            let (to, from) = (slots.address(slot), payload.address + at);
            // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is mapped
            // for as long as this runs, is nobody's now.
            Ok(Some(unsafe { PendingCopy::begin(payload.scope, to, from, bytes) }?))
        })
    }

    fn send_copy(&self, sender: &PayloadSender<'_>, _: Channel, copy: &[u8]) -> Result<(), TransferError> {
        let slots = sender.slots()?;
        sender.pass_copy(copy, slots.ring, |slot| slots.address(slot))
    }

    fn receive(
        &self,
        receiver: &mut Receiver,
        request: &FetchRequest,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        receiver.send_slots()?;
        let scope = destination.scope();
        // Before the peer writes to them.
        if let (Ok(Some(scope)), Some(slots)) = (&scope, &mut receiver.slots) {
            slots.pin(scope);
        }
        receiver.request(Channel::Staged, request)?;
        let (message, _) = receiver.receive_message(Channel::Staged)?;
        let Message::Piece { .. } = message else {
            return Err(receiver.connection.wrong("another answer than the channel has"));
        };
        let slots = receiver.slots()?;
        receiver.pass(Some(message), request, scope, slots.ring, Channel::Staged, |slot| slots.address(slot))
    }
}
