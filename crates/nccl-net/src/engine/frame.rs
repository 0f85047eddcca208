//! Frame header. 40 bytes, little-endian: kind, flags, and four numbers, whose meaning depends on the kind.

/// Bytes of a header.
pub const FRAME_BYTES: usize = 40;

/// Flag of a credit.
pub const DIRECT: u32 = 1;

/// Flags of the end of an offer: its memory cannot be copied from, or not yet.
pub const REFUSED: u32 = 1;
/// As above.
pub const UNMAPPED: u32 = 2;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// A part of a message; `length` bytes of payload follow.
    Data = 1,
    /// The receiver has posted the receive of this message; with [`DIRECT`] it copies from exported memory itself.
    Credit = 2,
    /// The sender exports memory of the GPU `message`, which has the number `flags` and `total` bytes. A descriptor comes along.
    Memory = 3,
    /// A message lies in exported memory with the number `flags`: `length` bytes from `offset` on, of `total`.
    Offer = 4,
    /// The receiver has copied what was offered; with [`REFUSED`] it cannot, with [`UNMAPPED`] not yet.
    Done = 5,
    /// Exported memory with the number `flags` is used no more.
    Forget = 6,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// For the kind's own use.
    pub flags: u32,
    /// The message's number in its connection.
    pub message: u64,
    /// Where in the message the part begins.
    pub offset: u64,
    /// Bytes of the part.
    pub length: u64,
    /// Bytes of the whole message.
    pub total: u64,
}

impl Frame {
    /// One of a kind that is about a message, or about memory, as a whole.
    pub fn plain(kind: FrameKind, flags: u32, message: u64) -> Self {
        Self { kind, flags, message, offset: 0, length: 0, total: 0 }
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_le_bytes());
        for (at, number) in [self.message, self.offset, self.length, self.total].into_iter().enumerate() {
            bytes[8 + at * 8..16 + at * 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// From bytes; none where the kind is unknown, or a part lies outside of its message.
    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let number = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]));
        let kind = match word(0) {
            1 => FrameKind::Data,
            2 => FrameKind::Credit,
            3 => FrameKind::Memory,
            4 => FrameKind::Offer,
            5 => FrameKind::Done,
            6 => FrameKind::Forget,
            _ => return None,
        };
        let frame = Self {
            kind,
            flags: word(4),
            message: number(8),
            offset: number(16),
            length: number(24),
            total: number(32),
        };
        let end = frame.offset.checked_add(frame.length)?;
        (end <= frame.total).then_some(frame)
    }

    /// Bytes of payload behind the header.
    pub fn payload(&self) -> u64 {
        if self.kind == FrameKind::Data { self.length } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_none(kind in 0_u32..8, rest in prop::collection::vec(any::<u8>(), 36)) {
            let mut bytes = [0; FRAME_BYTES];
            bytes[..4].copy_from_slice(&kind.to_le_bytes());
            bytes[4..].copy_from_slice(&rest);
            if let Some(frame) = Frame::decode(&bytes) {
                prop_assert_eq!(frame.encode(), bytes);
                prop_assert!(frame.offset.checked_add(frame.length).is_some_and(|end| end <= frame.total));
            }
        }
    }
}
