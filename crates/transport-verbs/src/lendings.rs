//! Which memory is lent to the peer to be read, and what keeps it until it is given back?

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use causeway_transport::Keeper;

use crate::message::MOST_NUMBER;

/// The first number of memory that is lent; smaller ones are slots.
const FIRST_NUMBER: u32 = 1 << 20;

/// Memory that is lent to the peer to be read: what keeps it, and its bytes, by number. That of an offer is
/// its first slot.
#[derive(Default)]
pub struct Lendings {
    kept: HashMap<u32, (u64, Keeper)>,
    last: u32,
}

impl Lendings {
    /// Lends memory; its number.
    pub fn begin(&mut self, bytes: u64, keeper: Keeper) -> u32 {
        loop {
            self.last = if (FIRST_NUMBER..MOST_NUMBER - 1).contains(&self.last) {
                self.last + 1
            } else {
                FIRST_NUMBER
            };
            if let Entry::Vacant(place) = self.kept.entry(self.last) {
                place.insert((bytes, keeper));
                return self.last;
            }
        }
    }

    /// Lends memory under the number of a slot, as an offer of it is called.
    pub fn begin_offer(&mut self, first: u32, bytes: u64, keeper: Keeper) {
        self.kept.insert(first, (bytes, keeper));
    }

    /// Nothing is lent any more; what kept the memory.
    pub fn end_all(&mut self) -> impl Iterator<Item = Keeper> + use<> {
        core::mem::take(&mut self.kept).into_values().map(|(_, keeper)| keeper)
    }

    /// The memory of this number is given back.
    pub fn end(&mut self, number: u32) -> Option<(u64, Keeper)> {
        self.kept.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lent_memory_are_no_slots_and_are_used_by_one_at_a_time() {
        let mut lendings = Lendings::default();
        let first = lendings.begin(7, Box::new(()));
        assert!(first >= FIRST_NUMBER);
        lendings.last = MOST_NUMBER - 1;
        assert_eq!(lendings.begin(8, Box::new(())), first + 1, "the first one is in use");
        assert_eq!(lendings.end(first).map(|(bytes, _)| bytes), Some(7));
        assert!(lendings.end(first).is_none());
    }
}
