//! What is a part of a piece, which one queue pair moves and announces?

use std::sync::Arc;

use causeway_ibverbs::{RemoteMemory, Segment};

use crate::message::{ANNOUNCEMENT, Announcement, FRAME_MESSAGE, Offer};
use crate::operation::Operation;

/// What moves the bytes of a part.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// They are written to memory of the peer.
    Write(RemoteMemory),
    /// They are read from memory of the peer.
    Read(RemoteMemory),
    /// The peer's card, if any.
    None,
}

/// What the peer is told behind a part.
#[derive(Debug, Clone, Copy)]
pub enum Said {
    /// It lies in the peer's arena.
    Announcement(Announcement),
    /// It lies where it belongs.
    Placed(Announcement),
    /// It is to be read.
    Offer(Offer),
}

/// A part of a piece.
pub struct Part {
    /// Its bytes in memory of this side.
    pub segment: Segment,
    pub work: Work,
    pub said: Option<Said>,
    /// What follows when its bytes have been moved.
    pub operation: Option<Arc<Operation>>,
}

impl Part {
    /// Bytes that are moved for it.
    pub fn length(&self) -> usize {
        match self.work {
            Work::Write(_) | Work::Read(_) => self.segment.length as usize,
            Work::None => 0,
        }
    }

    /// Whether it is all of a short piece, which its announcement can bring along, and nobody waits for its
    /// end. What is left over at the end of a long piece is as short, and its announcement is that of all the
    /// bytes before it, too.
    pub fn is_short_piece(&self) -> bool {
        let length = self.segment.length;
        let is_announced_alone = matches!(
            (self.work, self.said),
            (Work::Write(_), Some(Said::Announcement(announcement))) if announcement.chunk.length == length
        );
        let is_short = (1..=MOST_CARRIED).contains(&(length as usize));
        is_announced_alone && is_short && self.operation.is_none()
    }
}

/// The longest part that can go with its announcement.
pub const MOST_CARRIED: usize = FRAME_MESSAGE - ANNOUNCEMENT;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::{requests, split};
    use causeway_wire::chunk::ChunkHeader;

    /// The requests for a piece of `length` bytes, on so many queue pairs, that announce it.
    fn announced(length: usize, queue_pairs: usize) -> Vec<Part> {
        let parts = split(length, queue_pairs);
        let chunk = ChunkHeader { transfer: 1, offset: 0, total: length as u64, length: length as u32 };
        let announcement = Announcement { chunk, first: 0, parts: parts.len() as u32, is_direct: false };
        let last = parts.filter_map(|(offset, part)| requests(offset, part).find(|(_, _, is_last)| *is_last));
        last.map(|(_, bytes, _)| Part {
            segment: Segment { length: bytes as u32, ..Segment::EMPTY },
            work: Work::Write(RemoteMemory { address: 0, key: 0 }),
            said: Some(Said::Announcement(announcement)),
            operation: None,
        })
        .collect()
    }

    #[test]
    fn an_announcement_brings_a_short_piece_along() {
        for length in [1, 4096, MOST_CARRIED] {
            let parts = announced(length, 2);
            assert!(parts.len() == 1 && parts[0].is_short_piece(), "{length} bytes");
            let unannounced = Part { said: None, ..announced(length, 2).remove(0) };
            assert!(!unannounced.is_short_piece());
        }
        for length in [0, MOST_CARRIED + 1] {
            assert!(!announced(length, 2)[0].is_short_piece(), "{length} bytes");
        }
    }

    #[test]
    fn no_announcement_brings_the_short_end_of_a_long_piece_along() {
        const MIB: usize = 1 << 20;
        for (length, queue_pairs) in [(MIB + 1, 1), (2 * MIB + 4096, 2), (4 * MIB + 4096, 4)] {
            let parts = announced(length, queue_pairs);
            let has_short_end = parts.iter().any(|part| part.segment.length as usize <= MOST_CARRIED);
            assert!(
                has_short_end && parts.len() == queue_pairs,
                "{length} bytes over {queue_pairs} queue pairs"
            );
            assert!(!parts.iter().any(Part::is_short_piece), "{length} bytes over {queue_pairs} queue pairs");
        }
    }
}
