//! Ranges of bytes in order, none of which touches another.

use core::ops::Range;
use std::collections::BTreeMap;

/// A set of bytes, as ranges.
#[derive(Debug, Default, Clone)]
pub struct Ranges {
    /// From the first byte to the one behind the last.
    ends: BTreeMap<usize, usize>,
}

impl Ranges {
    /// Adds the bytes of a range.
    pub fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back()
            && other_end >= start
        {
            self.ends.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ends.insert(start, end);
    }

    /// Adds the bytes of all ranges of another set.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|range| self.add(range));
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes all bytes out.
    pub fn clear(&mut self) {
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut ranges = Ranges::default();
        for range in [10..20, 40..50, 30..30, 20..22, 5..6, 45..60] {
            ranges.add(range);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [5..6, 10..22, 40..60]);
        ranges.add(6..41);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [5..60]);
        let mut others = Ranges::default();
        others.add(0..1);
        others.add_all(&ranges);
        assert_eq!(others.iter().collect::<Vec<_>>(), [0..1, 5..60]);
        others.clear();
        assert!(others.is_empty());
    }
}
