//! Copies between this rank's GPU and staging memory.

use core::sync::atomic::{AtomicU64, Ordering};

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
    // SAFETY: as promised.
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
