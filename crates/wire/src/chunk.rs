//! Chunks: the pieces in which a large copy travels on the bulk lanes.
//!
//! A copy above a certain size is a *transfer* with a number that a command names. Its bytes are cut into
//! chunks that take any lane in any order; a [`ChunkHeader`] in front of each says where it belongs.
//! [`Spans`] keeps account of what has been claimed, so that no byte of the destination is written twice.
//! Between chunks the two ends tell each other what came over a lane ([`LaneRecord`]), so that what was lost
//! with one can be sent again over another.

use thiserror::Error;

/// Size of an encoded [`ChunkHeader`] in bytes.
pub const CHUNK_HEADER_SIZE: usize = 32;

/// The largest chunk in bytes.
pub const MAX_CHUNK: u32 = 4 << 20;

/// The first four bytes of every chunk.
pub const CHUNK_MAGIC: [u8; 4] = *b"CwL1";

/// What stands in front of the bytes of a chunk. Layout, little-endian: magic, length `u32`, transfer `u64`,
/// offset `u64`, total `u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The number of the transfer.
    pub transfer: u64,
    /// Where in the transfer the chunk begins, in bytes.
    pub offset: u64,
    /// Bytes in the whole transfer.
    pub total: u64,
    /// Bytes in this chunk, at most [`MAX_CHUNK`].
    pub length: u32,
}

/// Why bytes are not a chunk, or why a chunk does not fit its transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// The bytes do not begin with [`CHUNK_MAGIC`].
    #[error("a chunk begins with the bytes {found:02x?} instead of {CHUNK_MAGIC:02x?}")]
    BadMagic {
        /// The bytes found.
        found: [u8; 4],
    },
    /// The chunk is longer than [`MAX_CHUNK`].
    #[error("a chunk announces {0} bytes; at most {MAX_CHUNK} are accepted")]
    Oversize(u32),
    /// The chunk reaches beyond the end of its transfer.
    #[error("a chunk of {length} bytes at {offset} reaches beyond its transfer of {total} bytes")]
    BeyondEnd {
        /// Where the chunk begins.
        offset: u64,
        /// Bytes in the chunk.
        length: u32,
        /// Bytes in the transfer.
        total: u64,
    },
    /// The chunk has no bytes although its transfer has some.
    #[error("a chunk of transfer {0} is empty")]
    Empty(u64),
    /// Some bytes of the chunk have come before.
    #[error("bytes {offset} to {end} of a transfer were received twice")]
    Overlap {
        /// Where the chunk begins.
        offset: u64,
        /// Where it ends.
        end: u64,
    },
    /// The transfer has come in too many separate pieces.
    #[error("a transfer was received in more than {0} separate pieces")]
    Scattered(usize),
    /// The chunk states another size of its transfer than the chunks before it.
    #[error("a chunk states a total of {found} bytes for a transfer of {expected}")]
    TotalChanged {
        /// The total known so far.
        expected: u64,
        /// The total of this chunk.
        found: u64,
    },
}

/// What travels on a lane, always [`CHUNK_HEADER_SIZE`] bytes long. All but chunks are little-endian: magic,
/// lane `u32`, count `u64`, and zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneRecord {
    /// A chunk, whose bytes follow.
    Chunk(ChunkHeader),
    /// The number of this lane, which the client gives. It comes first.
    Number(u32),
    /// So many chunks of the receiver of this record have come whole on a lane.
    Received {
        /// The number of that lane.
        lane: u32,
        /// Chunks that came whole.
        received: u64,
    },
    /// Nothing more is received on another lane, on which so many chunks have come whole.
    Ended {
        /// The number of that lane.
        lane: u32,
        /// Chunks that came whole.
        received: u64,
    },
    /// This connection is no lane: it takes the place of the connection for commands, which has failed. The sender
    /// has received so many bytes of frames. Both ends begin with it.
    Commands {
        /// Bytes of frames, counted from the session's first.
        received: u64,
    },
}

const NUMBER_MAGIC: [u8; 4] = *b"CwN1";
const RECEIVED_MAGIC: [u8; 4] = *b"CwR1";
const ENDED_MAGIC: [u8; 4] = *b"CwE1";
const COMMANDS_MAGIC: [u8; 4] = *b"CwC1";

