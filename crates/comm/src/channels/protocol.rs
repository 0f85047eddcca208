//! Rendezvous protocol: its messages, their exchange over a connection, and the errors of transfers, which
//! name the peer.
//!
//! Messages of 16 bytes, little-endian: what it is, a small number, a slot (2 bytes), a length (4 bytes), a
//! number (8 bytes).
//!
//! ```text
//! receiver                            sender
//!                         ◄──────────  StateWords (+ descriptor)    once, before all else; none where the peer has them
//!   Slots (+ descriptor)  ──────────►            once, before the first fetch by `staged`
//!   Fetch channel, operation ───────►
//! either, through slots:
//!                         ◄──────────  Bounce (+ descriptor)    by `vmm` only
//!   Need, or nothing      ──────────►            where the descriptor is new
//!                         ◄──────────  Piece slot, bytes        as many as there are free slots
//!   Free slot             ──────────►
//! or, from where the bytes lie:
//!                         ◄──────────  Region buffer, Offset offset
//!   Need, or nothing      ──────────►
//!                         ◄──────────  Handle (+ 64 bytes), or Export bytes (+ descriptor)
//! or, by a card (`rdma`, `loopback`):
//!   Join more (+ 64 bytes for each) ►            once, before the first fetch by it
//!                         ◄──────────  Joined more (+ 64 bytes for each)
//!                         ◄──────────  Exposed key, address    where the card reaches the payload, else
//!                         ◄──────────  Piece slot, bytes        which the receiver reads
//!   Free slot             ──────────►
//! at the end:
//!   Done operation, or Abandoned     ►
//! ```
//!
//! Where the receiver has the buffer open already, it says nothing of all that: it uses the offer's word
//! (`state_words.rs`). Either end may say `Moving` between two payloads, and then nothing more: it goes to another
//! container, and both look for each other again. Instead of anything that it is to say, the sender may say
//! `Refused`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use causeway_memory::SealedMemoryError;
use thiserror::Error;

use super::bar::BarError;
use super::channel::Channel;
use crate::bootstrap::{Connection, MESSAGE_BYTES};
use crate::cuda::CudaError;
use crate::verbs::{ENDPOINT_BYTES, EndpointAddress, RdmaError};

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// The words of offers come with this, if there are any; or the peer has them from a connection before.
    StateWords { are_known: bool },
    /// This end moves to another container, and is to be looked for again.
    Moving,
    /// Shared memory of the host comes with this: so many slots of so many bytes.
    Slots { count: u16, bytes: u32 },
    /// The payload of an operation is wanted.
    Fetch { channel: Channel, operation: u64 },
    /// The payload comes through slots on the sender's GPU, which come with this if they have not before.
    Bounce { count: u16, bytes: u32, total: u64, is_new: bool },
    /// The next bytes of the payload are in a slot.
    Piece { slot: u16, bytes: u32 },
    /// They have been read.
    Free { slot: u16 },
    /// The payload lies in the buffer of this number.
    Region { buffer: u64 },
    /// So many bytes behind its start.
    Offset { offset: u64 },
    /// The receiver wants to have the buffer, or has it.
    Need { needed: bool },
    /// A handle of cudaIPC follows, as four messages' bytes.
    Handle,
    /// A descriptor of so many bytes of memory comes with this.
    Export { bytes: u64 },
    /// The receiver's end of a path between cards follows, as four messages' bytes, and those of so many more queue
    /// pairs.
    Join { more: u16 },
    /// The sender's ends follow in the same way, of as many queue pairs or fewer: the two are joined.
    Joined { more: u16 },
    /// The payload lies where the receiver's card may read it.
    Exposed { key: u32, address: u64 },
    /// The receiver has all of it.
    Done { operation: u64 },
    /// The receiver gives up.
    Abandoned { operation: u64 },
    /// The sender cannot.
    Refused(Refusal),
}

