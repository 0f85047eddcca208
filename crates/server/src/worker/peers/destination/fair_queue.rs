//! Fair queue of the copies that read from one worker.

use std::collections::VecDeque;

/// So many copies read of one worker at a time; others whose streams have come to them wait. It bounds the
/// memory that both sides need.
const MAX_ACTIVE_READS: usize = 4;

/// What begins a copy's reading.
pub(super) type Begin = Box<dyn FnOnce() + Send>;

/// Whose turn it is to read.
#[derive(Default)]
pub(super) struct FairQueue {
    reading: usize,
    waiting: VecDeque<Begin>,
}

impl FairQueue {
    /// A copy wants to read: it is given back where its turn has come, and waits otherwise.
    pub(super) fn take(&mut self, copy: Begin) -> Option<Begin> {
        if self.reading >= MAX_ACTIVE_READS {
            self.waiting.push_back(copy);
            return None;
        }
        self.reading += 1;
        Some(copy)
    }

    /// A copy has ended: the next one's turn has come, if one waits.
    pub(super) fn end(&mut self) -> Option<Begin> {
        let next = self.waiting.pop_front();
        self.reading -= usize::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn so_many_read_and_the_others_follow_in_order() {
        let (mut queue, last) = (FairQueue::default(), Arc::new(AtomicUsize::new(0)));
        let copy = |number: usize| -> Begin {
            let last = Arc::clone(&last);
            Box::new(move || last.store(number, Ordering::Relaxed))
        };
        let began = (1..=MAX_ACTIVE_READS + 2).filter_map(|number| queue.take(copy(number))).count();
        assert_eq!(began, MAX_ACTIVE_READS);
        for number in [MAX_ACTIVE_READS + 1, MAX_ACTIVE_READS + 2] {
            queue.end().expect("one waits")();
            assert_eq!(last.load(Ordering::Relaxed), number);
        }
        assert!((0..MAX_ACTIVE_READS).all(|_| queue.end().is_none()));
        assert!(queue.take(copy(0)).is_some());
    }
}
