//! Slot allocator of the arena. Kept by the side that leases them, out of the peer's reach.

use std::ops::Range;

use causeway_config::table::SHM_STAGING_LIMITS;
use thiserror::Error;

/// The unit of the staging arena in bytes. Copies up to 64 KiB travel inside their commands, so nothing
/// smaller than this is ever staged except by rare callers.
pub const SLOT: usize = 64 << 10;

/// The largest piece of a transfer in bytes.
pub const MAX_PIECE_BYTES: usize = 16 << 20;

/// What is registered with a device at once, in bytes, from the start of each half of the arena: no piece
/// lies in two. On the host of an H200 registering costs 390 us a MiB of memory that nobody has touched yet
/// (2026-11-22), so this is done when a segment is first used, and segments are no longer than pieces.
pub const SEGMENT: usize = MAX_PIECE_BYTES;

/// The least and the most bytes of a staging arena that can be asked for.
pub const STAGING_LIMITS: (usize, usize) = (SHM_STAGING_LIMITS.0 as usize, SHM_STAGING_LIMITS.1 as usize);

const SLOTS_IN_SEGMENT: usize = SEGMENT / SLOT;

/// What is leased [in turn](Slots::in_turn), in slots: as much as the caches hold that belong to single cores
/// of a large machine.
const ROUND_ROBIN_SLOTS: u32 = (32 << 20) / SLOT as u32;

/// A slot was released that was not leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("slot {0} was released, but was not leased")]
pub struct NotLeased(pub u64);

/// The slots of one half of the arena.
///
/// The lowest range that is long enough is leased, so that a session which moves little touches few pages. No
/// range crosses the end of a [segment](SEGMENT), since devices know one segment at a time.
#[derive(Debug)]
pub struct Slots {
    /// For each slot: the leased range that begins here, of length 0 where none does.
    ranges: Vec<SlotRange>,
    free: u32,
    /// Where the next range is looked for first: behind the last one that was leased, up to `round_robin_end`.
    next: usize,
    round_robin_end: usize,
}

/// Slots that are leased together.
#[derive(Debug, Clone, Copy, Default)]
struct SlotRange {
    length: u32,
    /// Whether the peer has it. Until then this side fills it, and the peer cannot release it.
    is_sent: bool,
}

impl Slots {
    /// So many slots, all of them free.
    pub fn new(count: u32) -> Self {
        Self { ranges: vec![SlotRange::default(); count as usize], free: count, next: 0, round_robin_end: 0 }
    }

    /// Slots that a device writes to: each range is leased behind the one before, as far as
    /// `ROUND_ROBIN_SLOTS`, where it begins anew. A device that writes to what cores have just read has to
    /// get it out of their caches first: 16 MiB that twelve cores had read took it 514 us, and 310 in memory
    /// that they had not read lately (a virtual machine with an H200, 2026-11-23).
    pub fn round_robin(count: u32) -> Self {
        Self { round_robin_end: count.min(ROUND_ROBIN_SLOTS) as usize, ..Self::new(count) }
    }

    /// Leases a range of `count` slots, at most a segment's; its first one.
    pub fn lease(&mut self, count: u32) -> Option<u32> {
        if count == 0 || self.free < count || count as usize > SLOTS_IN_SEGMENT {
            return None;
        }
        let count = count as usize;
        let behind = self.find(self.next..self.round_robin_end, count);
        let start = behind.or_else(|| self.find(0..self.ranges.len(), count))?;
        self.ranges[start] = SlotRange { length: count as u32, is_sent: false };
        self.free -= count as u32;
        self.next = start + count;
        Some(start as u32)
    }

    /// The first free range of `count` slots in this range, which must not begin within a leased range.
    fn find(&self, range: Range<usize>, count: usize) -> Option<usize> {
        let (mut at, mut start) = (range.start, range.start);
        while at < range.end {
            match self.ranges[at].length {
                0 => {
                    if at.is_multiple_of(SLOTS_IN_SEGMENT) {
                        start = at;
                    }
                    at += 1;
                    if at - start == count {
                        return Some(start);
                    }
                }
                length => {
                    at += length as usize;
                    start = at;
                }
            }
        }
        None
    }

    /// The range that begins with this slot is the peer's from here on. Before anything can tell the peer of
    /// it.
    pub fn send(&mut self, first: u32) {
        self.ranges[first as usize].is_sent = true;
    }

    /// The range was not announced to the peer after all, and is to be given up; false when it has given it back
    /// all the same.
    pub fn unsend(&mut self, first: u32) -> bool {
        let range = &mut self.ranges[first as usize];
        let is_leased = range.length > 0;
        range.is_sent = false;
        is_leased
    }

    /// Takes a range back from the peer by its first slot. One that this side still fills is not the peer's
    /// to give back: it would be leased a second time.
    pub fn reclaim(&mut self, first: u64) -> Result<(), NotLeased> {
        self.free_range(first, true)
    }

    /// Takes a range back that this side holds and has not sent.
    pub fn give_up(&mut self, first: u32) -> Result<(), NotLeased> {
        self.free_range(first.into(), false)
    }

