//! Order of writes: which bytes of a transfer go in place, and which buffered ones may be stored. Decided without any
//! memory, thread or clock.
//!
//! A *barrier* stands for all that lies before a copy: unfinished writes, and the barrier of the copy before
//! it, so that a long row of copies costs each of them no more than the one before it has pieces. The pieces
//! of the copy are behind the barrier, and in no order among each other. Until the last of what it stands for
//! has finished they are *blocked*: their bytes may arrive, and what stores them is kept here until then.

use super::ranges::{Key, Ranges};
use core::ops::Range;
use std::collections::HashMap;

/// The unfinished writes to the program's memory. `T` is whose each is, `S` stores the bytes of one that have
/// arrived in a bounce buffer.
pub struct Writes<T, S> {
    ranges: Ranges<T>,
    /// What comes behind a write or a barrier, where something does.
    successors: HashMap<u64, Vec<u64>>,
    /// Barriers that stand for something unfinished, and writes that are behind one, or were when they began.
    blocked: HashMap<u64, Blocked<S>>,
}

struct Blocked<S> {
    /// What it is behind and has not finished.
    dependencies: usize,
    kind: Kind<S>,
}

enum Kind<S> {
    Barrier,
    Write {
        /// What stores its bytes, once they have arrived.
        store: Option<S>,
    },
}

impl<T, S> Default for Writes<T, S> {
    fn default() -> Self {
        Self { ranges: Ranges::default(), successors: HashMap::new(), blocked: HashMap::new() }
    }
}

impl<T, S> Writes<T, S> {
    /// Makes a barrier behind those of these writes and barriers that have not finished. Whether there are
    /// any; otherwise there is no barrier either.
    pub fn add_barrier(
        &mut self,
        number: u64,
        writes: impl IntoIterator<Item = (Key, usize)>,
        barriers: impl IntoIterator<Item = u64>,
    ) -> bool {
        let mut dependencies = 0;
        for (key, length) in writes {
            if self.ranges.holds(key, length) {
                self.successors.entry(key.number).or_default().push(number);
                dependencies += 1;
            }
        }
        for barrier in barriers {
            if self.blocked.contains_key(&barrier) {
                self.successors.entry(barrier).or_default().push(number);
                dependencies += 1;
            }
        }
        if dependencies > 0 {
            self.blocked.insert(number, Blocked { dependencies, kind: Kind::Barrier });
        }
        dependencies > 0
    }

    /// Whether a barrier still stands for something.
    pub fn has_barrier(&self, number: u64) -> bool {
        self.blocked.contains_key(&number)
    }

    /// A write to `range` begins, behind a barrier if one is named. Whether it has to wait.
    pub fn begin(&mut self, range: Range<usize>, number: u64, owner: T, barrier: Option<u64>) -> bool {
        let barrier = barrier.filter(|barrier| self.has_barrier(*barrier));
        if let Some(barrier) = barrier {
            self.successors.entry(barrier).or_default().push(number);
            let kind = Kind::Write { store: None };
            self.blocked.insert(number, Blocked { dependencies: 1, kind });
        }
        self.ranges.insert(range, number, owner);
        barrier.is_some()
    }

    /// Whether the write's bytes may go in place; once they may, they always may.
    pub fn is_next(&self, number: u64) -> bool {
        self.blocked.get(&number).is_none_or(|blocked| blocked.dependencies == 0)
    }

    /// All bytes of a write have arrived, some of them in a bounce buffer. Gives `store` back when it is to be
    /// carried out now; otherwise it is kept until the write's turn has come.
    pub fn arrived(&mut self, number: u64, store: S) -> Option<S> {
        match self.blocked.get_mut(&number) {
            Some(Blocked { dependencies: 1.., kind: Kind::Write { store: slot } }) => {
                *slot = Some(store);
                None
            }
            _ => Some(store),
        }
    }

    /// A write has finished: its bytes are in place, or never will be. Gives what is to be stored now, in no
    /// particular order.
    pub fn finish(&mut self, key: Key, length: usize) -> Vec<S> {
        let mut stores = Vec::new();
        let is_unordered = self.blocked.is_empty() && self.successors.is_empty();
        if self.ranges.remove(key, length).is_none() || is_unordered {
            return stores;
        }
        self.blocked.remove(&key.number);
        let mut finished = vec![key.number];
        while let Some(number) = finished.pop() {
            for successor in self.successors.remove(&number).unwrap_or_default() {
                // A write that was given up has gone before.
                let Some(blocked) = self.blocked.get_mut(&successor) else { continue };
                blocked.dependencies -= 1;
                if blocked.dependencies > 0 {
                    continue;
                }
                match &mut blocked.kind {
                    Kind::Write { store } => stores.extend(store.take()),
                    Kind::Barrier => {
                        self.blocked.remove(&successor);
                        finished.push(successor);
                    }
                }
            }
        }
        stores
    }

    /// Whose unfinished writes overlap `range`.
    pub fn overlapping(&self, range: Range<usize>) -> impl Iterator<Item = &T> {
        self.ranges.overlapping(range).map(|(_, owner)| owner)
    }

