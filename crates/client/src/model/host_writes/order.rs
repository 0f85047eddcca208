//! May this transfer be written in place, and which ones may be stored now? Decided without any memory,
//! thread or clock.
//!
//! A write has *dependencies*: unfinished writes that lie before it and overlap it. Until the last of them
//! has finished it is *blocked*: its bytes may arrive, and what stores them is kept here until then.

use super::ranges::{Key, Ranges};
use core::ops::Range;
use std::collections::HashMap;

/// The unfinished writes to the program's memory. `T` is whose each is, `S` stores the bytes of one that has
/// arrived in a bounce buffer.
pub struct Writes<T, S> {
    ranges: Ranges<T>,
    /// Whose dependency a write is, for those that are.
    successors: HashMap<u64, Vec<u64>>,
    /// Those that have dependencies, or had some when they began.
    blocked: HashMap<u64, BlockedWrite<S>>,
    /// Bytes of those.
    blocked_bytes: usize,
}

struct BlockedWrite<S> {
    /// Dependencies that have not finished.
    dependencies: usize,
    /// What stores its bytes, once they have arrived.
    store: Option<S>,
}

impl<T, S> Default for Writes<T, S> {
    fn default() -> Self {
        Self {
            ranges: Ranges::default(),
            successors: HashMap::new(),
            blocked: HashMap::new(),
            blocked_bytes: 0,
        }
    }
}

impl<T, S> Writes<T, S> {
    /// A write to `range` begins, behind those of `dependencies` that have not finished. Whether there are
    /// any.
    pub fn begin(
        &mut self,
        range: Range<usize>,
        number: u64,
        owner: T,
        dependencies: impl IntoIterator<Item = (Key, usize)>,
    ) -> bool {
        let mut count = 0;
        for (key, length) in dependencies {
            if self.ranges.holds(key, length) {
                self.successors.entry(key.number).or_default().push(number);
                count += 1;
            }
        }
        if count > 0 {
            self.blocked.insert(number, BlockedWrite { dependencies: count, store: None });
            self.blocked_bytes += range.len();
        }
        self.ranges.insert(range, number, owner);
        count > 0
    }

    /// Whether the write's bytes may go in place.
    pub fn is_next(&self, number: u64) -> bool {
        self.blocked.get(&number).is_none_or(|blocked| blocked.dependencies == 0)
    }

    /// All bytes of a write have arrived in a bounce buffer. Gives `store` back when it is to be carried out
    /// now; otherwise it is kept until the last dependency has finished.
    pub fn arrived(&mut self, number: u64, store: S) -> Option<S> {
        match self.blocked.get_mut(&number) {
            Some(blocked) if blocked.dependencies > 0 => {
                blocked.store = Some(store);
                None
            }
            _ => Some(store),
        }
    }

    /// A write has finished: its bytes are in place, or never will be. Gives what is to be stored now, in no
    /// particular order.
    pub fn finish(&mut self, key: Key, length: usize) -> Vec<S> {
        let mut next = Vec::new();
        let is_unordered = self.blocked.is_empty() && self.successors.is_empty();
        if self.ranges.remove(key, length).is_none() || is_unordered {
            return next;
        }
        if self.blocked.remove(&key.number).is_some() {
            self.blocked_bytes -= length;
        }
        for successor in self.successors.remove(&key.number).unwrap_or_default() {
            // One that was given up has gone before.
            let Some(blocked) = self.blocked.get_mut(&successor) else { continue };
            blocked.dependencies -= 1;
            if blocked.dependencies == 0 {
                next.extend(blocked.store.take());
            }
        }
        next
    }

    /// Whose unfinished writes overlap `range`.
    pub fn overlapping(&self, range: Range<usize>) -> impl Iterator<Item = &T> {
        self.ranges.overlapping(range).map(|(_, owner)| owner)
    }

    /// Whose writes are unfinished.
    pub fn owners(&self) -> impl Iterator<Item = &T> {
        self.ranges.iter().map(|(_, owner)| owner)
    }

