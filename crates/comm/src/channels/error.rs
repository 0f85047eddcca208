//! What goes wrong in a transfer.

use std::io;

use causeway_memory::SealedMemoryError;
use thiserror::Error;

use super::bar::BarError;
use super::message::Refusal;
use crate::cuda::CudaError;
use crate::verbs::RdmaError;

/// Why a transfer failed.
#[derive(Debug, Error)]
pub enum TransferError {
    /// The connection broke.
    #[error("the connection to rank {peer} failed, which has ended or hangs: {cause}")]
    Connection {
        /// The peer.
        peer: u32,
        /// What the system said.
        cause: io::Error,
    },
    /// The peer moves to another container, and comes again.
    #[error("rank {0} moves to another container, and has not come to hand the message over since")]
    Moved(u32),
    /// The peer says what makes no sense here.
    #[error("rank {peer} said something else than was to be said: {what}")]
    Protocol {
        /// The peer.
        peer: u32,
        /// What.
        what: &'static str,
    },
    /// The peer cannot.
    #[error("rank {peer} cannot give the message by {channel}: {refusal}")]
    Refused {
        /// The peer.
        peer: u32,
        /// The channel.
        channel: super::channel::Channel,
        /// Why.
        refusal: Refusal,
    },
    /// The driver here failed.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// Memory of the host could not be had.
    #[error("memory to pass the bytes through could not be had: {0}")]
    Memory(#[from] SealedMemoryError),
    /// The kernel drops a descriptor for which the process has no number left.
    #[error(
        "a descriptor that rank {0} has sent did not arrive: this process has too many open (see `ulimit -n`)"
    )]
    NoDescriptor(u32),
    /// A card.
    #[error("the message of rank {peer} does not come by an RDMA device: {cause}")]
    Rdma {
        /// The peer.
        peer: u32,
        /// Why not.
        cause: RdmaError,
    },
    /// A BAR.
    #[error("the message does not come through the GPU's BAR: {0}")]
    Bar(#[source] BarError),
    /// No channel.
    #[error("no channel joins this rank and rank {peer}: {why}")]
    NoChannel {
        /// The peer.
        peer: u32,
        /// Why not, for each.
        why: String,
    },
    /// No connection came.
    #[error("rank {0} sent word of a message and has not come to hand it over: it may have ended")]
    NoConnection(u32),
}

impl TransferError {
    /// Whether the error tells of the channel: one that fails again and again is left alone for a while. That
    /// a program went on with a copy of its message, or has freed the memory, says nothing of channels.
    pub(crate) fn is_of_channel(&self) -> bool {
        !matches!(self, Self::Refused { refusal: Refusal::Copied, .. }) && !self.is_of_message()
    }

    /// Whether the error tells of the message, which no channel brings.
    pub(crate) fn is_of_message(&self) -> bool {
        matches!(self, Self::Refused { refusal: Refusal::Unknown | Refusal::Memory, .. })
    }

    /// Whether it is of little use to ask for the channel again soon: what joins two cards comes back when somebody
    /// sees to it.
    pub(crate) fn needs_long(&self) -> bool {
        matches!(self, Self::Rdma { .. } | Self::Refused { refusal: Refusal::Rdma, .. })
    }

    /// Whether nothing more can be said on the connection.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Connection { .. } | Self::Protocol { .. } | Self::Moved(_))
    }
}
