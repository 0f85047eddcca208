//! Index of unfinished writes by address range.

use core::ops::Range;
use std::collections::BTreeMap;

/// An unfinished write: where it begins, and its number, which no other one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its first address.
    pub start: usize,
    /// Its number.
    pub number: u64,
}

/// Classes of lengths: those of up to 1, 2, 4 ... bytes.
const CLASSES: usize = usize::BITS as usize + 1;

/// Ranges of addresses that may overlap, each with a value.
///
/// Those of similar length are kept together, sorted by where they begin: none of them begins earlier than
/// twice its own length before a range that it overlaps, so that a look touches few others.
pub struct Ranges<T> {
    classes: [BTreeMap<Key, (usize, T)>; CLASSES],
    /// A bit for each class that has any.
    occupied: u128,
    /// All that were taken in since there were none lie in here: a row of copies to ascending addresses
    /// overlaps nothing, which this tells without a search.
    bounds: Range<usize>,
}

/// Bounds that no range meets.
const NOTHING: Range<usize> = Range { start: usize::MAX, end: 0 };

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self { classes: [const { BTreeMap::new() }; CLASSES], occupied: 0, bounds: NOTHING }
    }
}

/// The class of ranges of this length; those in it have at most `1 << class` bytes.
fn class_of(length: usize) -> usize {
    (usize::BITS - length.saturating_sub(1).leading_zeros()) as usize
}

impl<T> Ranges<T> {
    /// Takes in a range of at least one byte under a number that none has.
    pub fn insert(&mut self, range: Range<usize>, number: u64, value: T) -> Key {
        let key = Key { start: range.start, number };
        let class = class_of(range.len());
        self.classes[class].insert(key, (range.end, value));
        self.occupied |= 1 << class;
        self.bounds = self.bounds.start.min(range.start)..self.bounds.end.max(range.end);
        key
    }

    /// Takes a range of this length out.
    pub fn remove(&mut self, key: Key, length: usize) -> Option<T> {
        let class = class_of(length);
        let (_, value) = self.classes[class].remove(&key)?;
        if self.classes[class].is_empty() {
            self.occupied &= !(1 << class);
            if self.occupied == 0 {
                self.bounds = NOTHING;
            }
        }
        Some(value)
    }

    /// Whether a range of this length is there.
    pub fn holds(&self, key: Key, length: usize) -> bool {
        self.classes[class_of(length)].contains_key(&key)
    }

    /// Those that have a byte in common with `range`.
    pub fn overlapping(&self, range: Range<usize>) -> impl Iterator<Item = (Key, &T)> {
        let overlaps_bounds = range.start < self.bounds.end && self.bounds.start < range.end;
        let classes = overlaps_bounds.then(|| self.occupied_classes());
        classes.into_iter().flatten().flat_map(move |class| {
            let max_len = 1_usize.checked_shl(class as u32).unwrap_or(usize::MAX);
            let from = Key { start: range.start.saturating_sub(max_len), number: 0 };
            let to = Key { start: range.end, number: 0 };
            let start = range.start;
            // An empty range overlaps nothing, and must not be asked for from its end to its start.
            let candidates = (from < to && !range.is_empty()).then(|| self.classes[class].range(from..to));
            candidates
                .into_iter()
                .flatten()
                .filter(move |(_, (end, _))| *end > start)
                .map(|(key, (_, value))| (*key, value))
        })
    }

    fn occupied_classes(&self) -> impl Iterator<Item = usize> + use<T> {
        let mut left = self.occupied;
        core::iter::from_fn(move || {
            let class = left.trailing_zeros() as usize;
            // The lowest bit that is set.
            left &= left.wrapping_sub(1);
            (class < CLASSES).then_some(class)
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.occupied_classes().flat_map(|class| &self.classes[class]).map(|(key, (_, value))| (*key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_hold_lengths_up_to_powers_of_two() {
        assert_eq!([1, 2, 3, 4, 5, 8, 9].map(class_of), [0, 1, 2, 2, 3, 3, 4]);
        assert_eq!(class_of(usize::MAX), CLASSES - 1);
    }

    #[test]
    fn adjacent_ranges_do_not_overlap() {
        let mut ranges = Ranges::default();
        ranges.insert(100..200, 1, 'a');
        ranges.insert(usize::MAX - 10..usize::MAX, 2, 'b');
        let found =
            |range: Range<usize>| -> String { ranges.overlapping(range).map(|(_, value)| *value).collect() };
        assert_eq!(found(0..100) + &found(200..300) + &found(150..150), "");
        // Short ones come first.
        assert_eq!(found(199..200) + &found(0..101) + &found(0..usize::MAX), "aaba");
    }

    proptest! {
        #[test]
        fn it_finds_what_a_look_at_all_of_them_finds(
            steps in prop::collection::vec((any::<bool>(), 0_usize..600, 1_usize..300), 1..120),
        ) {
            let mut ranges = Ranges::default();
            let mut model: Vec<(Range<usize>, u64)> = Vec::new();
            for (number, (removes, start, length)) in (0_u64..).zip(steps) {
                if removes && !model.is_empty() {
                    let (range, number) = model.swap_remove(start % model.len());
                    let key = Key { start: range.start, number };
                    prop_assert_eq!(ranges.remove(key, range.len()), Some(number));
                    prop_assert_eq!(ranges.remove(key, range.len()), None);
                } else {
                    ranges.insert(start..start + length, number, number);
                    model.push((start..start + length, number));
                }
                let mut found: Vec<u64> = ranges.overlapping(start..start + length).map(|(_, number)| *number).collect();
                let overlaps = |(range, _): &&(Range<usize>, u64)| range.start < start + length && start < range.end;
                let mut expected: Vec<u64> = model.iter().filter(overlaps).map(|(_, number)| *number).collect();
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(ranges.iter().count(), model.len());
            }
        }
    }
}
