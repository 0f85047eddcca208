//! Which memory is lent to the peer, and what keeps it until it is given back?

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use causeway_wire::lent::LentMemory;

use crate::message::MOST_NUMBER;
use crate::state::State;
use causeway_transport::Keeper;
use causeway_transport::staging::Piece;

/// The first number of memory that is lent; smaller ones are slots.
const FIRST_NUMBER: u32 = 1 << 20;

/// Memory that is lent to the peer to be read: what keeps it, and its bytes, by number. That of an offer is
/// its first slot.
#[derive(Default)]
pub struct Lendings {
    pub(super) kept: HashMap<u32, (u64, Keeper)>,
    last: u32,
}

impl Lendings {
    /// Lends memory; its number.
    fn begin(&mut self, bytes: u64, keeper: Keeper) -> u32 {
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

    /// The memory of this number is given back.
    pub fn end(&mut self, number: u32) -> Option<(u64, Keeper)> {
        self.kept.remove(&number)
    }
}

impl State {
    /// Registered memory, for the peer to write to.
    pub fn lend(&self, start: *const u8, length: usize) -> Option<LentMemory> {
        let region = self.known.read().find(start as usize, length, true)?;
        Some(LentMemory { address: start as u64, key: region.remote_key(), number: 0 })
    }

    /// Registered memory, for the peer to read; `keeper` keeps it until the peer gives it back.
    pub fn lend_to_read(&self, start: *const u8, length: usize, keeper: Keeper) -> Option<LentMemory> {
        let region = self.known(start, length)?;
        let key = region.remote_key();
        Some(self.lend_for_reading(start as u64, key, length, keeper))
    }

    /// A filled piece, for the peer to read where it lies; it is free again when the peer has.
    pub fn lend_piece(&self, piece: Piece) -> LentMemory {
        let (address, length) = (piece.as_ptr() as u64, piece.len());
        self.lend_for_reading(address, self.staging.region().remote_key(), length, Box::new(piece))
    }

    /// Takes memory back that was lent to be read.
    pub fn recall(&self, memory: LentMemory) {
        let kept = self.lendings.lock().end(memory.number);
        drop(kept);
    }

    /// Lends memory by the key of its registration; `keeper` keeps it until the peer gives it back.
    pub fn lend_for_reading(&self, address: u64, key: u32, length: usize, keeper: Keeper) -> LentMemory {
        let number = self.lendings.lock().begin(length as u64, keeper);
        if self.is_over() {
            self.abandon();
        }
        LentMemory { address, key, number }
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
