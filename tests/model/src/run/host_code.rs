//! What threads and host functions do with memory.

use crate::interpret::{key_of_round, store_words};
use crate::program::{Region, Work};
use core::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A place where memory held something else than the model says.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The operation that looked; the number of operations for the comparison at the end.
    pub op: usize,
    /// The buffer.
    pub buffer: usize,
    /// The word with the first wrong byte.
    pub offset: usize,
    /// What the model says.
    pub expected: Vec<u8>,
    /// What was there.
    pub found: Vec<u8>,
    /// Wrong bytes altogether.
    pub wrong: usize,
}

/// What was found wrong so far.
pub type Findings = Arc<Mutex<Vec<Mismatch>>>;

/// Compares a linear region with what it should hold.
pub fn compare(findings: &Findings, op: usize, region: &Region, found: &[u8], expected: &[u8]) {
    if found == expected {
        return;
    }
    let differ = |(index, (found, expected)): (usize, (&u8, &u8))| (found != expected).then_some(index);
    let mut wrong = found.iter().zip(expected).enumerate().filter_map(differ);
    let Some(first) = wrong.next() else { return };
    // The word of the buffer, as far as the region has it.
    let word = (region.offset + first) & !3;
    let start = word.max(region.offset) - region.offset;
    let end = (word + 4 - region.offset).min(found.len());
    let mismatch = Mismatch {
        op,
        buffer: region.buffer,
        offset: region.offset + start,
        expected: expected[start..end].to_vec(),
        found: found[start..end].to_vec(),
        wrong: 1 + wrong.count(),
    };
    if let Ok(mut findings) = findings.lock() {
        findings.push(mismatch);
    }
}

/// Code of the host over a region, once or in each launch of a graph.
pub struct HostCall {
    /// The operation, for reports.
    pub op: usize,
    /// What it does.
    pub work: Work,
    /// Where the region starts.
    pub start: *mut u8,
    /// What a read finds, in each round.
    pub expected: Vec<Arc<[u8]>>,
    /// Rounds so far.
    pub round: AtomicU32,
    /// Where mismatches go.
    pub findings: Findings,
}

impl HostCall {
    /// Does it.
    ///
    /// # Safety
    /// The region is memory, and nobody else uses it in a way that conflicts.
    pub unsafe fn call(&self) {
        let round = self.round.fetch_add(1, Ordering::Relaxed);
        match &self.work {
            Work::HostRead { from } => {
                // SAFETY: the caller vouches that the region is memory of this width, which nobody writes
                // meanwhile.
                let found = unsafe { core::slice::from_raw_parts(self.start, from.width) };
                if let Some(expected) = self.expected.get(round as usize) {
                    compare(&self.findings, self.op, from, found, expected);
                }
            }
            Work::HostWrite { to, key } => {
                // SAFETY: the caller vouches that the region is memory of this width, which nobody else uses
                // meanwhile.
                let bytes = unsafe { core::slice::from_raw_parts_mut(self.start, to.width) };
                store_words(bytes, key_of_round(*key, round));
            }
            _ => {}
        }
    }
}

/// What a stream calls.
///
/// # Safety
/// `data` is a `HostCall` whose region is free for it.
pub unsafe extern "C" fn in_stream(data: *mut c_void) {
    // SAFETY: the stream passes on the `HostCall` that it was given, whose region is free for it.
    unsafe { (*data.cast::<HostCall>()).call() }
}