    /// Bytes of unfinished writes that had dependencies when they began.
    pub fn blocked_bytes(&self) -> usize {
        self.blocked_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(range: &Range<usize>, number: u64) -> (Key, usize) {
        (Key { start: range.start, number }, range.len())
    }

    #[test]
    fn a_write_is_blocked_until_its_last_dependency_has_finished() {
        let mut writes = Writes::default();
        assert!(!writes.begin(0..10, 1, (), []));
        assert!(!writes.begin(10..20, 2, (), []));
        assert!(writes.begin(5..15, 3, (), [key(&(0..10), 1), key(&(10..20), 2)]));
        assert!(!writes.is_next(3) && writes.blocked_bytes() == 10);
        assert_eq!(writes.arrived(3, 'c'), None);
        assert_eq!(writes.finish(Key { start: 0, number: 1 }, 10), []);
        assert_eq!(writes.finish(Key { start: 10, number: 2 }, 10), ['c']);
        assert!(writes.is_next(3));
        assert_eq!(writes.finish(Key { start: 5, number: 3 }, 10), []);
        assert_eq!((writes.blocked_bytes(), writes.owners().count(), writes.blocked.len()), (0, 0, 0));
    }

    #[test]
    fn predecessors_that_have_finished_hold_nothing_and_writes_that_are_given_up_let_others_go() {
        let mut writes = Writes::default();
        writes.begin(0..10, 1, (), []);
        writes.finish(Key { start: 0, number: 1 }, 10);
        assert!(!writes.begin(0..10, 2, (), [key(&(0..10), 1)]));
        writes.begin(0..10, 3, (), [key(&(0..10), 2)]);
        writes.begin(0..10, 4, (), [key(&(0..10), 2), key(&(0..10), 3)]);
        // Given up before its dependency has finished.
        assert_eq!(writes.finish(Key { start: 0, number: 3 }, 10), [] as [char; 0]);
        assert_eq!(writes.arrived(4, 'd'), None);
        assert_eq!(writes.finish(Key { start: 0, number: 2 }, 10), ['d']);
        writes.finish(Key { start: 0, number: 4 }, 10);
        // With none blocked any more, what is known of dependencies goes with them.
        writes.begin(0..10, 5, (), []);
        writes.begin(0..10, 6, (), [key(&(0..10), 5)]);
        writes.finish(Key { start: 0, number: 6 }, 10);
        writes.finish(Key { start: 0, number: 5 }, 10);
        assert!(writes.blocked.is_empty() && writes.successors.is_empty());
    }

    #[test]
    fn one_that_arrives_behind_its_predecessors_is_stored_at_once() {
        let mut writes = Writes::default();
        writes.begin(0..10, 1, (), []);
        writes.begin(0..10, 2, (), [key(&(0..10), 1)]);
        writes.finish(Key { start: 0, number: 1 }, 10);
        assert_eq!(writes.arrived(2, 'b'), Some('b'));
    }

    /// A write of the property below: where, in which stream, and how far its bytes are.
    #[derive(Clone, Debug)]
    struct Copy {
        range: Range<usize>,
        stage: Stage,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Stage {
        Expected,
        InPlace,
        Bounced,
        Held,
        Finished,
    }

    proptest! {
        /// Whatever the order in which first and last chunks come, memory ends as if each copy had been made
        /// in its turn.
        #[test]
        fn overlapping_writes_take_effect_in_their_order(
            ranges in prop::collection::vec((0_usize..40, 1_usize..24), 1..24),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
            fails in prop::collection::vec(prop::bool::weighted(0.05), 24),
        ) {
            let mut writes: Writes<usize, usize> = Writes::default();
            let mut memory = [usize::MAX; 64];
            let mut expected = memory;
            let mut copies: Vec<Copy> = Vec::new();
            for (number, (start, length)) in ranges.into_iter().enumerate() {
                let range = start..start + length;
                let before: Vec<_> = writes.overlapping(range.clone()).copied().collect();
                let keys = before.iter().map(|number| key(&copies[*number].range, *number as u64));
                writes.begin(range.clone(), number as u64, number, keys.collect::<Vec<_>>());
                if !fails[number] {
                    expected[range.clone()].fill(number);
                }
                copies.push(Copy { range, stage: Stage::Expected });
            }
            let mut choices = choices.into_iter();
            loop {
                let open: Vec<usize> = (0..copies.len())
                    .filter(|number| !matches!(copies[*number].stage, Stage::Finished | Stage::Held))
                    .collect();
                if open.is_empty() {
                    break;
                }
                let number = choices.next().map_or(open[0], |choice| open[choice.index(open.len())]);
                let mut stored = match copies[number].stage {
                    Stage::Expected => {
                        let is_next = writes.is_next(number as u64);
                        copies[number].stage = if is_next { Stage::InPlace } else { Stage::Bounced };
                        Vec::new()
                    }
                    Stage::InPlace | Stage::Bounced if fails[number] => vec![number],
                    Stage::InPlace => vec![number],
                    _ => {
                        copies[number].stage = Stage::Held;
                        writes.arrived(number as u64, number).into_iter().collect()
                    }
                };
                while let Some(number) = stored.pop() {
                    let range = copies[number].range.clone();
                    if !fails[number] {
                        memory[range.clone()].fill(number);
                    }
                    copies[number].stage = Stage::Finished;
                    let (key, length) = key(&range, number as u64);
                    stored.extend(writes.finish(key, length));
                }
            }
            prop_assert!(copies.iter().all(|copy| copy.stage == Stage::Finished), "{copies:?}");
            prop_assert_eq!(memory, expected);
            prop_assert!(writes.blocked.is_empty() && writes.successors.is_empty());
            prop_assert!(writes.blocked_bytes == 0 && writes.owners().count() == 0);
        }
    }
}