/// Why a sender cannot do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is no such operation for this receiver.
    #[error("it does not know this message")]
    Unknown,
    /// The driver failed.
    #[error("its driver failed with CUDA error {0}")]
    Cuda(u32),
    /// It cannot have been asked for that.
    #[error("it does not have that channel for this memory")]
    Channel,
    /// The program has its memory back, and there is a copy in memory of the host.
    #[error("its program has continued with a copy of the message, which only `staged` can send")]
    Copied,
    /// The kernel has dropped the descriptor of the memory through which the payload is to pass.
    #[error("the staging memory has not reached it: it has too many open descriptors")]
    Slots,
    /// The memory is another one than that which was offered.
    #[error("the program freed the memory of the message before the message was received")]
    Memory,
    /// It has no card, or that cannot be joined with the receiver's.
    #[error("it has no RDMA device that this rank's device can connect to")]
    Rdma,
}

impl Message {
    pub(crate) fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (kind, small, slot, length, number) = match self {
            Self::Slots { count, bytes } => (1, 0, count, bytes, 0),
            Self::Fetch { channel, operation } => (2, code(channel), 0, 0, operation),
            Self::Bounce { count, bytes, total, is_new } => (3, u8::from(is_new), count, bytes, total),
            Self::Piece { slot, bytes } => (4, 0, slot, bytes, 0),
            Self::Free { slot } => (5, 0, slot, 0, 0),
            Self::Region { buffer } => (6, 0, 0, 0, buffer),
            Self::Offset { offset } => (7, 0, 0, 0, offset),
            Self::Need { needed } => (8, u8::from(needed), 0, 0, 0),
            Self::Handle => (9, 0, 0, 0, 0),
            Self::Export { bytes } => (10, 0, 0, 0, bytes),
            Self::Done { operation } => (11, 0, 0, 0, operation),
            Self::Abandoned { operation } => (12, 0, 0, 0, operation),
            Self::Refused(Refusal::Unknown) => (13, 0, 0, 0, 0),
            Self::Refused(Refusal::Cuda(code)) => (13, 1, 0, code, 0),
            Self::Refused(Refusal::Channel) => (13, 2, 0, 0, 0),
            Self::Refused(Refusal::Copied) => (13, 3, 0, 0, 0),
            Self::Refused(Refusal::Rdma) => (13, 4, 0, 0, 0),
            Self::Refused(Refusal::Memory) => (13, 5, 0, 0, 0),
            Self::Refused(Refusal::Slots) => (13, 6, 0, 0, 0),
            Self::StateWords { are_known } => (14, u8::from(are_known), 0, 0, 0),
            Self::Join { more } => (15, 0, more, 0, 0),
            Self::Joined { more } => (16, 0, more, 0, 0),
            Self::Exposed { key, address } => (17, 0, 0, key, address),
            Self::Moving => (18, 0, 0, 0, 0),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = kind;
        bytes[1] = small;
        bytes[2..4].copy_from_slice(&u16::to_le_bytes(slot));
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(length));
        bytes[8..].copy_from_slice(&u64::to_le_bytes(number));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let slot = u16::from_le_bytes([bytes[2], bytes[3]]);
        let length = u32::from_le_bytes(core::array::from_fn(|at| bytes[4 + at]));
        let number = u64::from_le_bytes(core::array::from_fn(|at| bytes[8 + at]));
        let message = match (bytes[0], bytes[1]) {
            (1, 0) => Self::Slots { count: slot, bytes: length },
            (2, small) => Self::Fetch { channel: channel(small)?, operation: number },
            (3, small) => Self::Bounce { count: slot, bytes: length, total: number, is_new: small == 1 },
            (4, 0) => Self::Piece { slot, bytes: length },
            (5, 0) => Self::Free { slot },
            (6, 0) => Self::Region { buffer: number },
            (7, 0) => Self::Offset { offset: number },
            (8, small) => Self::Need { needed: small == 1 },
            (9, 0) => Self::Handle,
            (10, 0) => Self::Export { bytes: number },
            (11, 0) => Self::Done { operation: number },
            (12, 0) => Self::Abandoned { operation: number },
            (13, 0) => Self::Refused(Refusal::Unknown),
            (13, 1) => Self::Refused(Refusal::Cuda(length)),
            (13, 2) => Self::Refused(Refusal::Channel),
            (13, 3) => Self::Refused(Refusal::Copied),
            (13, 4) => Self::Refused(Refusal::Rdma),
            (13, 5) => Self::Refused(Refusal::Memory),
            (13, 6) => Self::Refused(Refusal::Slots),
            (14, small) => Self::StateWords { are_known: small == 1 },
            (15, 0) => Self::Join { more: slot },
            (16, 0) => Self::Joined { more: slot },
            (18, 0) => Self::Moving,
            (17, 0) => Self::Exposed { key: length, address: number },
            _ => return None,
        };
        // What has no meaning is zero, so that a message has one form.
        (message.encode() == *bytes).then_some(message)
    }
}

