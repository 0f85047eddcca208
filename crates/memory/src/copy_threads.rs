//! Thread pool for parallel memory copies.
//!
//! One thread copies about 11 GB/s, and eight of them 45 GB/s (measured on a machine with an H200), so the
//! first stage of the staging pipeline is divided. The threads are started when they are first needed and
//! stay. On a machine with several NUMA nodes each node has threads of its own, bound to it, and a copy is
//! done by those of the node where the program's memory lies: reading from another node's memory is what
//! costs.
//!
//! A forked child has none of these threads: it must not copy with them before it has [forgotten](after_fork) them.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use parking_lot::Mutex;

use causeway_sync::Latch;
use causeway_sync::queue::{Receiver, Sender, queue};
use causeway_sync::spin::{self, cores};
use causeway_sync::threads;

use crate::{nontemporal, numa};

/// The most that a thread takes at a time, in bytes: about 20 us of work, so that a thread which comes late
/// is not waited for.
pub const MAX_SEGMENT_BYTES: usize = 256 << 10;

/// The least, about 3 us: what it costs to divide the work shows below that.
const MIN_SEGMENT_BYTES: usize = 32 << 10;

/// The most threads for a node.
const MAX_THREADS: usize = 64;

/// Whoever has work calls so many threads, and each of these [`CALLED_BY_EACH`] more: to wake one that sleeps
/// takes as long as to copy 50 KiB, and sixteen of them one after the other longer than the copy.
const CALLED_FIRST: usize = 4;
const CALLED_BY_EACH: usize = 2;

/// Work that is cut into parts.
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    parts: usize,
    /// Threads that are to be called.
    uncalled: AtomicUsize,
    next: AtomicUsize,
    /// Opens when all parts are done.
    done: Latch,
}

// SAFETY: the work may be shared by threads, and is looked at only for a part that was taken; `share` returns
// only when each part is done, and until then it borrows the work.
unsafe impl Send for Job {}
// SAFETY: the work is `Sync`, and the rest is shared through an atomic and a lock.
unsafe impl Sync for Job {}

impl Job {
    /// Whether one more thread is to be called, which the caller does. Nobody is when there are no parts left
    /// to take.
    fn take_call(&self) -> bool {
        let fewer = |uncalled: usize| uncalled.checked_sub(1);
        self.next.load(Ordering::Relaxed) < self.parts
            && self.uncalled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }

    /// Does parts until there are none left to take.
    fn work(&self) {
        let mut count = 0;
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts {
                break;
            }
            // SAFETY: the part is not done yet, so `share` has not returned and the work is still borrowed.
            unsafe { (*self.work)(part) };
            count += 1;
        }
        self.done.done(count);
    }

    /// Waits until every part is done.
    fn wait(&self) {
        // What is left is less than a part for each thread.
        if !spin::until(spin::between_work(), || self.done.is_open()) {
            self.done.wait();
        }
    }
}

/// The threads of one node.
struct Pool {
    jobs: Sender<Arc<Job>>,
    waiting: Receiver<Arc<Job>>,
    threads: Mutex<usize>,
}

impl Pool {
    fn new() -> Self {
        let (jobs, waiting) = queue();
        Self { jobs, waiting, threads: Mutex::new(0) }
    }

    /// Calls up to `max` threads to a job.
    fn call(&self, job: &Arc<Job>, max: usize) {
        for _ in 0..max {
            if !job.take_call() {
                return;
            }
            // The queue cannot be closed while its receiving end is kept beside it.
            let _ = self.jobs.send(Arc::clone(job));
        }
    }

    /// Makes sure that there are so many threads, as far as the system has them to give.
    fn grow(&'static self, required: usize, node: Option<usize>) -> usize {
        let mut threads = self.threads.lock();
        while *threads < required.min(MAX_THREADS) {
            let started = threads::spawn("copy", move || {
                if let Some(node) = node {
                    numa::bind_to(node);
                }
                while let Some(job) = spin::receive(&self.waiting) {
                    self.call(&job, CALLED_BY_EACH);
                    job.work();
                }
            });
            if started.is_err() {
                break;
            }
            *threads += 1;
        }
        required.min(*threads)
    }
}

/// The pools that there are, none of which is ever freed.
static POOLS: [AtomicPtr<Pool>; numa::MAX_NODES + 1] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; numa::MAX_NODES + 1];

/// The pool of a node, or the one for all.
fn pool_of(node: Option<usize>) -> &'static Pool {
    let entry = &POOLS[node.unwrap_or(numa::MAX_NODES)];
    let mut known = entry.load(Ordering::Acquire);
    if known.is_null() {
        let new = Box::into_raw(Box::new(Pool::new()));
        match entry.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => known = new,
            Err(first) => {
                // SAFETY: it was made just now, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                known = first;
            }
        }
    }
    // SAFETY: it came from `Box::into_raw`, and is never freed once it is in its place.
    unsafe { &*known }
}

