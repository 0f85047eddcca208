//! Which copies read of one worker, and which wait until others have ended?

use super::Reader;
use super::copy::Copy;
use std::collections::VecDeque;
use std::sync::Arc;

/// So many copies read of one worker at a time; others whose streams have come to them wait. It bounds the memory that
/// both sides need.
const MOST_READING: usize = 4;

/// Whose turn it is to read.
#[derive(Default)]
pub(super) struct Turns {
    reading: usize,
    waiting: VecDeque<Arc<Copy>>,
}

impl Reader {
    /// Lets a copy begin to read, now or when another one has ended.
    pub(super) fn take_turn(&self, copy: Arc<Copy>) {
        let mut turns = self.turns.lock();
        if turns.reading >= MOST_READING {
            turns.waiting.push_back(copy);
            return;
        }
        turns.reading += 1;
        drop(turns);
        copy.go_on();
    }

    /// A copy has ended: the next one's turn has come.
    pub(super) fn give_turn(&self) {
        let next = {
            let mut turns = self.turns.lock();
            let next = turns.waiting.pop_front();
            turns.reading -= usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            self.engine.peers.steps.run(move || next.go_on());
        }
    }
}