fn code(channel: Channel) -> u8 {
    channel.index() as u8
}

fn channel(code: u8) -> Option<Channel> {
    Channel::ALL.get(usize::from(code)).copied()
}

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
    #[error("the connection to rank {peer}, which has ended or hangs, failed: {cause}")]
    Connection {
        /// The peer.
        peer: u32,
        /// What the system said.
        cause: io::Error,
    },
    /// The peer moves to another container, and comes again.
    #[error("rank {0} is moving to another container, and has not sent the message since")]
    Moved(u32),
    /// The peer says what makes no sense here.
    #[error("rank {peer} sent an unexpected message: {what}")]
    Protocol {
        /// The peer.
        peer: u32,
        /// What.
        what: &'static str,
    },
    /// The peer cannot.
    #[error("rank {peer} cannot send the message by {channel}: {refusal}")]
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
    #[error("cannot allocate staging memory: {0}")]
    Memory(#[from] SealedMemoryError),
    /// The kernel drops a descriptor for which the process has no number left.
    #[error(
        "a descriptor that rank {0} has sent did not arrive: this process has too many open (see `ulimit -n`)"
    )]
    NoDescriptor(u32),
    /// A card.
    #[error("cannot receive the message of rank {peer} by an RDMA device: {cause}")]
    Rdma {
        /// The peer.
        peer: u32,
        /// Why not.
        cause: RdmaError,
    },
    /// A BAR.
    #[error("cannot receive the message through the GPU's BAR: {0}")]
    Bar(#[source] BarError),
    /// No channel.
    #[error("no channel connects this rank and rank {peer}: {why}")]
    NoChannel {
        /// The peer.
        peer: u32,
        /// Why not, for each.
        why: String,
    },
    /// No connection came.
    #[error("rank {0} announced a message and has not sent it: it may have ended")]
    NoConnection(u32),
}

impl TransferError {
    /// Whether the error concerns the channel: one that fails again and again is left alone for a while. That
    /// a program went on with a copy of its message, or has freed the memory, says nothing of channels.
    pub(crate) fn is_of_channel(&self) -> bool {
        !matches!(self, Self::Refused { refusal: Refusal::Copied, .. }) && !self.is_of_message()
    }

    /// Whether the error concerns the message, which then no channel can transfer.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_the_way() {
        let all = [
            Message::Slots { count: 4, bytes: 1 << 19 },
            Message::Fetch { channel: Channel::Vmm, operation: u64::MAX },
            Message::Bounce { count: 2, bytes: 1 << 22, total: 1 << 40, is_new: true },
            Message::Piece { slot: 3, bytes: 17 },
            Message::Free { slot: 3 },
            Message::Region { buffer: 9 },
            Message::Offset { offset: 1 << 50 },
            Message::Need { needed: true },
            Message::Need { needed: false },
            Message::Handle,
            Message::Export { bytes: 1 << 21 },
            Message::Done { operation: 5 },
            Message::Abandoned { operation: 5 },
            Message::Refused(Refusal::Unknown),
            Message::Refused(Refusal::Cuda(700)),
            Message::Refused(Refusal::Channel),
            Message::Refused(Refusal::Copied),
            Message::Refused(Refusal::Rdma),
            Message::Refused(Refusal::Memory),
            Message::Refused(Refusal::Slots),
            Message::StateWords { are_known: false },
            Message::StateWords { are_known: true },
            Message::Moving,
            Message::Join { more: 1 },
            Message::Joined { more: 0 },
            Message::Exposed { key: u32::MAX, address: 1 << 60 },
        ];
        for message in all {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_message_or_none(bytes: [u8; MESSAGE_BYTES]) {
            if let Some(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
