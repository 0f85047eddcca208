//! Message formats over queue pairs.
//!
//! Each begins with a header of eight bytes: kind, acknowledged credit updates, returned credits for frames
//! and for control messages. All numbers are little-endian.

use causeway_ibverbs::RemoteMemory;
use causeway_wire::chunk::ChunkHeader;

use super::credit::Returned;
use crate::error::Violation;
use causeway_transport::slots::{SLOT, STAGING_LIMITS};

/// Bytes of the header.
pub const HEADER: usize = 8;
/// Bytes of an announcement, header included.
pub const ANNOUNCEMENT: usize = 48;
/// Bytes of an offer, header included.
const OFFER: usize = ANNOUNCEMENT + 16;
/// The longest control message.
pub const CONTROL: usize = 256;
/// Bytes of a message with frames, header included: five packets of the largest MTU. A full batch of 64 KiB
/// takes four of them, and a transfer of 16 KiB goes with its announcement. Each message has an
/// acknowledgement, and each receive is so long.
pub const FRAME_MESSAGE: usize = 20 << 10;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes of the link's frames follow.
    Frame = 1,
    /// An [`Announcement`] follows.
    Announcement = 2,
    /// What is [released](Released) follows, four bytes each.
    Returns = 3,
    /// Nothing follows; the header's credits are what matters.
    Credits = 4,
    /// Nothing follows; the first message on a queue pair.
    Hello = 5,
    /// An [`Offer`] follows.
    Offer = 6,
    /// An [`Announcement`] follows, of bytes that lie where the transfer belongs; its slot says nothing.
    Placed = 7,
    /// An [`Announcement`] follows, and then the bytes themselves, which the receiver puts into their slots;
    /// then the next ones, if any.
    Eager = 8,
    /// An [`Announcement`] follows, of bytes of the link's frames that lie in slots, between those that come
    /// in messages; then what is [released](Released), if anything. It may lie in the slots itself, see
    /// [`InSlots`].
    FrameInSlots = 9,
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
        let Returned { frames, control, credit_updates } = self.returned;
        let ([a, b], [c, d]) = (frames.to_le_bytes(), control.to_le_bytes());
        [self.kind as u8, credit_updates, a, b, c, d, 0, 0]
    }

    /// Reads the beginning of a message; the rest is its content.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Violation> {
        let ([kind, credit_updates, a, b, c, d, 0, 0], content) =
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
            6 => Kind::Offer,
            7 => Kind::Placed,
            8 => Kind::Eager,
            9 => Kind::FrameInSlots,
            _ => return Err(Violation::Message),
        };
        let returned = Returned {
            frames: u16::from_le_bytes([*a, *b]),
            control: u16::from_le_bytes([*c, *d]),
            credit_updates: *credit_updates,
        };
        Ok((Self { kind, returned }, content))
    }
}

/// A stripe of a piece lies in the receiver's arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// The whole piece, with its place in its transfer.
    pub chunk: ChunkHeader,
    /// The first of its slots.
    pub first: u32,
    /// Stripes of which the piece consists.
    pub stripes: u32,
    /// Whether a card took the bytes out of a GPU's memory.
    pub is_direct: bool,
}

/// In the number of stripes: the bytes come straight from a GPU's memory.
const DIRECT_STRIPES: u32 = 1 << 31;

impl Announcement {
    /// As it travels, behind the header.
    pub fn to_bytes(self) -> [u8; ANNOUNCEMENT - HEADER] {
        let mut bytes = [0; ANNOUNCEMENT - HEADER];
        let ChunkHeader { transfer, offset, total, length } = self.chunk;
        for (index, number) in [transfer, offset, total].into_iter().enumerate() {
            bytes[index * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let stripes = self.stripes | if self.is_direct { DIRECT_STRIPES } else { 0 };
        for (index, number) in [length, self.first, stripes].into_iter().enumerate() {
            bytes[24 + index * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads the content of a message.
    pub fn parse(content: &[u8]) -> Result<Self, Violation> {
        let bytes: &[u8; ANNOUNCEMENT - HEADER] = content.try_into().map_err(|_| Violation::Message)?;
        let long = |offset: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[offset..offset + 8]);
            u64::from_le_bytes(number)
        };
        let short = |offset: usize| (long(offset) & 0xffff_ffff) as u32;
        let chunk = ChunkHeader { transfer: long(0), offset: long(8), total: long(16), length: short(24) };
        let stripes = short(32);
        let is_direct = stripes & DIRECT_STRIPES != 0;
        Ok(Self { chunk, first: short(28), stripes: stripes & !DIRECT_STRIPES, is_direct })
    }
}

/// Where a message lies that says of the frames behind it that they are in slots: the immediate number of the
/// write that brought both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InSlots {
    /// The first slot of the range, of which the frames leave [`CONTROL`] bytes free.
    pub first: u32,
    /// Bytes of the message, which end where the frames begin.
    pub length: usize,
}

impl InSlots {
    /// As it travels. There are less than 2^23 slots, and no message is longer than [`CONTROL`].
    pub fn to_number(self) -> u32 {
        self.first << 9 | self.length as u32
    }

    /// Reads the number of a write. A message that is too long is none.
    pub fn from_number(number: u32) -> Result<Self, Violation> {
        let (first, length) = (number >> 9, number as usize & 0x1ff);
        if length <= CONTROL { Ok(Self { first, length }) } else { Err(Violation::Message) }
    }
}

const _: () = assert!(STAGING_LIMITS.1 / SLOT < 1 << 23);

/// A piece that the receiver's card is to read from the sender's memory into a range of the receiver's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The piece, and the slots.
    pub announcement: Announcement,
    /// Where its bytes are.
    pub from: RemoteMemory,
}

impl Offer {
    /// As it travels, behind the header.
    pub fn to_bytes(self) -> [u8; OFFER - HEADER] {
        let mut bytes = [0; OFFER - HEADER];
        let (announcement, from) = bytes.split_at_mut(ANNOUNCEMENT - HEADER);
        announcement.copy_from_slice(&self.announcement.to_bytes());
        from[..8].copy_from_slice(&self.from.address.to_le_bytes());
        from[8..12].copy_from_slice(&self.from.key.to_le_bytes());
        bytes
    }

