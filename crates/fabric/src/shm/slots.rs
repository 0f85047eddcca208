//! Which slots of the arena are free? Kept by the side that lends them, out of the peer's reach.

use std::ops::Range;

use super::Violation;
use super::layout::{SEGMENT, SLOT};

const SLOTS_IN_SEGMENT: usize = SEGMENT / SLOT;

/// What is lent [in turn](Slots::in_turn), in slots: as much as the caches hold that belong to single cores of a large machine.
const TURN: u32 = (32 << 20) / SLOT as u32;

/// The slots of one half of the arena.
///
/// The lowest run that is long enough is lent, so that a session which moves little touches few pages. No run crosses the
/// end of a [segment](SEGMENT), since devices know one segment at a time.
#[derive(Debug)]
pub(crate) struct Slots {
    /// For each slot: the length of the lent run that begins here, or 0.
    runs: Vec<u32>,
    free: u32,
    /// Where the next run is looked for first: behind the last one that was lent, up to `turn`.
    next: usize,
    turn: usize,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        Self { runs: vec![0; count as usize], free: count, next: 0, turn: 0 }
    }

    /// Slots that a device writes to: each run is lent behind the one before, as far as [`TURN`], where it begins anew. A device
    /// that writes to what cores have just read has to get it out of their caches first: 16 MiB that twelve cores had read took
    /// it 514 us, and 310 in memory that they had not read lately (a virtual machine with an H200, 2026-11-23).
    pub(crate) fn in_turn(count: u32) -> Self {
        Self { turn: count.min(TURN) as usize, ..Self::new(count) }
    }

    /// Lends a run of `count` slots, at most a segment's; its first one.
    pub(crate) fn lend(&mut self, count: u32) -> Option<u32> {
        if count == 0 || self.free < count || count as usize > SLOTS_IN_SEGMENT {
            return None;
        }
        let count = count as usize;
        let behind = self.find(self.next..self.turn, count);
        let start = behind.or_else(|| self.find(0..self.runs.len(), count))?;
        self.runs[start] = count as u32;
        self.free -= count as u32;
        self.next = start + count;
        Some(start as u32)
    }

    /// The first free run of `count` slots in this range, which must not begin within a lent run.
    fn find(&self, range: Range<usize>, count: usize) -> Option<usize> {
        let (mut at, mut start) = (range.start, range.start);
        while at < range.end {
            match self.runs[at] {
                0 => {
                    if at.is_multiple_of(SLOTS_IN_SEGMENT) {
                        start = at;
                    }
                    at += 1;
                    if at - start == count {
                        return Some(start);
                    }
                }
                run => {
                    at += run as usize;
                    start = at;
                }
            }
        }
        None
    }

    /// Takes a run back by its first slot.
    pub(crate) fn take_back(&mut self, first: u64) -> Result<(), Violation> {
        let run = usize::try_from(first).ok().and_then(|first| self.runs.get_mut(first));
        match run {
            Some(run) if *run > 0 => {
                self.free += *run;
                *run = 0;
                Ok(())
            }
            _ => Err(Violation::NotLent(first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_run_that_fits_is_lent() {
        let mut slots = Slots::new(8);
        assert_eq!([slots.lend(2), slots.lend(3), slots.lend(3)], [Some(0), Some(2), Some(5)]);
        assert_eq!(slots.lend(1), None);
        slots.take_back(2).unwrap();
        assert_eq!(slots.lend(4), None, "there are three free slots");
        assert_eq!(slots.lend(1), Some(2));
        assert_eq!(slots.lend(2), Some(3));
        slots.take_back(0).unwrap();
        slots.take_back(2).unwrap();
        assert_eq!(slots.lend(3), Some(0), "neighbours that are free are one run");
        assert_eq!((slots.lend(0), slots.lend(9)), (None, None));
    }

    #[test]
    fn what_devices_write_to_is_lent_in_turn() {
        let mut slots = Slots::in_turn(2 * TURN);
        let half = SLOTS_IN_SEGMENT as u32 / 2;
        for first in (0..TURN).step_by(half as usize).chain([0, half]) {
            assert_eq!(slots.lend(half), Some(first));
            slots.take_back(first.into()).unwrap();
        }
        assert_eq!(slots.lend(TURN / 2), Some(TURN / 2), "the rest of a segment is passed over");
        assert_eq!(
            [slots.lend(TURN / 2), slots.lend(1)],
            [Some(0), Some(TURN)],
            "beyond it when all of it is lent"
        );
        slots.take_back(0).unwrap();
        assert_eq!(slots.lend(1), Some(0));
    }

    #[test]
    fn no_run_crosses_the_end_of_a_segment() {
        let segment = SLOTS_IN_SEGMENT as u32;
        let mut slots = Slots::new(3 * segment);
        assert_eq!(
            [slots.lend(segment - 2), slots.lend(3), slots.lend(2)],
            [Some(0), Some(segment), Some(segment - 2)]
        );
        assert_eq!(
            [slots.lend(segment), slots.lend(segment), slots.lend(segment + 1)],
            [Some(2 * segment), None, None]
        );
    }

    proptest! {
        #[test]
        fn no_slot_is_ever_lent_twice(
            turn in 0_usize..33, actions in prop::collection::vec((any::<bool>(), 0_u64..40), 1..300),
        ) {
            const COUNT: u32 = 32;
            let mut slots = Slots { turn, ..Slots::new(COUNT) };
            let mut lent: Vec<(u32, u32)> = Vec::new();
            for (lends, number) in actions {
                if lends {
                    let count = number as u32 % 9;
                    if let Some(first) = slots.lend(count) {
                        prop_assert!(count > 0 && first + count <= COUNT);
                        let apart = |(start, length): &(u32, u32)| {
                            first + count <= *start || start + length <= first
                        };
                        prop_assert!(lent.iter().all(apart));
                        lent.push((first, count));
                    }
                } else {
                    let known = lent.iter().position(|(first, _)| u64::from(*first) == number);
                    match known {
                        Some(at) => {
                            lent.swap_remove(at);
                            prop_assert_eq!(slots.take_back(number), Ok(()));
                        }
                        None => prop_assert_eq!(slots.take_back(number), Err(Violation::NotLent(number))),
                    }
                }
                let used: u32 = lent.iter().map(|(_, count)| count).sum();
                prop_assert_eq!(slots.free, COUNT - used);
            }
        }
    }
}
