//! Handshake slots: eviction of unfinished handshakes when all slots are in use.
//!
//! Anybody can connect and say nothing, so slots for that are few and are shared by source: when none is
//! left, the oldest unfinished caller of the source that holds most gives way, the newcomer counted among its
//! own. So a source that holds fewer slots than others keeps them, and among callers of one source the newest have
//! the most time.

use std::collections::{BTreeMap, HashMap};

use super::source::Source;

/// The number of a slot; later ones are greater.
pub type Number = u64;

/// How far a caller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not said yet what it wants.
    Unfinished,
    /// It has, and what it wants is being done, which nobody may interrupt.
    Finished,
    /// Its connection is being ended, and its thread with it.
    Closing,
}

/// The slots of one kind of callers.
#[derive(Debug)]
pub struct HandshakeSlots {
    capacity: usize,
    next: Number,
    holders: BTreeMap<Number, (Source, Stage)>,
}

/// What it means to let somebody in.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The newcomer's slot.
    pub number: Number,
    /// The slot whose holder has to go for it.
    pub evicted: Option<Number>,
}

impl HandshakeSlots {
    /// So many slots, all of them free.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, next: 0, holders: BTreeMap::new() }
    }

    fn count(&self, is_counted: impl Fn(Stage) -> bool) -> usize {
        self.holders.values().filter(|(_, stage)| is_counted(*stage)).count()
    }

    /// Whether one more can come in now. Those who give way are there until their threads have ended, and
    /// they are as many as there are slots at most.
    pub fn has_capacity(&self) -> bool {
        let closing = self.count(|stage| stage == Stage::Closing);
        let is_free = self.holders.len() - closing < self.capacity;
        is_free || (closing < self.capacity && self.count(|stage| stage == Stage::Unfinished) > 0)
    }

    /// Whether nobody has a slot.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// All who have not said yet what they want have to go.
    pub fn evict_all(&mut self) {
        for (_, stage) in self.holders.values_mut().filter(|(_, stage)| *stage == Stage::Unfinished) {
            *stage = Stage::Closing;
        }
    }

    /// Lets somebody in, unless there is no room.
    pub fn enter(&mut self, source: Source) -> Option<Entry> {
        if !self.has_capacity() {
            return None;
        }
        let is_full = self.count(|stage| stage != Stage::Closing) >= self.capacity;
        let evicted = if is_full { Some(self.select_victim(source)?) } else { None };
        if let Some((_, stage)) = evicted.and_then(|number| self.holders.get_mut(&number)) {
            *stage = Stage::Closing;
        }
        let number = self.next;
        self.next += 1;
        self.holders.insert(number, (source, Stage::Unfinished));
        Some(Entry { number, evicted })
    }

    /// The oldest unfinished caller of the source that would hold most; of several such sources the oldest.
    fn select_victim(&self, newcomer: Source) -> Option<Number> {
        let mut held = HashMap::from([(newcomer, 1)]);
        for (source, stage) in self.holders.values() {
            if *stage != Stage::Closing {
                *held.entry(*source).or_insert(0) += 1;
            }
        }
        let unfinished = self.holders.iter().filter(|(_, (_, stage))| *stage == Stage::Unfinished);
        // The first of those that are equal: the oldest.
        unfinished.rev().max_by_key(|(_, (source, _))| held[source]).map(|(number, _)| *number)
    }

    /// A caller has said what it wants and is to be served; false when it has to give way.
    pub fn finish(&mut self, number: Number) -> bool {
        match self.holders.get_mut(&number) {
            Some((_, stage @ (Stage::Unfinished | Stage::Finished))) => {
                *stage = Stage::Finished;
                true
            }
            _ => false,
        }
    }

    /// A caller's slot is free again.
    pub fn leave(&mut self, number: Number) {
        self.holders.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(number: u8) -> Source {
        Source::User(number.into())
    }

    #[test]
    fn a_crowd_of_one_source_displaces_only_itself() {
        let mut slots = HandshakeSlots::new(4);
        let honest = slots.enter(source(1)).unwrap().number;
        for round in 0..100 {
            let entry = slots.enter(source(0)).unwrap();
            assert_eq!(entry.evicted.is_some(), round >= 3);
            assert_ne!(entry.evicted, Some(honest));
            if let Some(number) = entry.evicted {
                slots.leave(number);
            }
        }
        // One more honest caller displaces one of the crowd, and so does a third source's.
        let entry = slots.enter(source(1)).unwrap();
        assert!(entry.evicted.is_some_and(|number| number != honest));
        assert!(slots.finish(honest) && !slots.finish(entry.evicted.unwrap()));
    }

    #[test]
    fn the_oldest_of_a_crowd_goes_first_and_the_newest_keeps_its_place() {
        let mut slots = HandshakeSlots::new(3);
        let numbers: Vec<_> = (0..3).map(|_| slots.enter(source(0)).unwrap().number).collect();
        assert_eq!(slots.enter(source(0)).unwrap().evicted, Some(numbers[0]));
        assert!(slots.finish(numbers[1]));
        assert_eq!(slots.enter(source(0)).unwrap().evicted, Some(numbers[2]), "the second is finished");
    }

    #[test]
    fn nobody_comes_in_while_as_many_as_there_are_places_have_not_ended_yet() {
        let mut slots = HandshakeSlots::new(2);
        let entries: Vec<_> = (0..4).map(|_| slots.enter(source(0)).unwrap()).collect();
        assert!(!slots.has_capacity() && slots.enter(source(1)).is_none());
        slots.leave(entries[2].evicted.unwrap());
        assert!(slots.has_capacity() && slots.enter(source(1)).is_some());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Enter(u8),
        Finish(prop::sample::Index),
        Leave(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0_u8..4).prop_map(Step::Enter),
            1 => any::<prop::sample::Index>().prop_map(Step::Finish),
            2 => any::<prop::sample::Index>().prop_map(Step::Leave),
        ];
        proptest::collection::vec(step, 0..200)
    }

    /// The same as the slots, as plainly as can be: everybody in the order of coming.
    #[derive(Default)]
    struct Model {
        callers: Vec<(Number, u8, Stage)>,
    }

    impl Model {
        fn held_by(&self, of: u8, newcomer: u8) -> usize {
            let held = |caller: &&(Number, u8, Stage)| caller.1 == of && caller.2 != Stage::Closing;
            self.callers.iter().filter(held).count() + usize::from(of == newcomer)
        }

        /// Who has to go, if somebody of `newcomer` comes in.
        fn victim(&self, newcomer: u8) -> Option<Number> {
            let unfinished = self.callers.iter().filter(|caller| caller.2 == Stage::Unfinished);
            let capacity = unfinished.clone().map(|caller| self.held_by(caller.1, newcomer)).max()?;
            unfinished
                .clone()
                .find(|caller| self.held_by(caller.1, newcomer) == capacity)
                .map(|caller| caller.0)
        }

        fn count(&self, is_giving_way: bool) -> usize {
            self.callers.iter().filter(|caller| (caller.2 == Stage::Closing) == is_giving_way).count()
        }
    }

    proptest! {
        #[test]
        fn places_do_what_the_model_does(capacity in 1_usize..8, steps in steps()) {
            let (mut slots, mut model) = (HandshakeSlots::new(capacity), Model::default());
            for step in steps {
                match step {
                    Step::Enter(from) => {
                        let had_room = slots.has_capacity();
                        let entry = slots.enter(source(from));
                        prop_assert_eq!(had_room, entry.is_some());
                        let (held, going) = (model.count(false), model.count(true));
                        let Some(entry) = entry else {
                            prop_assert!(held == capacity && (going == capacity || model.victim(from).is_none()));
                            continue;
                        };
                        let expected = if held < capacity { None } else { model.victim(from) };
                        prop_assert_eq!(entry.evicted, expected);
                        for caller in &mut model.callers {
                            if Some(caller.0) == expected {
                                caller.2 = Stage::Closing;
                            }
                        }
                        model.callers.push((entry.number, from, Stage::Unfinished));
                    }
                    Step::Finish(index) if !model.callers.is_empty() => {
                        let index = index.index(model.callers.len());
                        let caller = &mut model.callers[index];
                        let goes_on = caller.2 != Stage::Closing;
                        if goes_on {
                            caller.2 = Stage::Finished;
                        }
                        prop_assert_eq!(slots.finish(caller.0), goes_on);
                    }
                    Step::Leave(index) if !model.callers.is_empty() => {
                        let caller = model.callers.remove(index.index(model.callers.len()));
                        slots.leave(caller.0);
                    }
                    Step::Finish(_) | Step::Leave(_) => {}
                }
                prop_assert!(model.count(false) <= capacity && model.count(true) <= capacity);
            }
        }
    }
}