    /// Reads the content of a message.
    pub fn parse(content: &[u8]) -> Result<Self, Violation> {
        let (announcement, from) =
            content.split_at_checked(ANNOUNCEMENT - HEADER).ok_or(Violation::Message)?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0] = *from else { return Err(Violation::Message) };
        Ok(Self {
            announcement: Announcement::parse(announcement)?,
            from: RemoteMemory {
                address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                key: u32::from_le_bytes([i, j, k, l]),
            },
        })
    }
}

/// What an end does not use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The range of slots that begins with this one.
    Slots(u32),
    /// Memory that was exposed for reading, by its number: that of an offer is its first slot.
    Region {
        /// The number, less than [`MAX_NUMBER`].
        number: u32,
        /// Whether a card brought the bytes straight to a GPU's memory.
        is_direct: bool,
    },
}

/// Marks memory that was exposed, and such whose bytes went straight to a GPU.
const REGION: u32 = 1 << 31;
const DIRECT: u32 = 1 << 30;
/// Slots and numbers are less than this.
pub const MAX_NUMBER: u32 = DIRECT;

impl Released {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; 4] {
        let word = match self {
            Self::Slots(first) => first,
            Self::Region { number, is_direct } => number | REGION | if is_direct { DIRECT } else { 0 },
        };
        word.to_le_bytes()
    }

    fn from_bytes(bytes: [u8; 4]) -> Self {
        let word = u32::from_le_bytes(bytes);
        if word & REGION == 0 {
            return Self::Slots(word);
        }
        Self::Region { number: word & (MAX_NUMBER - 1), is_direct: word & DIRECT != 0 }
    }
}

/// Takes as much of what is released as a message has room for; how many bytes that makes.
pub fn take_returns(returns: &mut Vec<Released>, buffer: &mut [u8]) -> usize {
    let (elements, _) = buffer.as_chunks_mut::<4>();
    let some = returns.len().min(elements.len());
    elements.iter_mut().zip(returns.drain(..some)).for_each(|(word, back)| *word = back.to_bytes());
    some * 4
}

/// What a message releases.
pub fn parse_returns(content: &[u8]) -> Result<impl Iterator<Item = Released> + '_, Violation> {
    let (elements, rest) = content.as_chunks::<4>();
    if !rest.is_empty() || elements.is_empty() {
        return Err(Violation::Message);
    }
    Ok(elements.iter().map(|bytes| Released::from_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_survive_a_round_trip(
            frames: u16, control: u16, credit_updates: u8, transfer: u64, offset: u64, total: u64, length: u32, first: u32,
            stripes in 0_u32..1 << 31, is_direct: bool, address: u64, key: u32,
        ) {
            let header = Header { kind: Kind::Announcement, returned: Returned { frames, control, credit_updates } };
            let chunk = ChunkHeader { transfer, offset, total, length };
            let announcement = Announcement { chunk, first, stripes, is_direct };
            let offer = Offer { announcement, from: RemoteMemory { address, key } };
            prop_assert_eq!(Offer::parse(&offer.to_bytes()), Ok(offer));
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
                let _ = Offer::parse(content);
                let _ = parse_returns(content).map(Iterator::count);
            }
        }
    }

    #[test]
    fn the_number_of_a_write_says_where_its_message_lies() {
        for (first, length) in [(0, ANNOUNCEMENT), ((1 << 23) - 1, CONTROL), (77, 0)] {
            let lies = InSlots { first, length };
            assert_eq!(InSlots::from_number(lies.to_number()), Ok(lies));
        }
        assert!(InSlots::from_number(CONTROL as u32 + 1).is_err() && InSlots::from_number(u32::MAX).is_err());
    }

    #[test]
    fn returns_are_whole_numbers() {
        let slots = [Released::Slots(1), Released::Slots(258)];
        assert_eq!(parse_returns(&[1, 0, 0, 0, 2, 1, 0, 0]).unwrap().collect::<Vec<_>>(), slots);
        for is_direct in [false, true] {
            let exposed = Released::Region { number: MAX_NUMBER - 1, is_direct };
            assert_eq!(parse_returns(&exposed.to_bytes()).unwrap().collect::<Vec<_>>(), [exposed]);
        }
        assert!(parse_returns(&[1, 0, 0]).is_err() && parse_returns(&[]).is_err());
        assert!(Header::parse(&[10, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
