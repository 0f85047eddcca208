//! How do several threads copy memory?
//!
//! One thread copies about 11 GB/s, and eight of them 45 GB/s (measured on a machine with an H200), so the first stage
//! of the staging pipeline is divided. The threads are started when they are first needed and stay. On a machine with
//! several NUMA nodes each node has threads of its own, bound to it, and a copy is done by those of the node where the
//! program's memory lies: reading from another node's memory is what costs.
//!
//! A forked child has none of these threads and must not copy with them; it has no session either.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::{Condvar, Mutex};

use crate::numa;
use crate::threads;

/// What a thread takes at a time, in bytes: about 20 us of work, so that a thread which comes late is not waited for.
const PART: usize = 256 << 10;

/// The most threads for a node.
const MOST_THREADS: usize = 64;

/// A copy that several threads work on.
struct Job {
    to: *mut u8,
    from: *const u8,
    length: usize,
    next: AtomicUsize,
    /// Parts that are done.
    done: Mutex<usize>,
    all_done: Condvar,
}

// SAFETY: the memory is touched only for parts that were taken, and `copy` returns only when each part that exists is
// done; until then its caller vouches for the memory. No two threads take the same part.
unsafe impl Send for Job {}
// SAFETY: as above; the rest is shared through atomics and a lock.
unsafe impl Sync for Job {}

impl Job {
    fn parts(&self) -> usize {
        self.length.div_ceil(PART)
    }

    /// Copies parts until there are none left to take.
    fn work(&self) {
        let mut copied = 0;
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts() {
                break;
            }
            let start = part * PART;
            let length = PART.min(self.length - start);
            // SAFETY: the part was taken by this thread alone and lies within memory that the caller of `copy` vouches
            // for until all parts are done.
            unsafe { core::ptr::copy_nonoverlapping(self.from.add(start), self.to.add(start), length) };
            copied += 1;
        }
        if copied > 0 {
            let mut done = self.done.lock();
            *done += copied;
            if *done == self.parts() {
                self.all_done.notify_all();
            }
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
        let (jobs, waiting) = unbounded();
        Self { jobs, waiting, threads: Mutex::new(0) }
    }

    /// Makes sure that there are so many threads, as far as the system has them to give.
    fn grow(&self, wanted: usize, node: Option<usize>) -> usize {
        let mut threads = self.threads.lock();
        while *threads < wanted.min(MOST_THREADS) {
            let waiting = self.waiting.clone();
            let started = threads::spawn("copy", move || {
                if let Some(node) = node {
                    numa::bind_to(node);
                }
                while let Ok(job) = waiting.recv() {
                    job.work();
                }
            });
            if started.is_err() {
                break;
            }
            *threads += 1;
        }
        wanted.min(*threads)
    }
}

static POOLS: [std::sync::OnceLock<Pool>; numa::MOST_NODES + 1] =
    [const { std::sync::OnceLock::new() }; numa::MOST_NODES + 1];

/// Copies `length` bytes with up to `threads` threads, of which the calling one is the first.
///
/// # Safety
/// The bytes must be readable at `from` and writable at `to`, and may not overlap. Other threads may write to the source
/// meanwhile; then either value is copied.
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize, threads: usize) {
    let helpers = threads.min(length.div_ceil(PART)).min(cores()).saturating_sub(1);
    if helpers == 0 {
        // SAFETY: the caller vouches for both sides.
        unsafe { core::ptr::copy_nonoverlapping(from, to, length) };
        return;
    }
    let node = numa::node_of(from);
    let pool = POOLS[node.map_or(numa::MOST_NODES, |node| node)].get_or_init(Pool::new);
    let helpers = pool.grow(helpers, node);
    let job = Arc::new(Job {
        to,
        from,
        length,
        next: AtomicUsize::new(0),
        done: Mutex::new(0),
        all_done: Condvar::new(),
    });
    for _ in 0..helpers {
        // The queue cannot be closed while its receiving end is kept beside it.
        let _ = pool.jobs.send(Arc::clone(&job));
    }
    job.work();
    let mut done = job.done.lock();
    while *done < job.parts() {
        job.all_done.wait(&mut done);
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_whatever_the_number_of_threads() {
        let from: Vec<u8> = (0..3 * PART + 77).map(|at| (at % 251) as u8).collect();
        for (length, threads) in
            [(0, 4), (1, 4), (PART, 2), (PART + 1, 2), (from.len(), 1), (from.len(), 3), (from.len(), 999)]
        {
            let mut to = vec![0; from.len()];
            // SAFETY: both vectors are at least that long.
            unsafe { copy(to.as_mut_ptr(), from.as_ptr(), length, threads) };
            assert!(to[..length] == from[..length] && to[length..].iter().all(|byte| *byte == 0));
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
