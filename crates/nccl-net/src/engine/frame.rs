//! Frame header. 40 bytes, little-endian: kind, flags, and four numbers, whose meaning depends on the kind.

/// Bytes of a header.
pub const FRAME_BYTES: usize = 40;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// A part of a message; `length` bytes of payload follow.
    Data = 1,
    /// The receiver has room for all messages before this one.
    Credit = 2,
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
        fn any_bytes_are_a_frame_or_none(kind in 0_u32..5, rest in prop::collection::vec(any::<u8>(), 36)) {
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
