//! Messages of the rendezvous protocol.
//!
//! Messages of 16 bytes, little-endian: what it is, a small number, a slot (2 bytes), a length (4 bytes), a
//! number (8 bytes).
//!
//! ```text
//! receiver                            sender
//!                         ◄──────────  Words (+ descriptor)    once, before all else; none where the peer has them
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
//!   Join (+ 64 bytes)     ──────────►            once, before the first fetch by it
//!                         ◄──────────  Joined (+ 64 bytes)
//!                         ◄──────────  Lent key, address        where the card reaches the payload, else
//!                         ◄──────────  Piece slot, bytes        which the receiver reads
//!   Free slot             ──────────►
//! at the end:
//!   Done operation, or Abandoned     ►
//! ```
//!
//! Where the receiver has the buffer open already, it says nothing of all that: it uses the offer's word
//! (`words.rs`). Either end may say `Moving` between two payloads, and then nothing more: it goes to another
//! container, and both look for each other again. Instead of anything that it is to say, the sender may say
//! `Refused`.

use thiserror::Error;

use super::channel::Channel;
use crate::bootstrap::MESSAGE_BYTES;

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
    /// The receiver's end of a path between cards follows, as four messages' bytes.
    Join,
    /// The sender's end follows in the same way: the two are joined.
    Joined,
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
    #[error("it knows no such message")]
    Unknown,
    /// The driver failed.
    #[error("its driver failed with CUDA error {0}")]
    Cuda(u32),
    /// It cannot have been asked for that.
    #[error("it does not have that channel for this memory")]
    Channel,
    /// The program has its memory back, and there is a copy in memory of the host.
    #[error("its program went on with a copy, which comes by `staged` alone")]
    Copied,
    /// The kernel has dropped the descriptor of the memory through which the payload is to pass.
    #[error("the memory to pass the bytes through has not reached it: it has too many descriptors open")]
    Slots,
    /// The memory is another one than that which was offered.
    #[error("the memory of the message is gone: the program has freed it before the message was received")]
    Memory,
    /// It has no card, or that cannot be joined with the receiver's.
    #[error("it has no RDMA device that the one here can be joined with")]
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
            Self::Join => (15, 0, 0, 0, 0),
            Self::Joined => (16, 0, 0, 0, 0),
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
            (15, 0) => Self::Join,
            (16, 0) => Self::Joined,
            (18, 0) => Self::Moving,
            (17, 0) => Self::Exposed { key: length, address: number },
            _ => return None,
        };
        // What has no meaning is zero, so that a message has one form.
        (message.encode() == *bytes).then_some(message)
    }
}

fn code(channel: Channel) -> u8 {
    // There are seven.
    Channel::ALL.iter().position(|other| *other == channel).unwrap_or(0) as u8
}

fn channel(code: u8) -> Option<Channel> {
    Channel::ALL.get(usize::from(code)).copied()
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
            Message::Join,
            Message::Joined,
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
