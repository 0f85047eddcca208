//! Exposed regions: memory that the peer may read, held until it is released.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use causeway_transport::BufferGuard;

use crate::message::MAX_NUMBER;

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
            if let Entry::Vacant(place) = self.regions.entry(self.last) {
                place.insert((bytes, guard));
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

    /// The memory of this number is given back.
    pub fn end(&mut self, number: u32) -> Option<(u64, BufferGuard)> {
        self.regions.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