    fn free_range(&mut self, first: u64, is_sent: bool) -> Result<(), NotLeased> {
        let range = usize::try_from(first).ok().and_then(|first| self.ranges.get_mut(first));
        match range {
            Some(range) if range.length > 0 && range.is_sent == is_sent => {
                self.free += range.length;
                *range = SlotRange::default();
                Ok(())
            }
            _ => Err(NotLeased(first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_run_that_fits_is_leased() {
        let mut slots = Slots::new(8);
        assert_eq!([slots.lease(2), slots.lease(3), slots.lease(3)], [Some(0), Some(2), Some(5)]);
        assert_eq!(slots.lease(1), None);
        slots.give_up(2).unwrap();
        assert_eq!(slots.lease(4), None, "there are three free slots");
        assert_eq!(slots.lease(1), Some(2));
        assert_eq!(slots.lease(2), Some(3));
        slots.give_up(0).unwrap();
        slots.give_up(2).unwrap();
        assert_eq!(slots.lease(3), Some(0), "neighbours that are free are one range");
        assert_eq!((slots.lease(0), slots.lease(9)), (None, None));
    }

    #[test]
    fn what_devices_write_to_is_leased_in_turn() {
        let mut slots = Slots::round_robin(2 * ROUND_ROBIN_SLOTS);
        let half = SLOTS_IN_SEGMENT as u32 / 2;
        for first in (0..ROUND_ROBIN_SLOTS).step_by(half as usize).chain([0, half]) {
            assert_eq!(slots.lease(half), Some(first));
            slots.give_up(first).unwrap();
        }
        assert_eq!(
            slots.lease(ROUND_ROBIN_SLOTS / 2),
            Some(ROUND_ROBIN_SLOTS / 2),
            "the rest of a segment is passed over"
        );
        assert_eq!(
            [slots.lease(ROUND_ROBIN_SLOTS / 2), slots.lease(1)],
            [Some(0), Some(ROUND_ROBIN_SLOTS)],
            "beyond it when all of it is leased"
        );
        slots.give_up(0).unwrap();
        assert_eq!(slots.lease(1), Some(0));
    }

    #[test]
    fn the_peer_gives_back_only_what_it_was_sent() {
        let mut slots = Slots::new(8);
        assert_eq!((slots.lease(2), slots.lease(1)), (Some(0), Some(2)));
        assert_eq!(slots.reclaim(0), Err(NotLeased(0)), "it is being filled");
        slots.send(0);
        assert_eq!(slots.give_up(0), Err(NotLeased(0)), "it is the peer's");
        assert_eq!([slots.reclaim(0), slots.reclaim(0)], [Ok(()), Err(NotLeased(0))]);
        slots.send(2);
        assert!(slots.unsend(2));
        assert_eq!([slots.reclaim(2), slots.give_up(2)], [Err(NotLeased(2)), Ok(())]);
        assert!(!slots.unsend(2));
    }

    #[test]
    fn no_run_crosses_the_end_of_a_segment() {
        let segment = SLOTS_IN_SEGMENT as u32;
        let mut slots = Slots::new(3 * segment);
        assert_eq!(
            [slots.lease(segment - 2), slots.lease(3), slots.lease(2)],
            [Some(0), Some(segment), Some(segment - 2)]
        );
        assert_eq!(
            [slots.lease(segment), slots.lease(segment), slots.lease(segment + 1)],
            [Some(2 * segment), None, None]
        );
    }

    proptest! {
        #[test]
        fn no_slot_is_ever_lent_twice(
            round_robin_end in 0_usize..33, actions in prop::collection::vec((0..3, 0_u64..40), 1..300),
        ) {
            const COUNT: u32 = 32;
            let mut slots = Slots { round_robin_end, ..Slots::new(COUNT) };
            let mut leased: Vec<(u32, u32)> = Vec::new();
            let mut sent = Vec::new();
            for (action, number) in actions {
                if action == 0 {
                    let count = number as u32 % 9;
                    if let Some(first) = slots.lease(count) {
                        prop_assert!(count > 0 && first + count <= COUNT);
                        let apart = |(start, length): &(u32, u32)| {
                            first + count <= *start || start + length <= first
                        };
                        prop_assert!(leased.iter().all(apart));
                        leased.push((first, count));
                    }
                    continue;
                }
                let known = leased.iter().position(|(first, _)| u64::from(*first) == number);
                match known {
                    Some(_) if action == 1 && !sent.contains(&number) => {
                        slots.send(number as u32);
                        sent.push(number);
                    }
                    Some(at) if sent.contains(&number) => {
                        leased.swap_remove(at);
                        sent.retain(|first| *first != number);
                        prop_assert_eq!(slots.reclaim(number), Ok(()));
                    }
                    _ => prop_assert_eq!(slots.reclaim(number), Err(NotLeased(number))),
                }
                let used: u32 = leased.iter().map(|(_, count)| count).sum();
                prop_assert_eq!(slots.free, COUNT - used);
            }
        }
    }
}