/// Forgets all threads in a forked child, in which they do not exist: others are started when they are needed. No
/// copy may be in progress.
pub fn after_fork() {
    // Not freed: a thread of the parent may have held a lock in it.
    POOLS.iter().for_each(|pool| pool.store(core::ptr::null_mut(), Ordering::Release));
}

/// Does `work` for each number below `parts`, on up to `threads` threads, of which the calling one is the
/// first; the others are near the memory at `near_address`. The work must not panic.
pub fn share(parts: usize, threads: usize, near_address: *const u8, work: impl Fn(usize) + Sync) {
    let helpers = threads.min(parts).min(cores()).saturating_sub(1);
    if helpers == 0 {
        (0..parts).for_each(work);
        return;
    }
    let node = numa::node_of(near_address);
    let pool = pool_of(node);
    let helpers = pool.grow(helpers, node);
    let work: *const (dyn Fn(usize) + Sync + '_) = &raw const work;
    // SAFETY: only the lifetime changes; nobody looks at the work after this function has returned, see
    // `Job`.
    let work: *const (dyn Fn(usize) + Sync) = unsafe { core::mem::transmute(work) };
    let (uncalled, next) = (AtomicUsize::new(helpers), AtomicUsize::new(0));
    let job = Arc::new(Job { work, parts, uncalled, next, done: Latch::new(parts) });
    pool.call(&job, CALLED_FIRST);
    job.work();
    job.wait();
}

/// Bytes of the parts into which a copy by so many threads is divided: several for each thread, so that none
/// is waited for long.
fn part_bytes(length: usize, threads: usize) -> usize {
    length.div_ceil(2 * threads.max(1)).next_multiple_of(4096).clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES)
}

/// Memory that several threads copy between, each its own part.
struct Ends(*mut u8, *const u8);

// SAFETY: the addresses are used by `copy` alone, whose caller vouches for them, and no two threads write to
// one place.
unsafe impl Sync for Ends {}

/// Copies `length` bytes with up to `threads` threads, of which the calling one is the first.
///
/// # Safety
/// The bytes must be readable at `from` and writable at `to`, and may not overlap. Other threads may write to
/// the source meanwhile; then either value is copied.
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize, threads: usize) {
    let plainly = |to: *mut u8, from: *const u8, length| {
        // SAFETY: a part of the ranges, of which the caller has one readable and the other writable, without
        // overlap.
        unsafe { core::ptr::copy_nonoverlapping(from, to, length) };
    };
    copy_by(plainly, to, from, length, threads);
}

/// The same for bytes that a device reads next, [past the caches](nontemporal).
///
/// # Safety
/// As for [`copy`].
pub unsafe fn copy_nontemporal(to: *mut u8, from: *const u8, length: usize, threads: usize) {
    let nontemporal = |to: *mut u8, from: *const u8, length| {
        // SAFETY: a part of the ranges, of which the caller has one readable and the other writable, without
        // overlap.
        unsafe { nontemporal::copy(to, from, length) };
    };
    copy_by(nontemporal, to, from, length, threads);
}

/// Has `copy` called for all parts of a copy.
fn copy_by(
    copy: impl Fn(*mut u8, *const u8, usize) + Sync,
    to: *mut u8,
    from: *const u8,
    length: usize,
    threads: usize,
) {
    let ends = Ends(to, from);
    let bytes = part_bytes(length, threads);
    share(length.div_ceil(bytes), threads, from, |part| {
        let Ends(to, from) = &ends;
        let start = part * bytes;
        copy(to.wrapping_add(start), from.wrapping_add(start), bytes.min(length - start));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = MAX_SEGMENT_BYTES;

    #[test]
    fn parts_are_neither_too_small_nor_too_large() {
        assert_eq!(
            [1, 256 << 10, 1 << 20, 16 << 20].map(|length| part_bytes(length, 4)),
            [MIN_SEGMENT_BYTES, MIN_SEGMENT_BYTES, 128 << 10, MAX_SEGMENT_BYTES]
        );
        assert_eq!(part_bytes(100_000, 1), 53_248, "whole pages");
    }

    #[test]
    fn every_byte_is_copied_whatever_the_number_of_threads() {
        let from: Vec<u8> = (0..3 * PART + 77).map(|at| (at % 251) as u8).collect();
        for (length, threads) in
            [(0, 4), (1, 4), (PART, 2), (PART + 1, 2), (from.len(), 1), (from.len(), 3), (from.len(), 999)]
        {
            let mut to = vec![0; from.len()];
            for copy in [copy, copy_nontemporal] {
                to.fill(0);
                // SAFETY: both vectors are at least that long.
                unsafe { copy(to.as_mut_ptr(), from.as_ptr(), length, threads) };
                assert!(to[..length] == from[..length] && to[length..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn several_copies_at_once_do_not_mix() {
        std::thread::scope(|scope| {
            for number in 0..4_u8 {
                scope.spawn(move || {
                    let from = vec![number; 5 * PART + 3];
                    let mut to = vec![99; from.len()];
                    // SAFETY: both vectors are that long.
                    unsafe { copy(to.as_mut_ptr(), from.as_ptr(), from.len(), 3) };
                    assert!(to == from);
                });
            }
        });
    }
}
