//! Frames between the proxies of two ranks. Pure.
//!
//! A frame has 40 bytes, little-endian: kind and window (4 each), offset, bytes or count, value, operand (8
//! each). Of a window the offset is an address, the count a key, and the value its bytes. Fields that a kind does not have are 0. The payload of a put, and of what answers a get, follows.
//!
//! Requests of one stream are done in their order, and answered in it: so answers have no numbers. `Done`
//! answers as many as it says that bring nothing back.

use crate::device::request::Atomic;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 40;

/// The longest payload. Longer transfers are several.
pub const MAX_PAYLOAD: u32 = 128 << 10;

/// Requests that a rank may have sent to another one and not been answered yet.
pub const MAX_IN_FLIGHT: usize = 256;

/// A position in a window, which is known by how many the team had made before it: a window that was freed
/// and another one with its number are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The window.
    pub window: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// What one rank's proxy says to another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// The payload is to be written.
    Put {
        /// Where.
        to: Position,
        /// Bytes of the payload.
        bytes: u32,
    },
    /// Bytes are to be read: `Data` answers.
    Get {
        /// From where.
        from: Position,
        /// How many.
        bytes: u32,
    },
    /// A word is written.
    Store {
        /// Where.
        to: Position,
        /// What.
        value: u64,
    },
    /// A word is written or counted up, behind all that was asked for before.
    Signal {
        /// Where.
        to: Position,
        /// What.
        value: u64,
        /// Whether the value is added.
        adds: bool,
    },
    /// A word is read and perhaps changed: `Value` answers.
    Atomic {
        /// Where.
        to: Position,
        /// How.
        operation: Atomic,
        /// What is added, or written.
        value: u64,
        /// What is compared with.
        operand: u64,
    },
    /// So many requests are done.
    Done {
        /// How many.
        count: u32,
    },
    /// The payload is what a get asked for.
    Data {
        /// Bytes of the payload.
        bytes: u32,
    },
    /// What a word was before.
    Value {
        /// That.
        value: u64,
    },
    /// The rank leaves, and asks for nothing more.
    Goodbye,
    /// The answer to a goodbye: nothing that the rank has asked for is under way any more.
    Farewell,
    /// The rank's network card lets the peer's reach a window of this rank: so many bytes from an address, by
    /// a key.
    Window {
        /// Which one.
        window: u32,
        /// Where its first byte is for the card.
        address: u64,
        /// Its bytes.
        bytes: u64,
        /// The key.
        key: u32,
        /// Whether it is memory of the host.
        in_host: bool,
    },
}

const PUT: u32 = 1;
const GET: u32 = 2;
const STORE: u32 = 3;
const SIGNAL_SET: u32 = 4;
const SIGNAL_ADD: u32 = 5;
const ATOMIC_ADD: u32 = 6;
const ATOMIC_CAS: u32 = 7;
const FETCH: u32 = 8;
const DONE: u32 = 9;
const DATA: u32 = 10;
const VALUE: u32 = 11;
const GOODBYE: u32 = 12;
const FAREWELL: u32 = 13;
const WINDOW_IN_HOST: u32 = 14;
const WINDOW_ON_DEVICE: u32 = 15;

