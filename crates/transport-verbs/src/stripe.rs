//! Stripes of a piece over the queue pairs: how it is split, what is announced, and its reassembly.
//!
//! Each stripe is written by a queue pair of its own and announced behind it; what the announcements of the
//! other queue pairs say is the same, so the one that comes last completes the piece, whichever it is. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use causeway_ibverbs::{RemoteMemory, Segment};
use causeway_wire::chunk::ChunkHeader;

use crate::error::Violation;
use crate::message::{ANNOUNCEMENT, Announcement, FRAME_MESSAGE, Offer};
use crate::queue::Operation;

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

/// What is sent to the peer behind a stripe.
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

/// No stripe is shorter than this, but for the last of a piece: less is not worth a request of its own.
const MIN_STRIPE_BYTES: usize = 64 << 10;

/// The boundaries of stripes, so that none begins within a page.
const STRIPE_UNIT: usize = 4096;

/// The most bytes of one request: less than any device's longest message, and short enough that a frame
/// behind it does not wait long.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The most pieces of which some stripes are missing.
const MAX_PARTIAL_BYTES: usize = 1 << 14;

/// The most stripes of a piece.
const MAX_STRIPES: usize = crate::settings::MAX_QUEUE_PAIRS as usize;

/// Offset and length of each stripe of a piece of `length` bytes, for so many queue pairs. An empty piece has
/// one empty stripe.
pub fn split(length: usize, queue_pairs: usize) -> impl ExactSizeIterator<Item = (usize, usize)> {
    let count = (length / MIN_STRIPE_BYTES).clamp(1, queue_pairs.clamp(1, MAX_STRIPES));
    let step = length.div_ceil(count).next_multiple_of(STRIPE_UNIT).max(1);
    let count = length.div_ceil(step).max(1);
    (0..count).map(move |stripe| (stripe * step, step.min(length - (stripe * step).min(length))))
}

/// Offset and length of each request for a stripe of `length` bytes at `offset`, and whether it is the last
/// one.
pub fn requests(offset: usize, length: usize) -> impl ExactSizeIterator<Item = (usize, usize, bool)> {
    let count = length.div_ceil(MAX_REQUEST_BYTES).max(1);
    (0..count).map(move |request| {
        let before = request * MAX_REQUEST_BYTES;
        (offset + before, MAX_REQUEST_BYTES.min(length - before), request + 1 == count)
    })
}

/// The queue pairs in the order in which they are to get the stripes of a piece: those with the fewest bytes
/// ahead first, of equals the one whose turn it is.
pub fn order(backlogs: &[usize], first: usize) -> Vec<usize> {
    let count = backlogs.len();
    let mut order: Vec<usize> = (0..count).map(|index| (index + first) % count).collect();
    order.sort_by_key(|index| backlogs[*index]);
    order
}

/// Pieces of which some stripes have come.
#[derive(Debug, Default)]
pub struct PartialPieces {
    /// By first slot, or by transfer: what was announced, and how many stripes have come.
    partial: HashMap<u64, (Announcement, u32)>,
}

impl PartialPieces {
    /// Takes in the announcement of a stripe of the piece called `name`; the piece, if all of it has come.
    pub fn add(&mut self, name: u64, announcement: Announcement) -> Result<Option<ChunkHeader>, Violation> {
        let stripes = announcement.stripes;
        if stripes == 0 || stripes as usize > MAX_STRIPES {
            return Err(Violation::Stripes(stripes));
        }
        if stripes == 1 {
            let is_new = !self.partial.contains_key(&name);
            return if is_new { Ok(Some(announcement.chunk)) } else { Err(Violation::Stripes(stripes)) };
        }
        if self.partial.len() >= MAX_PARTIAL_BYTES && !self.partial.contains_key(&name) {
            return Err(Violation::TooManyPieces);
        }
        let (known, count) = self.partial.entry(name).or_insert((announcement, 0));
        if *known != announcement {
            return Err(Violation::Stripes(stripes));
        }
        *count += 1;
        if *count < stripes {
            return Ok(None);
        }
        self.partial.remove(&name);
        Ok(Some(announcement.chunk))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    proptest! {
        #[test]
        fn parts_cover_a_piece_exactly(length in 0_usize..40 << 20, queue_pairs in 1_usize..20) {
            let mut at = 0;
            let stripes = split(length, queue_pairs);
            prop_assert!(stripes.len() >= 1 && stripes.len() <= queue_pairs.min(MAX_STRIPES));
            for (offset, stripe) in stripes {
                prop_assert_eq!(offset, at);
                prop_assert!(stripe > 0 || length == 0);
                at += stripe;
            }
            prop_assert_eq!(at, length);
        }
    }

    #[test]
    fn short_pieces_stay_whole_and_long_ones_are_shared() {
        assert_eq!(split(100_000, 4).collect::<Vec<_>>(), [(0, 100_000)]);
        let lengths: Vec<_> = split(4 << 20, 4).map(|(_, length)| length).collect();
        assert_eq!(lengths, [1 << 20; 4]);
    }

    #[test]
    fn no_request_is_longer_than_devices_take() {
        let of = |offset, length| requests(offset, length).collect::<Vec<_>>();
        assert_eq!(of(5, 0), [(5, 0, true)]);
        assert_eq!(of(5, MAX_REQUEST_BYTES), [(5, MAX_REQUEST_BYTES, true)]);
        let two = [(0, MAX_REQUEST_BYTES, false), (MAX_REQUEST_BYTES, 1, true)];
        assert_eq!(of(0, MAX_REQUEST_BYTES + 1), two);
    }

    #[test]
    fn the_least_loaded_queue_pair_is_first_and_equals_take_turns() {
        assert_eq!(order(&[5, 0, 9], 0), [1, 0, 2]);
        assert_eq!(order(&[0, 0, 0], 2), [2, 0, 1]);
    }

    #[test]
    fn a_piece_is_complete_with_its_last_part_in_any_order() {
        let chunk = ChunkHeader { transfer: 7, offset: 0, total: 300, length: 300 };
        let stripe = |first, stripes| Announcement { chunk, first, stripes, is_direct: false };
        let mut partial = PartialPieces::default();
        assert_eq!(partial.add(3, stripe(3, 1)), Ok(Some(chunk)));
        assert_eq!(partial.add(0, stripe(0, 2)), Ok(None));
        assert_eq!(partial.add(9, stripe(9, 2)), Ok(None));
        assert_eq!(partial.add(0, stripe(0, 2)), Ok(Some(chunk)));
        let other = Announcement { chunk: ChunkHeader { transfer: 8, ..chunk }, ..stripe(9, 2) };
        assert!(partial.add(9, other).is_err());
        assert!(PartialPieces::default().add(0, stripe(0, 0)).is_err());
        assert!(PartialPieces::default().add(0, stripe(0, 1000)).is_err());
        let begun = (0..).find_map(|name| partial.add(name + 100, stripe(0, 2)).err().map(|_| name));
        assert!(
            begun.is_some_and(|begun| begun < MAX_PARTIAL_BYTES as u64),
            "a peer that only begins is stopped"
        );
    }
}
