//! Progress counter of the thread that handles commands.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count of beginnings and ends of work, in the worker: odd while its thread is at work, even while that
/// waits for something to do. One thread counts, any may read.
#[derive(Debug, Default)]
pub struct ProgressCounter(AtomicU64);

/// A count that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress(pub u64);

impl ProgressCounter {
    /// Does some work that the thread is expected to come back from.
    pub fn at_work<R>(&self, work: impl FnOnce() -> R) -> R {
        self.step();
        let result = work();
        self.step();
        result
    }

    /// The count now.
    pub fn now(&self) -> Progress {
        Progress(self.0.load(Ordering::Relaxed))
    }

    /// A load and a store: no other thread counts, and the thread that looks for work makes millions of steps
    /// a second.
    fn step(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

impl Progress {
    /// Whether the thread has been in the same piece of work since `earlier`.
    pub fn stands_still_since(self, earlier: Self) -> bool {
        self == earlier && self.0 % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_in_the_same_piece_of_work_stands_still() {
        let counter = ProgressCounter::default();
        let idle = counter.now();
        assert!(!counter.now().stands_still_since(idle), "it waits for work");
        let busy = counter.at_work(|| {
            let busy = counter.now();
            assert!(!busy.stands_still_since(idle) && counter.now().stands_still_since(busy));
            busy
        });
        assert!(!counter.now().stands_still_since(busy));
        counter.at_work(|| assert!(!counter.now().stands_still_since(busy), "it is the next one"));
    }
}
