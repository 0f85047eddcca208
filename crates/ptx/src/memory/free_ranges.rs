//! Which addresses are free.

use std::collections::BTreeMap;

/// Free ranges: start to length, neighbours always merged.
#[derive(Debug, Default)]
pub(super) struct FreeRanges(BTreeMap<u64, u64>);

impl FreeRanges {
    /// These ranges, given as (start, length), which must not touch each other.
    pub(super) fn new<const N: usize>(ranges: [(u64, u64); N]) -> Self {
        Self(BTreeMap::from(ranges))
    }

    /// Takes `span` bytes at a multiple of `align` from the lowest free range that holds them.
    pub(super) fn take(&mut self, span: u64, align: u64) -> Option<u64> {
        let (start, length, aligned) = self.0.iter().find_map(|(&start, &length)| {
            let aligned = start.checked_next_multiple_of(align)?;
            let end = aligned.checked_add(span)?;
            (end <= start + length).then_some((start, length, aligned))
        })?;
        self.0.remove(&start);
        if aligned > start {
            self.0.insert(start, aligned - start);
        }
        let end = aligned + span;
        if end < start + length {
            self.0.insert(end, start + length - end);
        }
        Some(aligned)
    }

    /// Takes `span` bytes at `start`, if all of them are free; whether they were.
    pub(super) fn take_at(&mut self, start: u64, span: u64) -> bool {
        let Some(end) = start.checked_add(span) else { return false };
        let Some((&first, &length)) = self.0.range(..=start).next_back() else { return false };
        if end > first + length {
            return false;
        }
        self.0.remove(&first);
        if start > first {
            self.0.insert(first, start - first);
        }
        if end < first + length {
            self.0.insert(end, first + length - end);
        }
        true
    }

    /// Takes the last `span` bytes, a multiple of a page, of the highest free range that holds them.
    pub(super) fn take_highest(&mut self, span: u64) -> Option<u64> {
        let (&start, &length) = self.0.iter().rev().find(|&(_, &length)| length >= span)?;
        if length == span {
            self.0.remove(&start);
        } else {
            self.0.insert(start, length - span);
        }
        Some(start + length - span)
    }

    /// Returns a range to the free ones and merges it with its neighbours.
    pub(super) fn release(&mut self, mut start: u64, mut length: u64) {
        if let Some((&before, &before_length)) = self.0.range(..start).next_back()
            && before + before_length == start
        {
            self.0.remove(&before);
            start = before;
            length += before_length;
        }
        if let Some(after_length) = self.0.remove(&(start + length)) {
            length += after_length;
        }
        self.0.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_range_that_fits_is_taken_and_its_rest_stays_free() {
        let mut free = FreeRanges::new([(10, 6), (100, 100)]);
        assert_eq!(free.take(8, 16), Some(112));
        assert_eq!(free.0, BTreeMap::from([(10, 6), (100, 12), (120, 80)]));
        assert_eq!(free.take(6, 2), Some(10));
        assert_eq!(free.take(81, 1), None);
        assert_eq!(free.take(1, 1 << 63), None);
    }

    #[test]
    fn a_named_range_is_taken_only_if_all_of_it_is_free() {
        let mut free = FreeRanges::new([(10, 20), (100, 10)]);
        assert!(!free.take_at(5, 10) && !free.take_at(25, 6) && !free.take_at(95, 10));
        assert!(free.take_at(15, 5) && !free.take_at(15, 5) && free.take_at(100, 10));
        assert_eq!(free.0, BTreeMap::from([(10, 5), (20, 10)]));
    }

    #[test]
    fn the_end_of_the_highest_range_that_fits_is_taken() {
        let mut free = FreeRanges::new([(10, 20), (100, 10)]);
        assert_eq!(free.take_highest(20), Some(10));
        assert_eq!(free.take_highest(4), Some(106));
        assert_eq!(free.take_highest(7), None);
    }

    #[test]
    fn what_is_given_back_becomes_one_range_with_its_neighbours() {
        let mut free = FreeRanges::new([(0, 30)]);
        let parts = [free.take(10, 1), free.take(10, 1), free.take(10, 1)];
        assert_eq!(parts, [Some(0), Some(10), Some(20)]);
        free.release(20, 10);
        free.release(0, 10);
        assert_eq!(free.0, BTreeMap::from([(0, 10), (20, 10)]));
        free.release(10, 10);
        assert_eq!(free.0, BTreeMap::from([(0, 30)]));
    }
}
