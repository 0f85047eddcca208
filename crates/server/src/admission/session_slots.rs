//! Session slots: limits of sessions, in all and per peer.
//!
//! SessionSlots are for what has proved who it is: sessions, monitoring programs, diagnoses. Nobody is turned
//! out of one; who finds none is refused.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::source::Source;

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// There are as many as there may be.
    InAll,
    /// There are as many of this source as there may be.
    OfSource,
}

/// SessionSlots, and who has taken them.
#[derive(Debug)]
pub struct SessionSlots {
    max_sessions: usize,
    max_per_source: usize,
    taken: usize,
    by_source: HashMap<Source, usize>,
}

impl SessionSlots {
    /// So many seats, and so many for one source.
    pub fn new(max_sessions: usize, max_per_source: usize) -> Self {
        Self { max_sessions, max_per_source, taken: 0, by_source: HashMap::new() }
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Takes a seat.
    pub fn take(&mut self, source: Source) -> Result<(), Full> {
        self.take_of(source, self.max_per_source)
    }

    /// As [`Self::take`], for a source that may have `max_sessions` of its own.
    pub fn take_of(&mut self, source: Source, max_sessions: usize) -> Result<(), Full> {
        let of_source = self.by_source.get(&source).copied().unwrap_or(0);
        if of_source >= max_sessions {
            return Err(Full::OfSource);
        }
        if self.taken >= self.max_sessions {
            return Err(Full::InAll);
        }
        self.taken += 1;
        self.by_source.insert(source, of_source + 1);
        Ok(())
    }

    /// Gives a seat back that was taken.
    pub fn release(&mut self, source: Source) {
        if let Entry::Occupied(mut of_source) = self.by_source.entry(source) {
            self.taken -= 1;
            *of_source.get_mut() -= 1;
            if *of_source.get() == 0 {
                of_source.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nobody_has_more_than_its_part_and_what_is_given_back_can_be_taken(
            (max_sessions, max_per_source) in (0_usize..12, 0_usize..6),
            steps in proptest::collection::vec((0_u32..4, any::<bool>()), 0..200),
        ) {
            let mut seats = SessionSlots::new(max_sessions, max_per_source);
            // SessionSlots of each source.
            let mut model = [0_usize; 4];
            for (user, comes) in steps {
                let (source, index) = (Source::User(user), user as usize);
                if comes {
                    let expected = if model[index] >= max_per_source {
                        Err(Full::OfSource)
                    } else if model.iter().sum::<usize>() >= max_sessions {
                        Err(Full::InAll)
                    } else {
                        model[index] += 1;
                        Ok(())
                    };
                    prop_assert_eq!(seats.take(source), expected);
                } else {
                    // Also when there is nothing to give back.
                    seats.release(source);
                    model[index] = model[index].saturating_sub(1);
                }
                // Sources that have nothing are not remembered.
                prop_assert_eq!(seats.by_source.len(), model.iter().filter(|taken| **taken > 0).count());
            }
        }
    }
}