impl LaneRecord {
    /// The record as it travels.
    pub fn to_bytes(&self) -> [u8; CHUNK_HEADER_SIZE] {
        let (magic, lane, count) = match *self {
            Self::Chunk(header) => return header.to_bytes(),
            Self::Number(lane) => (NUMBER_MAGIC, lane, 0),
            Self::Received { lane, received } => (RECEIVED_MAGIC, lane, received),
            Self::Ended { lane, received } => (ENDED_MAGIC, lane, received),
            Self::Commands { received } => (COMMANDS_MAGIC, 0, received),
        };
        let mut bytes = [0; CHUNK_HEADER_SIZE];
        bytes[..4].copy_from_slice(&magic);
        bytes[4..8].copy_from_slice(&lane.to_le_bytes());
        bytes[8..16].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    /// Reads a record, and checks that a chunk lies inside its transfer.
    pub fn parse(bytes: &[u8; CHUNK_HEADER_SIZE]) -> Result<Self, ChunkError> {
        let magic: [u8; 4] = bytes[..4].try_into().expect("four bytes");
        let lane = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        let count = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        Ok(match magic {
            NUMBER_MAGIC => Self::Number(lane),
            RECEIVED_MAGIC => Self::Received { lane, received: count },
            ENDED_MAGIC => Self::Ended { lane, received: count },
            COMMANDS_MAGIC => Self::Commands { received: count },
            _ => Self::Chunk(ChunkHeader::parse(bytes)?),
        })
    }
}

impl ChunkHeader {
    /// The header as it travels.
    pub fn to_bytes(&self) -> [u8; CHUNK_HEADER_SIZE] {
        let mut bytes = [0; CHUNK_HEADER_SIZE];
        bytes[..4].copy_from_slice(&CHUNK_MAGIC);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.transfer.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..].copy_from_slice(&self.total.to_le_bytes());
        bytes
    }

    /// Reads a header and checks that the chunk lies inside its transfer.
    pub fn parse(bytes: &[u8; CHUNK_HEADER_SIZE]) -> Result<Self, ChunkError> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let found: [u8; 4] = bytes[..4].try_into().expect("four bytes");
        if found != CHUNK_MAGIC {
            return Err(ChunkError::BadMagic { found });
        }
        let length = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        let header = Self { transfer: word(8), offset: word(16), total: word(24), length };
        if length > MAX_CHUNK {
            return Err(ChunkError::Oversize(length));
        }
        let Self { transfer, offset, total, .. } = header;
        if offset.checked_add(u64::from(length)).is_none_or(|end| end > total) {
            return Err(ChunkError::BeyondEnd { offset, length, total });
        }
        if length == 0 && total > 0 {
            return Err(ChunkError::Empty(transfer));
        }
        Ok(header)
    }

    /// Where in the transfer the chunk ends, in bytes.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// The parts of a transfer that have been claimed by chunks.
///
/// Chunks are sent in nearly ascending order, so the list of separate spans stays about as short as there are
/// lanes. A peer that sends them otherwise is refused at [`Spans::MAX_SPANS`] spans.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    /// Disjoint, ascending, not touching.
    list: Vec<(u64, u64)>,
}

impl Spans {
    /// The most separate spans that are kept account of.
    pub const MAX_SPANS: usize = 4096;

    /// Claims the bytes of a chunk; an error when some of them were claimed before.
    pub fn claim(&mut self, chunk: &ChunkHeader) -> Result<(), ChunkError> {
        let (start, end) = (chunk.offset, chunk.end());
        let at = self.list.partition_point(|span| span.1 < start);
        let touches = |span: Option<&(u64, u64)>| span.is_some_and(|span| span.0 <= end);
        if !touches(self.list.get(at)) {
            if self.list.len() == Self::MAX_SPANS {
                return Err(ChunkError::Scattered(Self::MAX_SPANS));
            }
            self.list.insert(at, (start, end));
            return Ok(());
        }
        // The chunk may close the gap between two spans, or touch one of them at either end.
        let first = self.list[at];
        let second = self.list.get(at + 1).copied();
        if first.1 == start {
            match second {
                Some(next) if next.0 < end => return Err(ChunkError::Overlap { offset: start, end }),
                Some(next) if next.0 == end => {
                    self.list[at].1 = next.1;
                    self.list.remove(at + 1);
                }
                _ => self.list[at].1 = end,
            }
            Ok(())
        } else if first.0 == end {
            self.list[at].0 = start;
            Ok(())
        } else {
            Err(ChunkError::Overlap { offset: start, end })
        }
    }

