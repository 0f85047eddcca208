//! Copies between this rank's GPU and staging memory: a ring, whose ranges are freed in the order in which
//! they were allocated.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

use crate::device::gpu::{GpuError, Lane};

/// A lane, and what its links share.
pub struct Copies {
    lane: Box<dyn Lane>,
    /// The last mark that was made, and the last one that was passed when that was looked at.
    made: u64,
    passed: u64,
    /// A word of staging memory, for the one change of a word of the GPU's memory that is under way.
    pub word: u64,
    /// Whether there is one.
    pub is_changing: bool,
}

/// A word of memory that this process and kernels share.
///
/// # Safety
/// There is one at this address, a multiple of 8, as long as it is used.
pub unsafe fn word<'a>(address: u64) -> &'a AtomicU64 {
    // SAFETY: the caller has a word at this address, a multiple of 8, as long as it is used.
    unsafe { &*(address as *const AtomicU64) }
}

impl Copies {
    /// With a word of staging memory.
    pub fn new(lane: Box<dyn Lane>, word: u64) -> Self {
        Self { lane, made: 0, passed: 0, word, is_changing: false }
    }

    /// To be called first by the thread that copies.
    pub fn enter(&mut self) {
        self.lane.enter();
    }

    /// Looks how far the lane has come.
    pub fn look(&mut self) {
        if self.passed < self.made {
            self.passed = self.lane.done();
        }
    }

    /// Whether the lane has nothing under way.
    pub fn is_idle(&self) -> bool {
        self.passed >= self.made
    }

    /// Whether a mark is passed.
    pub fn is_passed(&self, mark: u64) -> bool {
        mark <= self.passed
    }

    /// Copies; the mark behind it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<u64, GpuError> {
        self.lane.copy(to, from, bytes)?;
        self.mark()
    }

    /// The same from staging memory.
    ///
    /// # Errors
    /// What the driver says.
    pub fn copy_from_host(&mut self, to: u64, from: u64, bytes: u64) -> Result<u64, GpuError> {
        self.lane.copy_from_host(to, from, bytes)?;
        self.mark()
    }

    /// Writes a word of the GPU's memory; the mark behind it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn set(&mut self, to: u64, value: u64) -> Result<u64, GpuError> {
        self.lane.set(to, value)?;
        self.mark()
    }

    fn mark(&mut self) -> Result<u64, GpuError> {
        self.made = self.lane.mark()?;
        Ok(self.made)
    }

    /// What was copied to the word of staging memory.
    pub fn copied_word(&self) -> u64 {
        // SAFETY: the word lies in memory that is freed behind the thread of the links.
        unsafe { word(self.word) }.load(Ordering::Acquire)
    }
}

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