    /// Whose writes are unfinished.
    pub fn owners(&self) -> impl Iterator<Item = &T> {
        self.ranges.iter().map(|(_, owner)| owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(range: &Range<usize>, number: u64) -> (Key, usize) {
        (Key { start: range.start, number }, range.len())
    }

    fn finish(writes: &mut Writes<(), char>, range: Range<usize>, number: u64) -> Vec<char> {
        let (key, length) = key(&range, number);
        writes.finish(key, length)
    }

    #[test]
    fn write_is_blocked_until_all_predecessors_finish() {
        let mut writes = Writes::default();
        assert!(!writes.begin(0..10, 1, (), None));
        assert!(!writes.begin(10..20, 2, (), None));
        assert!(writes.add_barrier(3, [key(&(0..10), 1), key(&(10..20), 2)], []));
        assert!(writes.begin(5..15, 4, (), Some(3)));
        assert!(writes.begin(40..44, 5, (), Some(3)));
        assert!(!writes.is_next(4) && !writes.is_next(5));
        assert_eq!(writes.arrived(4, 'd'), None);
        assert_eq!(finish(&mut writes, 0..10, 1), []);
        assert_eq!(finish(&mut writes, 10..20, 2), ['d']);
        assert!(writes.is_next(4) && writes.is_next(5) && !writes.has_barrier(3));
        assert_eq!(writes.arrived(5, 'e'), Some('e'));
        assert_eq!(finish(&mut writes, 5..15, 4), []);
        assert_eq!(finish(&mut writes, 40..44, 5), []);
        assert_eq!((writes.owners().count(), writes.blocked.len(), writes.successors.len()), (0, 0, 0));
    }

    #[test]
    fn what_has_finished_holds_nothing() {
        let mut writes: Writes<(), char> = Writes::default();
        writes.begin(0..10, 1, (), None);
        finish(&mut writes, 0..10, 1);
        assert!(!writes.add_barrier(2, [key(&(0..10), 1)], [7]));
        assert!(!writes.begin(0..10, 3, (), Some(2)));
    }

    #[test]
    fn cancelled_write_keeps_the_order_of_its_neighbours() {
        let mut writes = Writes::default();
        writes.begin(0..10, 1, (), None);
        writes.add_barrier(2, [key(&(0..10), 1)], []);
        writes.begin(10..20, 3, (), Some(2));
        writes.add_barrier(4, [key(&(10..20), 3)], [2]);
        writes.begin(20..30, 5, (), Some(4));
        assert_eq!(writes.arrived(5, 'e'), None);
        assert_eq!(finish(&mut writes, 10..20, 3), []);
        assert!(!writes.is_next(5));
        assert_eq!(finish(&mut writes, 0..10, 1), ['e']);
    }

    /// A write of the property below: where, behind which barrier, and how far its bytes are.
    #[derive(Clone, Debug)]
    struct Piece {
        range: Range<usize>,
        copy: usize,
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
        /// Whatever the order in which first and last chunks come, no byte of a copy is in memory before all
        /// of the copies before it are, and so memory ends as if each copy had been made in its turn.
        #[test]
        fn copies_take_effect_in_their_order(
            copies in prop::collection::vec(prop::collection::vec((0_usize..40, 1_usize..24), 1..4), 1..12),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
            fails in prop::collection::vec(prop::bool::weighted(0.05), 48),
        ) {
            let mut writes: Writes<usize, usize> = Writes::default();
            let mut memory = [usize::MAX; 64];
            let mut expected = memory;
            let mut pieces: Vec<Piece> = Vec::new();
            let mut barrier = None;
            for (copy, ranges) in copies.into_iter().enumerate() {
                let before: Vec<_> = pieces
                    .iter()
                    .enumerate()
                    .filter(|(_, piece)| piece.copy + 1 == copy)
                    .map(|(number, piece)| key(&piece.range, number as u64))
                    .collect();
                let number = 1000 + copy as u64;
                barrier = if writes.add_barrier(number, before, barrier) { Some(number) } else { barrier };
                for (start, length) in ranges {
                    let (number, range) = (pieces.len(), start..start + length);
                    writes.begin(range.clone(), number as u64, number, barrier);
                    if !fails[number] {
                        expected[range.clone()].fill(copy);
                    }
                    pieces.push(Piece { range, copy, stage: Stage::Expected });
                }
            }
            let may_write = |pieces: &[Piece], number: usize| {
                let before = |piece: &&Piece| piece.copy < pieces[number].copy;
                // One that was given up will never be in memory.
                pieces.iter().filter(before).all(|piece| piece.stage == Stage::Finished)
            };
            let mut choices = choices.into_iter();
            loop {
                let open: Vec<usize> = (0..pieces.len())
                    .filter(|number| !matches!(pieces[*number].stage, Stage::Finished | Stage::Held))
                    .collect();
                if open.is_empty() {
                    break;
                }
                let number = choices.next().map_or(open[0], |choice| open[choice.index(open.len())]);
                let mut stored = match pieces[number].stage {
                    Stage::Expected => {
                        let is_next = writes.is_next(number as u64);
                        prop_assert_eq!(is_next, may_write(&pieces, number));
                        pieces[number].stage = if is_next { Stage::InPlace } else { Stage::Bounced };
                        Vec::new()
                    }
                    Stage::InPlace | Stage::Bounced if fails[number] => vec![number],
                    Stage::InPlace => {
                        memory[pieces[number].range.clone()].fill(pieces[number].copy);
                        vec![number]
                    }
                    Stage::Bounced => {
                        pieces[number].stage = Stage::Held;
                        writes.arrived(number as u64, number).into_iter().collect()
                    }
                    Stage::Held | Stage::Finished => unreachable!(),
                };
                while let Some(number) = stored.pop() {
                    if pieces[number].stage == Stage::Held {
                        prop_assert!(may_write(&pieces, number));
                        memory[pieces[number].range.clone()].fill(pieces[number].copy);
                    }
                    pieces[number].stage = Stage::Finished;
                    let (key, length) = key(&pieces[number].range, number as u64);
                    stored.extend(writes.finish(key, length));
                }
            }
            prop_assert!(pieces.iter().all(|piece| piece.stage == Stage::Finished));
            prop_assert_eq!(memory, expected);
            prop_assert!(writes.blocked.is_empty() && writes.successors.is_empty());
        }
    }
}
