//! How many steps has the thread that handles commands made?

use std::sync::atomic::{AtomicU64, Ordering};

/// A count of beginnings and ends of work, in the worker: odd while its thread is at work, even while that
/// waits for something to do. One thread counts, any may read.
#[derive(Debug, Default)]
pub struct Pulse(AtomicU64);

/// A count that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat(pub u64);

impl Pulse {
    /// Does some work that the thread is expected to come back from.
    pub fn at_work<R>(&self, work: impl FnOnce() -> R) -> R {
        self.step();
        let result = work();
        self.step();
        result
    }

    /// The count now.
    pub fn beat(&self) -> Beat {
        Beat(self.0.load(Ordering::Relaxed))
    }

    /// A load and a store: no other thread counts, and the thread that looks for work makes millions of steps
    /// a second.
    fn step(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

impl Beat {
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
        let pulse = Pulse::default();
        let idle = pulse.beat();
        assert!(!pulse.beat().stands_still_since(idle), "it waits for work");
        let busy = pulse.at_work(|| {
            let busy = pulse.beat();
            assert!(!busy.stands_still_since(idle) && pulse.beat().stands_still_since(busy));
            busy
        });
        assert!(!pulse.beat().stands_still_since(busy));
        pulse.at_work(|| assert!(!pulse.beat().stands_still_since(busy), "it is the next one"));
    }
}
