//! What do the messages say that go over queue pairs?
//!
//! Each begins with a header of eight bytes: kind, acknowledged extras, returned credits for frames and for control messages.
//! All numbers are little-endian.

use causeway_wire::chunk::ChunkHeader;

use super::Violation;
use super::credit::Returned;

/// Bytes of the header.
pub const HEADER: usize = 8;
/// Bytes of an announcement, header included.
pub const ANNOUNCEMENT: usize = 48;
/// The longest control message.
pub const CONTROL: usize = 256;
/// Slots that one message can give back.
pub const MOST_RETURNS: usize = (CONTROL - HEADER) / 4;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of the link's frames follow.
    Frame = 1,
    /// An [`Announcement`] follows.
    Announcement = 2,
    /// The first slots of runs that are given back follow, four bytes each.
    Returns = 3,
    /// Nothing follows; the header's credits are what matters.
    Credits = 4,
    /// Nothing follows; the first message on a queue pair.
    Hello = 5,
}

/// The beginning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// What it returns.
    pub returned: Returned,
}

impl Header {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let Returned { frames, control, extras } = self.returned;
        let ([a, b], [c, d]) = (frames.to_le_bytes(), control.to_le_bytes());
        [self.kind as u8, extras, a, b, c, d, 0, 0]
    }

    /// Reads the beginning of a message; the rest is its content.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Violation> {
        let ([kind, extras, a, b, c, d, 0, 0], content) =
            bytes.split_first_chunk::<HEADER>().ok_or(Violation::Message)?
        else {
            return Err(Violation::Message);
        };
        let kind = match kind {
            1 => Kind::Frame,
            2 => Kind::Announcement,
            3 => Kind::Returns,
            4 => Kind::Credits,
            5 => Kind::Hello,
            _ => return Err(Violation::Message),
        };
        let returned = Returned {
            frames: u16::from_le_bytes([*a, *b]),
            control: u16::from_le_bytes([*c, *d]),
            extras: *extras,
        };
        Ok((Self { kind, returned }, content))
    }
}

/// A part of a piece lies in the receiver's arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// The whole piece, with its place in its transfer.
    pub chunk: ChunkHeader,
    /// The first of its slots.
    pub first: u32,
    /// Parts of which the piece consists.
    pub parts: u32,
}

impl Announcement {
    /// As it travels, behind the header.
    pub fn to_bytes(self) -> [u8; ANNOUNCEMENT - HEADER] {
        let mut bytes = [0; ANNOUNCEMENT - HEADER];
        let ChunkHeader { transfer, offset, total, length } = self.chunk;
        for (place, number) in [transfer, offset, total].into_iter().enumerate() {
            bytes[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        for (place, number) in [length, self.first, self.parts].into_iter().enumerate() {
            bytes[24 + place * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads the content of a message.
    pub fn parse(content: &[u8]) -> Result<Self, Violation> {
        let bytes: &[u8; ANNOUNCEMENT - HEADER] = content.try_into().map_err(|_| Violation::Message)?;
        let long = |place: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[place..place + 8]);
            u64::from_le_bytes(number)
        };
        let short = |place: usize| (long(place) & 0xffff_ffff) as u32;
        let chunk = ChunkHeader { transfer: long(0), offset: long(8), total: long(16), length: short(24) };
        Ok(Self { chunk, first: short(28), parts: short(32) })
    }
}

/// The slots that a message gives back.
pub fn parse_returns(content: &[u8]) -> Result<impl Iterator<Item = u32> + '_, Violation> {
    let (slots, rest) = content.as_chunks::<4>();
    if !rest.is_empty() || slots.is_empty() {
        return Err(Violation::Message);
    }
    Ok(slots.iter().map(|bytes| u32::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_survive_a_round_trip(
            frames: u16, control: u16, extras: u8, transfer: u64, offset: u64, total: u64, length: u32, first: u32,
            parts: u32,
        ) {
            let header = Header { kind: Kind::Announcement, returned: Returned { frames, control, extras } };
            let chunk = ChunkHeader { transfer, offset, total, length };
            let announcement = Announcement { chunk, first, parts };
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend(announcement.to_bytes());
            prop_assert_eq!(bytes.len(), ANNOUNCEMENT);
            let (parsed, content) = Header::parse(&bytes).unwrap();
            prop_assert_eq!(parsed, header);
            prop_assert_eq!(Announcement::parse(content), Ok(announcement));
        }

        #[test]
        fn nonsense_is_refused_and_never_more(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((_, content)) = Header::parse(&bytes) {
                let _ = Announcement::parse(content);
                let _ = parse_returns(content).map(Iterator::count);
            }
        }
    }

    #[test]
    fn returns_are_whole_numbers() {
        assert_eq!(parse_returns(&[1, 0, 0, 0, 2, 1, 0, 0]).unwrap().collect::<Vec<_>>(), [1, 258]);
        assert!(parse_returns(&[1, 0, 0]).is_err() && parse_returns(&[]).is_err());
        assert!(Header::parse(&[9, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