    /// Takes back the claim of a chunk that did not come whole.
    pub fn release(&mut self, chunk: &ChunkHeader) {
        let (start, end) = (chunk.offset, chunk.end());
        if start == end {
            // The one chunk of an empty transfer.
            self.list.clear();
            return;
        }
        let at = self.list.partition_point(|span| span.1 <= start);
        let Some(&(first, last)) = self.list.get(at).filter(|span| span.0 <= start && end <= span.1) else {
            return;
        };
        let rest = [(first, start), (end, last)].into_iter().filter(|(from, to)| from < to);
        self.list.splice(at..=at, rest);
    }

    /// Whether nothing has been claimed.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether everything from 0 to `total` has been claimed.
    pub fn covers(&self, total: u64) -> bool {
        total == 0 || self.list == [(0, total)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(offset: u64, length: u32) -> ChunkHeader {
        ChunkHeader { transfer: 1, offset, total: 100, length }
    }

    #[test]
    fn a_header_survives_a_round_trip() {
        let header = ChunkHeader { transfer: u64::MAX, offset: 90, total: 100, length: 10 };
        assert_eq!(ChunkHeader::parse(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn chunks_that_cannot_be_are_refused() {
        let parse = |header: ChunkHeader| ChunkHeader::parse(&header.to_bytes());
        assert!(matches!(parse(chunk(91, 10)), Err(ChunkError::BeyondEnd { .. })));
        assert!(matches!(parse(chunk(u64::MAX, 10)), Err(ChunkError::BeyondEnd { .. })));
        assert!(matches!(parse(chunk(0, MAX_CHUNK + 1)), Err(ChunkError::Oversize(_))));
        assert!(matches!(parse(chunk(0, 0)), Err(ChunkError::Empty(1))));
        assert!(matches!(ChunkHeader::parse(&[0; 32]), Err(ChunkError::BadMagic { .. })));
    }

    #[test]
    fn every_record_survives_a_round_trip() {
        for record in [
            LaneRecord::Chunk(chunk(90, 10)),
            LaneRecord::Number(7),
            LaneRecord::Received { lane: 3, received: u64::MAX },
            LaneRecord::Ended { lane: 31, received: 5 },
            LaneRecord::Commands { received: 1 << 40 },
        ] {
            assert_eq!(LaneRecord::parse(&record.to_bytes()), Ok(record));
        }
        assert!(
            LaneRecord::parse(&chunk(91, 10).to_bytes()).is_err() && LaneRecord::parse(&[1; 32]).is_err()
        );
    }

    #[test]
    fn a_chunk_that_did_not_come_whole_can_come_again() {
        let mut spans = Spans::default();
        for offset in [0, 10, 20, 40] {
            spans.claim(&chunk(offset, 10)).unwrap();
        }
        for offset in [10, 40, 0, 20] {
            spans.release(&chunk(offset, 10));
            assert!(!spans.covers(30));
            spans.claim(&chunk(offset, 10)).unwrap();
            spans.release(&chunk(offset, 10));
        }
        assert!(spans.is_empty());
        // What was never claimed changes nothing.
        spans.release(&chunk(50, 10));
        spans.claim(&chunk(0, 30)).unwrap();
        spans.release(&chunk(25, 10));
        assert!(spans.covers(30));
    }

    #[test]
    fn spans_merge_in_any_order_and_refuse_overlaps() {
        let mut spans = Spans::default();
        for offset in [50, 0, 20, 40, 10, 30, 90, 60, 80] {
            spans.claim(&chunk(offset, 10)).unwrap();
            assert!(!spans.covers(100));
        }
        for (offset, length) in [(0, 10), (65, 10), (69, 2), (70, 11), (79, 2), (0, 100)] {
            let claimed = spans.clone().claim(&chunk(offset, length));
            assert!(matches!(claimed, Err(ChunkError::Overlap { .. })), "{length} bytes at {offset}");
        }
        spans.claim(&chunk(70, 10)).unwrap();
        assert!(spans.covers(100));
    }
}
