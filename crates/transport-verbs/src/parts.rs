//! How is a piece of a transfer split over the queue pairs, and when has all of it come?
//!
//! Each part is written by a queue pair of its own and announced behind it; what the announcements of the
//! other queue pairs say is the same, so the one that comes last completes the piece, whichever it is. Pure.

use std::collections::HashMap;

use causeway_wire::chunk::ChunkHeader;

use super::failure::Violation;
use super::message::Announcement;

/// No part is shorter than this, but for the last of a piece: less is not worth a request of its own.
const LEAST_PART: usize = 64 << 10;

/// The boundaries of parts, so that none begins within a page.
const PART_UNIT: usize = 4096;

/// The most bytes of one request: less than any device's longest message, and short enough that a frame
/// behind it does not wait long.
pub const LONGEST_REQUEST: usize = 1 << 20;

/// The most pieces of which some parts are missing.
const MOST_PARTIAL: usize = 1 << 14;

/// The most parts of a piece.
pub const MOST_PARTS: usize = super::settings::MOST_QUEUE_PAIRS as usize;

/// Offset and length of each part of a piece of `length` bytes, for so many queue pairs. An empty piece has
/// one empty part.
pub fn split(length: usize, queue_pairs: usize) -> impl ExactSizeIterator<Item = (usize, usize)> {
    let count = (length / LEAST_PART).clamp(1, queue_pairs.clamp(1, MOST_PARTS));
    let step = length.div_ceil(count).next_multiple_of(PART_UNIT).max(1);
    let count = length.div_ceil(step).max(1);
    (0..count).map(move |part| (part * step, step.min(length - (part * step).min(length))))
}

/// Offset and length of each request for a part of `length` bytes at `offset`, and whether it is the last
/// one.
pub fn requests(offset: usize, length: usize) -> impl ExactSizeIterator<Item = (usize, usize, bool)> {
    let count = length.div_ceil(LONGEST_REQUEST).max(1);
    (0..count).map(move |request| {
        let before = request * LONGEST_REQUEST;
        (offset + before, LONGEST_REQUEST.min(length - before), request + 1 == count)
    })
}

/// The queue pairs in the order in which they are to get the parts of a piece: those with the fewest bytes
/// ahead first, of equals the one whose turn it is.
pub fn order(backlogs: &[usize], turn: usize) -> Vec<usize> {
    let count = backlogs.len();
    let mut order: Vec<usize> = (0..count).map(|place| (place + turn) % count).collect();
    order.sort_by_key(|index| backlogs[*index]);
    order
}

/// Pieces of which some parts have come.
#[derive(Debug, Default)]
pub struct Joins {
    /// By first slot, or by transfer: what was announced, and how many parts have come.
    partial: HashMap<u64, (Announcement, u32)>,
}

impl Joins {
    /// Takes in the announcement of a part of the piece called `name`; the piece, if all of it has come.
    pub fn came(&mut self, name: u64, announcement: Announcement) -> Result<Option<ChunkHeader>, Violation> {
        let parts = announcement.parts;
        if parts == 0 || parts as usize > MOST_PARTS {
            return Err(Violation::Parts(parts));
        }
        if parts == 1 {
            let is_new = !self.partial.contains_key(&name);
            return if is_new { Ok(Some(announcement.chunk)) } else { Err(Violation::Parts(parts)) };
        }
        if self.partial.len() >= MOST_PARTIAL && !self.partial.contains_key(&name) {
            return Err(Violation::TooManyPieces);
        }
        let (known, come) = self.partial.entry(name).or_insert((announcement, 0));
        if *known != announcement {
            return Err(Violation::Parts(parts));
        }
        *come += 1;
        if *come < parts {
            return Ok(None);
        }
        self.partial.remove(&name);
        Ok(Some(announcement.chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_a_piece_exactly(length in 0_usize..40 << 20, queue_pairs in 1_usize..20) {
            let mut at = 0;
            let parts = split(length, queue_pairs);
            prop_assert!(parts.len() >= 1 && parts.len() <= queue_pairs.min(MOST_PARTS));
            for (offset, part) in parts {
                prop_assert_eq!(offset, at);
                prop_assert!(part > 0 || length == 0);
                at += part;
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
        assert_eq!(of(5, LONGEST_REQUEST), [(5, LONGEST_REQUEST, true)]);
        let two = [(0, LONGEST_REQUEST, false), (LONGEST_REQUEST, 1, true)];
        assert_eq!(of(0, LONGEST_REQUEST + 1), two);
    }

    #[test]
    fn the_least_loaded_queue_pair_is_first_and_equals_take_turns() {
        assert_eq!(order(&[5, 0, 9], 0), [1, 0, 2]);
        assert_eq!(order(&[0, 0, 0], 2), [2, 0, 1]);
    }

    #[test]
    fn a_piece_is_complete_with_its_last_part_in_any_order() {
        let chunk = ChunkHeader { transfer: 7, offset: 0, total: 300, length: 300 };
        let part = |first, parts| Announcement { chunk, first, parts, is_direct: false };
        let mut joins = Joins::default();
        assert_eq!(joins.came(3, part(3, 1)), Ok(Some(chunk)));
        assert_eq!(joins.came(0, part(0, 2)), Ok(None));
        assert_eq!(joins.came(9, part(9, 2)), Ok(None));
        assert_eq!(joins.came(0, part(0, 2)), Ok(Some(chunk)));
        let other = Announcement { chunk: ChunkHeader { transfer: 8, ..chunk }, ..part(9, 2) };
        assert!(joins.came(9, other).is_err());
        assert!(Joins::default().came(0, part(0, 0)).is_err());
        assert!(Joins::default().came(0, part(0, 1000)).is_err());
        let begun = (0..).find_map(|name| joins.came(name + 100, part(0, 2)).err().map(|_| name));
        assert!(begun.is_some_and(|begun| begun < MOST_PARTIAL as u64), "a peer that only begins is stopped");
    }
}