impl Frame {
    /// As bytes.
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let nowhere = Position { window: 0, offset: 0 };
        let (kind, position, count, value, operand) = match *self {
            Self::Window { window, address, bytes, key, in_host } => {
                let kind = if in_host { WINDOW_IN_HOST } else { WINDOW_ON_DEVICE };
                (kind, Position { window, offset: address }, key, bytes, 0)
            }
            Self::Farewell => (FAREWELL, nowhere, 0, 0, 0),
            Self::Put { to, bytes } => (PUT, to, bytes, 0, 0),
            Self::Get { from, bytes } => (GET, from, bytes, 0, 0),
            Self::Store { to, value } => (STORE, to, 0, value, 0),
            Self::Signal { to, value, adds: false } => (SIGNAL_SET, to, 0, value, 0),
            Self::Signal { to, value, adds: true } => (SIGNAL_ADD, to, 0, value, 0),
            Self::Atomic { to, operation, value, operand } => {
                let kind = match operation {
                    Atomic::Add => ATOMIC_ADD,
                    Atomic::CompareAndSwap => ATOMIC_CAS,
                    Atomic::Fetch => FETCH,
                };
                (kind, to, 0, value, operand)
            }
            Self::Done { count } => (DONE, nowhere, count, 0, 0),
            Self::Data { bytes } => (DATA, nowhere, bytes, 0, 0),
            Self::Value { value } => (VALUE, nowhere, 0, value, 0),
            Self::Goodbye => (GOODBYE, nowhere, 0, 0, 0),
        };
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&position.window.to_le_bytes());
        for (at, word) in [position.offset, u64::from(count), value, operand].into_iter().enumerate() {
            bytes[8 + 8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads them; `None` where they are not a frame. Whether a range lies in a window is not known here.
    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|byte| bytes[at + byte]));
        let long = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[at + byte]));
        let position = Position { window: word(4), offset: long(8) };
        let (count, value, operand) = (u32::try_from(long(16)).ok()?, long(24), long(32));
        let atomic = |operation| Self::Atomic { to: position, operation, value, operand };
        let frame = match word(0) {
            PUT => Self::Put { to: position, bytes: count },
            GET => Self::Get { from: position, bytes: count },
            STORE => Self::Store { to: position, value },
            SIGNAL_SET => Self::Signal { to: position, value, adds: false },
            SIGNAL_ADD => Self::Signal { to: position, value, adds: true },
            ATOMIC_ADD => atomic(Atomic::Add),
            ATOMIC_CAS => atomic(Atomic::CompareAndSwap),
            FETCH => atomic(Atomic::Fetch),
            DONE => Self::Done { count },
            DATA => Self::Data { bytes: count },
            VALUE => Self::Value { value },
            GOODBYE => Self::Goodbye,
            FAREWELL => Self::Farewell,
            kind @ (WINDOW_IN_HOST | WINDOW_ON_DEVICE) => Self::Window {
                window: position.window,
                address: position.offset,
                bytes: value,
                key: count,
                in_host: kind == WINDOW_IN_HOST,
            },
            _ => return None,
        };
        let is_sound = match frame {
            Self::Put { bytes, .. } | Self::Get { bytes, .. } | Self::Data { bytes } => {
                (1..=MAX_PAYLOAD).contains(&bytes)
            }
            Self::Store { to, .. } | Self::Signal { to, .. } | Self::Atomic { to, .. } => {
                to.offset.is_multiple_of(8)
            }
            Self::Done { count } => (1..=MAX_IN_FLIGHT as u32).contains(&count),
            Self::Window { address, bytes, .. } => bytes > 0 && address.checked_add(bytes).is_some(),
            Self::Value { .. } | Self::Goodbye | Self::Farewell => true,
        };
        // What a kind does not have is 0.
        Some(frame).filter(|frame| is_sound && frame.encode() == *bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_was_written_and_lengths_are_bounded() {
        let position = Position { window: 7, offset: 4096 };
        let atomic = |operation| Frame::Atomic { to: position, operation, value: u64::MAX, operand: 3 };
        for frame in [
            Frame::Put { to: position, bytes: MAX_PAYLOAD },
            Frame::Get { from: position, bytes: 1 },
            Frame::Store { to: position, value: 5 },
            Frame::Signal { to: position, value: 6, adds: false },
            Frame::Signal { to: position, value: u64::MAX, adds: true },
            atomic(Atomic::Add),
            atomic(Atomic::CompareAndSwap),
            atomic(Atomic::Fetch),
            Frame::Done { count: MAX_IN_FLIGHT as u32 },
            Frame::Data { bytes: 2 },
            Frame::Value { value: 9 },
            Frame::Goodbye,
            Frame::Farewell,
            Frame::Window { window: 3, address: 4096, bytes: 1 << 40, key: u32::MAX, in_host: true },
            Frame::Window { window: 0, address: u64::MAX - 8, bytes: 8, key: 0, in_host: false },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
        for frame in [
            Frame::Put { to: position, bytes: MAX_PAYLOAD + 1 },
            Frame::Get { from: position, bytes: 0 },
            Frame::Data { bytes: u32::MAX },
            Frame::Store { to: Position { window: 0, offset: 4 }, value: 5 },
            Frame::Done { count: 0 },
            Frame::Done { count: MAX_IN_FLIGHT as u32 + 1 },
            Frame::Window { window: 3, address: u64::MAX, bytes: 1, key: 1, in_host: true },
            Frame::Window { window: 3, address: 8, bytes: 0, key: 1, in_host: true },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), None, "{frame:?}");
        }
    }
}
