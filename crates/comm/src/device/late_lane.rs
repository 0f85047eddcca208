//! Lane of a proxy for tests: its copies are made when the test says so.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use super::gpu::{GpuError, Lane};
use super::remote::lanes::word;
use crate::locks::{Mutex, rank};

/// Copies that are made when the test says so.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// To an address, from one or of a value.
    pub(super) queued: VecDeque<(u64, Result<u64, u64>)>,
    pub(super) marks: u64,
    pub(super) passed: u64,
}

/// A lane whose owner is the test, too.
#[derive(Clone, Default)]
pub(super) struct LateLane(pub(super) Arc<Mutex<rank::Leaf, Late>>);

impl LateLane {
    /// Makes the copies.
    pub(super) fn run(&self) {
        let mut late = self.0.lock();
        for (to, from) in core::mem::take(&mut late.queued) {
            let value = match from {
                // SAFETY: a word of the test's memory.
                Ok(from) => unsafe { word(from) }.load(Ordering::Relaxed),
                Err(value) => value,
            };
            // SAFETY: a word of the test's memory.
            unsafe { word(to) }.store(value, Ordering::Relaxed);
        }
        late.passed = late.marks;
    }
}

impl Lane for LateLane {
    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        assert_eq!(bytes, 8);
        self.0.lock().queued.push_back((to, Ok(from)));
        Ok(())
    }

    fn set(&mut self, to: u64, value: u64) -> Result<(), GpuError> {
        self.0.lock().queued.push_back((to, Err(value)));
        Ok(())
    }

    fn mark(&mut self) -> Result<u64, GpuError> {
        let mut late = self.0.lock();
        late.marks += 1;
        Ok(late.marks)
    }

    fn done(&self) -> u64 {
        self.0.lock().passed
    }
}
