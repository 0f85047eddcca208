//! Operations of a channel: the trait that each channel's file implements.

use super::channel::{Channel, Ends, Missing};
use super::peer_memory::PeerMemoryOps;
use super::protocol::{Refusal, TransferError};
use super::receiver::{Destination, FetchRequest, Receiver};
use super::sender::{Payload, PayloadSender};
use crate::matching::Source;
use crate::pair::Pair;

/// Advice that helps several channels: one folder is all that two containers have to share.
pub(super) const SHARE_A_FOLDER: &str = "Let both containers share a folder, and name it in \
     CAUSEWAY_SOCKET_DIR: podman run --volume /run/job:/job --env CAUSEWAY_SOCKET_DIR=/job. Nothing else has \
     to be shared.";

/// Advice for GPUs that do not reach each other's memory.
pub(super) const CHOOSE_OTHER_GPUS: &str =
    "Choose two GPUs that can access each other's memory; `causeway doctor` shows their distances.";

/// What a channel is and does. The table in `channels/mod.rs` has one value of each.
pub(super) trait ChannelOps: Sync {
    /// Whether two ranks have the channel, or what is missing. Pure, so that it can be asked about any pair
    /// that can be thought of.
    fn probe(&self, pair: &Pair, ends: &Ends) -> Result<(), Missing>;

    /// Bytes in a nanosecond that it carries at most, from the rates that its parts are sold with: the static
    /// cost, which measurements correct.
    fn max_rate(&self) -> f64;

    /// What to do about something that is missing, where anything helps that is worth it.
    fn advice(&self, _missing: &Missing) -> Option<&'static str> {
        None
    }

    /// Whether it joins ranks that meet over a network, and no others.
    fn is_between_hosts(&self) -> bool {
        false
    }

    /// Whether it is there for short messages, though both ranks have a part in each.
    fn is_for_short(&self) -> bool {
        false
    }

    /// Whether RDMA devices move the bytes, straight out of a GPU's memory where they reach that.
    fn uses_rdma(&self) -> bool {
        false
    }

    /// Whether bytes pass through host memory at one end or both, but for those that RDMA devices move
    /// straight between the memory of two GPUs.
    fn passes_host_memory(&self) -> bool {
        self.uses_rdma()
    }

    /// Whether it carries what a program's memory held, where the program has that back already: whether it
    /// has [`send_copy`](Self::send_copy).
    fn carries_copies(&self) -> bool {
        false
    }

    /// Whether memory that a sender describes so may come by it.
    fn accepts(&self, source: &Source) -> bool;

    /// How it opens the peer's memory where that lies, if it does.
    fn peer_memory(&self) -> Option<&dyn PeerMemoryOps> {
        None
    }

    /// The sender: gives a payload that the peer has asked for.
    fn send(&self, sender: &mut PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError>;

    /// The sender: gives a copy in memory of the host of what the payload was.
    fn send_copy(
        &self,
        sender: &PayloadSender<'_>,
        channel: Channel,
        _copy: &[u8],
    ) -> Result<(), TransferError> {
        Err(sender.refused(channel, Refusal::Copied))
    }

    /// The receiver: asks for a payload, and puts it where it is to be.
    fn receive(
        &self,
        receiver: &mut Receiver,
        request: &FetchRequest,
        destination: &Destination,
    ) -> Result<(), TransferError>;
}
