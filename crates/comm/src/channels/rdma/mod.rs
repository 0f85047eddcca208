//! Channels `rdma` and `loopback`: by network cards, between two hosts, or by one of this host, which reads
//! one rank's memory and writes the other's. The receiver's card reads the sender's memory. A card reaches a
//! GPU's memory where both drivers can (GPUDirect RDMA); otherwise bytes pass through memory of the host, at
//! the end where it does not.
//!
//! `path` has what each end keeps of the two joined cards, `read` the receiver's reads.

mod path;
mod read;

pub(super) use path::{RdmaReader, RdmaStaging, RdmaTarget};

use causeway_ibverbs::RemoteMemory;

use super::channel::{Channel, Ends, Missing};
use super::ops::ChannelOps;
use super::protocol::{Message, TransferError};
use super::receiver::{Destination, FetchRequest, Receiver};
use super::sender::{Payload, PayloadSender};
use super::staging::HOST_SLOTS;
use crate::cuda::PendingCopy;
use crate::matching::Source;
use crate::pair::{Locality, Pair};

/// Bytes in a nanosecond that cards carry at most: 800 Gbit/s.
const MAX_RATE: f64 = 100.0;

/// The two channels, which differ in the ranks that they join.
#[derive(PartialEq, Eq)]
pub(super) enum Rdma {
    /// `rdma`.
    BetweenHosts,
    /// `loopback`.
    WithinHost,
}

impl Rdma {
    fn channel(&self) -> Channel {
        match self {
            Self::BetweenHosts => Channel::Rdma,
            Self::WithinHost => Channel::Loopback,
        }
    }
}

impl ChannelOps for Rdma {
    fn probe(&self, pair: &Pair, ends: &Ends) -> Result<(), Missing> {
        match (self, pair.locality == Locality::OtherHost) {
            (Self::BetweenHosts, false) => Err(Missing::SameHost),
            (Self::WithinHost, true) => Err(Missing::OtherHost),
            _ => ends.rdma.clone().map_err(Missing::NoRdmaDevice),
        }
    }

    fn max_rate(&self) -> f64 {
        MAX_RATE
    }

    fn is_between_hosts(&self) -> bool {
        *self == Self::BetweenHosts
    }

    fn is_for_short(&self) -> bool {
        *self == Self::WithinHost
    }

    fn uses_rdma(&self) -> bool {
        true
    }

    fn accepts(&self, source: &Source) -> bool {
        source.rdma
    }

    fn carries_copies(&self) -> bool {
        true
    }

    fn send(&self, sender: &mut PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError> {
        send(sender, self.channel(), payload)
    }

    fn send_copy(
        &self,
        sender: &PayloadSender<'_>,
        channel: Channel,
        copy: &[u8],
    ) -> Result<(), TransferError> {
        send_copy(sender, channel, copy)
    }

    fn receive(
        &self,
        receiver: &mut Receiver,
        request: &FetchRequest,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        read::receive(receiver, self.channel(), request, destination)
    }
}

/// Lets the peer's card read the payload in place, or else out of slots.
fn send(
    sender: &mut PayloadSender<'_>,
    channel: Channel,
    payload: &Payload<'_>,
) -> Result<(), TransferError> {
    let scope = payload.scope;
    if let Some(target) = &mut sender.rdma {
        let may_expose = sender.allows_gpudirect
            && payload.is_within()
            && target.reads_directly(payload.address, payload.bytes);
        let exposed = may_expose.then(|| target.expose(scope, payload.memory, payload.address)).flatten();
        if let Some(RemoteMemory { address, key }) = exposed {
            return sender.connection.send_message(Message::Exposed { key, address });
        }
        target.slots.pin(scope);
    }
    let slots = sender.rdma_slots(channel)?;
    sender.pass(payload.bytes, HOST_SLOTS, |slot, at, bytes| {
        let (to, from) = (slots.address(slot), payload.address + at);
        // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is mapped
        // for as long as this runs, is nobody's now.
        Ok(Some(unsafe { PendingCopy::begin(scope, to, from, bytes) }?))
    })
}

/// Gives a copy out of slots.
fn send_copy(sender: &PayloadSender<'_>, channel: Channel, copy: &[u8]) -> Result<(), TransferError> {
    let slots = sender.rdma_slots(channel)?;
    sender.pass_copy(copy, HOST_SLOTS, |slot| slots.address(slot))
}
