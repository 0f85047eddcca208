//! Ring of staging memory, whose ranges are freed in the order in which they were allocated. Pure.

use std::collections::VecDeque;

/// Ranges begin at multiples of this.
const ALIGNMENT: u64 = 16;

/// The ring.
#[derive(Debug)]
pub struct Ring {
    start: u64,
    bytes: u64,
    /// Where each range begins, and its bytes.
    used: VecDeque<(u64, u64)>,
}

impl Ring {
    /// Of so many bytes at this address.
    pub fn new(start: u64, bytes: u64) -> Self {
        Self { start, bytes, used: VecDeque::new() }
    }

    /// The address of so many bytes behind the last ones; `None` where they have to wait for the first ones
    /// to be freed. More than the ring has are never given.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        let at = match (self.used.front(), self.used.back()) {
            (Some((first, _)), Some((last, length))) => {
                let end = last + length;
                let is_wrapped = last < first;
                if is_wrapped {
                    (bytes <= first - end).then_some(end)
                } else if bytes <= self.bytes - end {
                    Some(end)
                } else {
                    (bytes <= *first).then_some(0)
                }
            }
            _ => (bytes <= self.bytes).then_some(0),
        }?;
        self.used.push_back((at, bytes));
        Some(self.start + at)
    }

    /// Frees the range that was allocated first.
    pub fn free_first(&mut self) {
        self.used.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_an_empty_ring_gives_all(steps in proptest::collection::vec(0..600_u64, 1..200)) {
            let mut ring = Ring::new(4096, 1024);
            let mut held: VecDeque<(u64, u64)> = VecDeque::new();
            for step in steps {
                if step < 200 {
                    ring.free_first();
                    held.pop_front();
                } else if let Some(at) = ring.allocate(step) {
                    prop_assert!(at >= 4096 && at + step <= 4096 + 1024 && at.is_multiple_of(ALIGNMENT));
                    prop_assert!(held.iter().all(|(other, length)| at >= other + length || at + step <= *other));
                    held.push_back((at, step));
                } else {
                    prop_assert!(!held.is_empty());
                }
            }
            held.iter().for_each(|_| ring.free_first());
            prop_assert_eq!(ring.allocate(1024), Some(4096));
            prop_assert_eq!(ring.allocate(1), None);
        }
    }
}
