//! Channel `loopback`: by an RDMA device of this host, which reads one rank's memory and writes the other's.
//! All but the probe is as between hosts.

use super::channel::{Channel, Ends, Missing};
use super::ops::ChannelOps;
use super::protocol::TransferError;
use super::rdma;
use super::receiver::{Destination, Order, Receiver};
use super::sender::{Payload, PayloadSender};
use crate::matching::Source;
use crate::pair::{Locality, Pair};

/// The channel.
pub(super) struct Loopback;

impl ChannelOps for Loopback {
    fn probe(&self, pair: &Pair, ends: &Ends) -> Result<(), Missing> {
        if pair.locality == Locality::OtherHost { Err(Missing::OtherHost) } else { rdma::probe_rdma(ends) }
    }

    fn max_rate(&self) -> f64 {
        rdma::MAX_RATE
    }

    fn is_for_short(&self) -> bool {
        true
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
        rdma::send(sender, Channel::Loopback, payload)
    }

    fn send_copy(
        &self,
        sender: &PayloadSender<'_>,
        channel: Channel,
        copy: &[u8],
    ) -> Result<(), TransferError> {
        rdma::send_copy(sender, channel, copy)
    }

    fn receive(
        &self,
        receiver: &mut Receiver,
        order: &Order,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        rdma::receive(receiver, Channel::Loopback, order, destination)
    }
}
