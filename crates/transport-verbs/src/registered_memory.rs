//! Registered memory: the registration cache, by address, and the regions exposed to the peer, by number.
//! Pure.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use causeway_transport::BufferGuard;

use crate::message::MAX_NUMBER;

/// Ranges of memory that are registered, none of which overlap.
#[derive(Debug)]
pub struct RegistrationCache<R> {
    /// By first address: bytes, whether the peer may write there, and the registration.
    ranges: BTreeMap<usize, (usize, bool, Arc<R>)>,
}

impl<R> Default for RegistrationCache<R> {
    fn default() -> Self {
        Self { ranges: BTreeMap::new() }
    }
}

impl<R> RegistrationCache<R> {
    /// Enters memory; false when it overlaps with some that is known.
    pub fn enter(&mut self, start: usize, length: usize, is_writable: bool, region: Arc<R>) -> bool {
        let end = start.saturating_add(length);
        let before = self.ranges.range(..end).next_back();
        let overlaps = before.is_some_and(|(other, (length, ..))| other + length > start);
        if length > 0 && !overlaps {
            self.ranges.insert(start, (length, is_writable, region));
        }
        length > 0 && !overlaps
    }

    /// Takes out the memory that begins here.
    pub fn remove(&mut self, start: usize) -> Option<Arc<R>> {
        self.ranges.remove(&start).map(|(.., region)| region)
    }

    /// The registration in which all of these bytes lie; with `writes`, if the peer may write there.
    pub fn find(&self, start: usize, length: usize, writes: bool) -> Option<Arc<R>> {
        let (base, (bytes, is_writable, region)) = self.ranges.range(..=start).next_back()?;
        let offset = start - base;
        let is_within = offset < *bytes && length <= bytes - offset && length > 0;
        (is_within && (*is_writable || !writes)).then(|| Arc::clone(region))
    }
}

/// The first number of memory that is exposed; smaller ones are slots.
const FIRST_NUMBER: u32 = 1 << 20;

/// Memory that is exposed to the peer for reading: what keeps it, and its bytes, by number. That of an offer
/// is its first slot.
#[derive(Default)]
pub struct ExposedRegions {
    regions: HashMap<u32, (u64, BufferGuard)>,
    last: u32,
}

impl ExposedRegions {
    /// Exposes memory; its number.
    pub fn begin(&mut self, bytes: u64, guard: BufferGuard) -> u32 {
        loop {
            self.last = if (FIRST_NUMBER..MAX_NUMBER - 1).contains(&self.last) {
                self.last + 1
            } else {
                FIRST_NUMBER
            };
            if let Entry::Vacant(entry) = self.regions.entry(self.last) {
                entry.insert((bytes, guard));
                return self.last;
            }
        }
    }

    /// Exposes memory under the number of a slot, as an offer of it is called.
    pub fn begin_offer(&mut self, first: u32, bytes: u64, guard: BufferGuard) {
        self.regions.insert(first, (bytes, guard));
    }

    /// Nothing is exposed any more; what kept the memory.
    pub fn end_all(&mut self) -> impl Iterator<Item = BufferGuard> + use<> {
        core::mem::take(&mut self.regions).into_values().map(|(_, guard)| guard)
    }

    /// The memory of this number is released.
    pub fn end(&mut self, number: u32) -> Option<(u64, BufferGuard)> {
        self.regions.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_any_range_inside_and_never_beyond() {
        let mut cache = RegistrationCache::default();
        assert!(cache.enter(100, 50, true, Arc::new(1)) && cache.enter(150, 50, false, Arc::new(2)));
        for (start, length) in [(149, 1), (90, 20), (199, 5), (120, 0)] {
            assert!(!cache.enter(start, length, true, Arc::new(3)), "{start} {length}");
        }
        let find = |start, length, writes| cache.find(start, length, writes).map(|region| *region);
        assert_eq!(
            (find(100, 50, true), find(149, 1, true), find(150, 50, false)),
            (Some(1), Some(1), Some(2))
        );
        assert_eq!(find(150, 50, true), None, "it is read-only");
        for (start, length) in [(99, 2), (149, 2), (200, 1), (100, 0), (120, usize::MAX)] {
            assert_eq!(find(start, length, false), None, "{start} {length}");
        }
        assert!(cache.remove(101).is_none() && cache.remove(100).is_some());
        assert!(cache.find(100, 1, false).is_none());
    }

    #[test]
    fn numbers_of_lent_memory_are_no_slots_and_are_used_by_one_at_a_time() {
        let mut exposed_regions = ExposedRegions::default();
        let first = exposed_regions.begin(7, Box::new(()));
        assert!(first >= FIRST_NUMBER);
        exposed_regions.last = MAX_NUMBER - 1;
        assert_eq!(exposed_regions.begin(8, Box::new(())), first + 1, "the first one is in use");
        assert_eq!(exposed_regions.end(first).map(|(bytes, _)| bytes), Some(7));
        assert!(exposed_regions.end(first).is_none());
    }
}
