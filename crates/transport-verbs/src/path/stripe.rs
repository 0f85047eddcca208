//! Stripe: the part of a piece that one queue pair moves.

use std::sync::Arc;

use causeway_ibverbs::{RemoteMemory, Segment};

use crate::message::{ANNOUNCEMENT, Announcement, FRAME_MESSAGE, Offer};
use crate::operation::Operation;

/// What moves the bytes of a stripe.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// They are written to memory of the peer.
    Write(RemoteMemory),
    /// They are read from memory of the peer.
    Read(RemoteMemory),
    /// The peer's card, if any.
    None,
}

/// What the peer is told behind a stripe.
#[derive(Debug, Clone, Copy)]
pub enum Notice {
    /// It lies in the peer's arena.
    Announcement(Announcement),
    /// It lies where it belongs.
    Placed(Announcement),
    /// It is to be read.
    Offer(Offer),
}

/// A stripe of a piece.
pub struct Stripe {
    /// Its bytes in memory of this side.
    pub segment: Segment,
    pub work: Work,
    pub notice: Option<Notice>,
    /// What follows when its bytes have been moved.
    pub operation: Option<Arc<Operation>>,
}

impl Stripe {
    /// Bytes that are moved for it.
    pub fn length(&self) -> usize {
        match self.work {
            Work::Write(_) | Work::Read(_) => self.segment.length as usize,
            Work::None => 0,
        }
    }

    /// Whether the stripe is all of a short piece, which its announcement can bring along, and nobody waits
    /// for its end. What is left over at the end of a long piece is as short, and its announcement is that of
    /// all the bytes before it, too.
    pub fn is_short_piece(&self) -> bool {
        let length = self.segment.length;
        let is_announced_alone = matches!(
            (self.work, self.notice),
            (Work::Write(_), Some(Notice::Announcement(announcement))) if announcement.chunk.length == length
        );
        let is_short = (1..=MAX_EAGER_BYTES).contains(&(length as usize));
        is_announced_alone && is_short && self.operation.is_none()
    }
}

/// The longest stripe that can go with its announcement.
pub const MAX_EAGER_BYTES: usize = FRAME_MESSAGE - ANNOUNCEMENT;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripes::{requests, split};
    use causeway_wire::chunk::ChunkHeader;

    /// The requests for a piece of `length` bytes, on so many queue pairs, that announce it.
    fn announced(length: usize, queue_pairs: usize) -> Vec<Stripe> {
        let stripes = split(length, queue_pairs);
        let chunk = ChunkHeader { transfer: 1, offset: 0, total: length as u64, length: length as u32 };
        let announcement = Announcement { chunk, first: 0, stripes: stripes.len() as u32, is_direct: false };
        let last =
            stripes.filter_map(|(offset, stripe)| requests(offset, stripe).find(|(_, _, is_last)| *is_last));
        last.map(|(_, bytes, _)| Stripe {
            segment: Segment { length: bytes as u32, ..Segment::EMPTY },
            work: Work::Write(RemoteMemory { address: 0, key: 0 }),
            notice: Some(Notice::Announcement(announcement)),
            operation: None,
        })
        .collect()
    }

    #[test]
    fn an_announcement_brings_a_short_piece_along() {
        for length in [1, 4096, MAX_EAGER_BYTES] {
            let stripes = announced(length, 2);
            assert!(stripes.len() == 1 && stripes[0].is_short_piece(), "{length} bytes");
            let unannounced = Stripe { notice: None, ..announced(length, 2).remove(0) };
            assert!(!unannounced.is_short_piece());
        }
        for length in [0, MAX_EAGER_BYTES + 1] {
            assert!(!announced(length, 2)[0].is_short_piece(), "{length} bytes");
        }
    }

    #[test]
    fn no_announcement_brings_the_short_end_of_a_long_piece_along() {
        const MIB: usize = 1 << 20;
        for (length, queue_pairs) in [(MIB + 1, 1), (2 * MIB + 4096, 2), (4 * MIB + 4096, 4)] {
            let stripes = announced(length, queue_pairs);
            let has_short_end =
                stripes.iter().any(|stripe| stripe.segment.length as usize <= MAX_EAGER_BYTES);
            assert!(
                has_short_end && stripes.len() == queue_pairs,
                "{length} bytes over {queue_pairs} queue pairs"
            );
            assert!(
                !stripes.iter().any(Stripe::is_short_piece),
                "{length} bytes over {queue_pairs} queue pairs"
            );
        }
    }
}
