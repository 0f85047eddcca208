//! Channel `bar`: through the GPU's BAR, which the processor writes and reads like memory (GDRCOPY).
//!
//! The kernel module of GDRCOPY maps it, or NVIDIA's driver itself, where it lets dma-bufs of a GPU's memory
//! be mapped. Writes are fast, reads take a microsecond for a few bytes: it is for the shortest messages.
//!
//! | module | contents |
//! | --- | --- |
//! | `gdrdrv` | Client of GDRCOPY's kernel module, and the errors of a BAR |
//! | `window` | BAR mappings of GPU memory: by what they are made, one of them, and the cache of them, through which bytes are copied |
//! | `mmio` | MMIO copies to and from device memory |
//! | `cost` | Costs of short copies by the processor and by the driver, of which the lower one counts |
//! | `eager` | Eager copies: short messages that the processor copies out of a GPU's memory, and into it |

mod cost;
mod eager;
mod gdrdrv;
mod mmio;
mod window;

pub(crate) use eager::EagerCopies;
pub use gdrdrv::BarError;
pub(crate) use window::{Windows, has_module, usable};

use super::channel::{Channel, Ends, Missing};
use super::ops::ChannelOps;
use super::protocol::{Message, TransferError};
use super::receiver::{Destination, FetchRequest, Receiver};
use super::sender::{Payload, PayloadSender};
use crate::matching::Source;
use crate::pair::{Locality, Pair};

/// The channel.
pub(super) struct Bar;

impl ChannelOps for Bar {
    fn probe(&self, pair: &Pair, ends: &Ends) -> Result<(), Missing> {
        if pair.locality == Locality::OtherHost {
            return Err(Missing::OtherHost);
        }
        ends.gpus()?;
        ends.bar.clone().map_err(Missing::NoBar)?;
        // Between the two BARs bytes pass through memory of the host.
        pair.memory.as_ref().map(drop).map_err(|why| Missing::NoMemory(why.clone()))
    }

    /// PCI Express 6.0 with 16 lanes.
    fn max_rate(&self) -> f64 {
        128.0
    }

    fn is_for_short(&self) -> bool {
        true
    }

    fn accepts(&self, source: &Source) -> bool {
        source.bar
    }

    fn carries_copies(&self) -> bool {
        true
    }

    /// Has the processor fill the peer's slots out of the GPU's BAR.
    fn send(&self, sender: &mut PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError> {
        let mut windows = core::mem::take(&mut sender.windows);
        let slots = sender.slots()?;
        let passed = sender.pass(payload.bytes, slots.ring, |slot, at, bytes| {
            let (from, to) = (payload.address + at, slots.address(slot));
            // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is mapped
            // for as long as this runs, is nobody's now.
            let read = unsafe { windows.read(payload.scope, payload.memory, from, to, bytes) };
            read.map(|()| None).map_err(TransferError::Bar)
        });
        sender.windows = windows;
        passed
    }

    fn send_copy(&self, sender: &PayloadSender<'_>, _: Channel, copy: &[u8]) -> Result<(), TransferError> {
        let slots = sender.slots()?;
        sender.pass_copy(copy, slots.ring, |slot| slots.address(slot))
    }

    /// Has the processor write into the GPU's BAR what comes through the slots. Where a copy fails the rest
    /// is received all the same, so that the peer and this end stay in step.
    fn receive(
        &self,
        receiver: &mut Receiver,
        request: &FetchRequest,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        receiver.send_slots()?;
        receiver.request(Channel::Bar, request)?;
        let (first, _) = receiver.receive_message(Channel::Bar)?;
        let Message::Piece { .. } = first else {
            return Err(receiver.connection.wrong("another answer than the channel has"));
        };
        let slots = receiver.slots.as_ref().ok_or_else(|| receiver.connection.wrong("slots"))?;
        let scope = destination.scope();
        let mut outcome = scope.as_ref().map(drop).map_err(|error| TransferError::from(*error));
        let mut first = Some(first);
        for (slot, at, bytes) in slots.ring.pieces(request.bytes) {
            let message = match first.take() {
                Some(message) => message,
                None => receiver.receive_message(Channel::Bar)?.0,
            };
            if message != (Message::Piece { slot, bytes }) {
                return Err(receiver.connection.wrong("another piece than the next"));
            }
            let (to, from, bytes) = (request.to + at, slots.address(slot), bytes as usize);
            match (&outcome, &scope, &destination.memory) {
                (Ok(()), Ok(Some(scope)), Some(memory)) => {
                    // SAFETY: the slot is mapped and holds these bytes, and the receive's memory is this
                    // function's until the receive ends.
                    let written = unsafe { receiver.windows.write(scope, memory, to, from, bytes) };
                    outcome = written.map_err(TransferError::Bar);
                }
                (Ok(()), ..) => {
                    // SAFETY: the slot is mapped and holds these bytes, the receive's memory is this
                    // function's until the receive ends, and both are memory of the host, which do not
                    // overlap.
                    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
                }
                // There is nothing to be copied any more.
                (Err(_), ..) => {}
            }
            receiver.connection.send_message(Message::Free { slot })?;
        }
        outcome
    }
}
