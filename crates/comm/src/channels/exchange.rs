//! Exchange of the rendezvous protocol's messages over a connection, and the errors of transfers, which name
//! the peer.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use causeway_memory::SealedMemoryError;
use thiserror::Error;

use super::bar::BarError;
use super::channel::Channel;
use super::protocol::{Message, Refusal};
use crate::bootstrap::{Connection, MESSAGE_BYTES};
use crate::cuda::CudaError;
use crate::verbs::{ENDPOINT_BYTES, EndpointAddress, RdmaError};

/// Messages that may lie in a connection that its peer has ended.
const MAX_UNREAD_MESSAGES: usize = 1000;

impl Connection {
    /// Sends a message.
    pub(crate) fn send_message(&self, message: Message) -> Result<(), TransferError> {
        self.send_with_descriptor(message, None)
    }

    /// Tells the peer that this rank moves to another container, and ends the connection.
    pub(crate) fn send_moving(&self) {
        // It may have gone.
        let _ = self.send_message(Message::Moving);
        self.shut();
    }

    /// Sends a message, and a descriptor with it.
    pub(crate) fn send_with_descriptor(
        &self,
        message: Message,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), TransferError> {
        self.send_message_bytes(&message.encode(), descriptor)
    }

    /// Sends as many bytes as a message has.
    pub(crate) fn send_message_bytes(
        &self,
        bytes: &[u8; MESSAGE_BYTES],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), TransferError> {
        self.send(bytes, descriptor).map_err(|cause| self.failed(cause))
    }

    /// Receives a message, and the descriptor that came with it.
    pub(crate) fn receive_message(&self) -> Result<(Message, Option<OwnedFd>), TransferError> {
        let (bytes, descriptor) = self.receive_message_bytes()?;
        let message = Message::decode(&bytes).ok_or_else(|| self.wrong("bytes that are no message"))?;
        if message == Message::Moving {
            return Err(TransferError::Moved(self.peer));
        }
        Ok((message, descriptor))
    }

    /// What the error of a transfer is. Where it ends the connection that is shut; the peer may have said
    /// before that it moves.
    pub(crate) fn ended_by(&self, error: TransferError) -> TransferError {
        if !error.ends_connection() {
            return error;
        }
        let is_silent = |kind| matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let may_move = matches!(&error, TransferError::Connection { cause, .. } if !is_silent(cause.kind()));
        let moves = |error: &TransferError| matches!(error, TransferError::Moved(_));
        let farewell = || {
            core::iter::repeat_with(|| self.receive_message().err())
                .take(MAX_UNREAD_MESSAGES)
                .flatten()
                .next()
        };
        let error = may_move.then(farewell).flatten().filter(moves).unwrap_or(error);
        self.shut();
        error
    }

    /// Receives as many bytes as a message has.
    pub(crate) fn receive_message_bytes(
        &self,
    ) -> Result<([u8; MESSAGE_BYTES], Option<OwnedFd>), TransferError> {
        let received = self.receive().map_err(|cause| self.failed(cause))?;
        received.ok_or_else(|| self.failed(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Sends an end of a path between cards, which the message before it has announced.
    pub(crate) fn send_endpoint(&self, end: &EndpointAddress) -> Result<(), TransferError> {
        for part in end.encode().as_chunks::<MESSAGE_BYTES>().0 {
            self.send_message_bytes(part, None)?;
        }
        Ok(())
    }

    /// Receives such an end.
    pub(crate) fn receive_endpoint(&self) -> Result<EndpointAddress, TransferError> {
        let mut bytes = [0; ENDPOINT_BYTES];
        for part in bytes.as_chunks_mut::<MESSAGE_BYTES>().0 {
            *part = self.receive_message_bytes()?.0;
        }
        EndpointAddress::decode(&bytes)
            .ok_or_else(|| self.wrong("an end of a path between RDMA devices that cannot be"))
    }

    /// Sends bytes of a payload, which the message before them has announced.
    pub(crate) fn send_payload(&self, bytes: &[u8]) -> Result<(), TransferError> {
        self.send_bytes(bytes).map_err(|cause| self.failed(cause))
    }

    /// Receives bytes of a payload that was announced.
    pub(crate) fn receive_payload(&self, bytes: &mut [u8]) -> Result<(), TransferError> {
        self.receive_bytes(bytes).map_err(|cause| self.failed(cause))
    }

    /// The error for a peer that says what makes no sense here.
    pub(crate) fn wrong(&self, what: &'static str) -> TransferError {
        TransferError::Protocol { peer: self.peer, what }
    }

    /// The error for a card that fails.
    pub(crate) fn rdma_failed(&self, cause: RdmaError) -> TransferError {
        TransferError::Rdma { peer: self.peer, cause }
    }

    fn failed(&self, cause: io::Error) -> TransferError {
        TransferError::Connection { peer: self.peer, cause }
    }
}

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
        channel: Channel,
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

    /// Whether it is of little use to ask for the channel again soon: what joins two cards comes back when
    /// somebody sees to it.
    pub(crate) fn needs_long(&self) -> bool {
        matches!(self, Self::Rdma { .. } | Self::Refused { refusal: Refusal::Rdma, .. })
    }

    /// Whether nothing more can be said on the connection.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self, Self::Connection { .. } | Self::Protocol { .. } | Self::Moved(_))
    }
}
