//! Condition variable of a program, for the lock of `parking_lot`.
//!
//! `parking_lot` has one, but keeps all sleeping threads of the process in one table, by addresses in these
//! threads' memory. A forked child would have the table without the threads: what it looks up there, once
//! other threads have got that memory, has no end. This one has a queue of its own, and wakes as that of
//! `parking_lot` does: so many threads as it is told, those first that have slept longest, and none for no
//! reason.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

const ASLEEP: u32 = 0;
const NOTIFIED: u32 = 1;

/// Threads that sleep until another one notifies them.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Those that sleep, or are about to, in turn: each by a word of its own.
    queue: Mutex<VecDeque<Arc<AtomicU32>>>,
    /// How many they are, so that to notify none costs one load.
    length: AtomicUsize,
}

impl Condvar {
    /// One without waiters.
    pub const fn new() -> Self {
        Self { queue: Mutex::new(VecDeque::new()), length: AtomicUsize::new(0) }
    }

    /// Gives the lock up until it is notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.sleep(guard, None);
    }

    /// The same, at most for `timeout`; whether it was notified by then.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        self.sleep(guard, Some(timeout))
    }

    fn sleep<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) -> bool {
        // What does not fit is for ever.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let word = Arc::new(AtomicU32::new(ASLEEP));
        {
            // Under the lock of the caller, after that has looked at the state: who changes the state under
            // that lock and then notifies finds the thread in the queue, and sees its length.
            let mut queue = self.queue.lock();
            queue.push_back(Arc::clone(&word));
            self.length.store(queue.len(), Ordering::Relaxed);
        }
        MutexGuard::unlocked(guard, || {
            while word.load(Ordering::Acquire) == ASLEEP {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return self.withdraw(&word);
                }
                futex_wait(&word, ASLEEP, left);
            }
            true
        })
    }

    /// Takes a thread out of the queue that has slept long enough; whether it has been notified before.
    fn withdraw(&self, word: &Arc<AtomicU32>) -> bool {
        let mut queue = self.queue.lock();
        let Some(index) = queue.iter().position(|other| Arc::ptr_eq(other, word)) else { return true };
        queue.remove(index);
        self.length.store(queue.len(), Ordering::Relaxed);
        false
    }

    /// Wakes one of those that wait.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    fn notify(&self, threads: usize) {
        if self.length.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut queue = self.queue.lock();
        let count = threads.min(queue.len());
        let notified: VecDeque<_> = queue.drain(..count).collect();
        self.length.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        for word in notified {
            // What was done before is seen by the thread that wakes.
            word.store(NOTIFIED, Ordering::Release);
            futex_wake(&word);
        }
    }
}

/// Sleeps while `word` is `expected`, at most for `timeout`; may return for no reason.
fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // Interruptions, a word that has changed and the time that is over are all reasons for the caller to
    // look again. SAFETY: the word is valid while it is borrowed, and the time until the call returns; both
    // are only read.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, timeout) };
}

/// Wakes the sleeper of `word`.
fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is valid while it is borrowed, and the kernel takes its address alone.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_threads_wake_as_are_notified() {
        static STATE: Mutex<(usize, usize)> = Mutex::new((0, 0));
        static CHANGED: Condvar = Condvar::new();
        const THREADS: usize = 3;
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..300 {
                        let mut state = STATE.lock();
                        state.0 += 1;
                        CHANGED.wait(&mut state);
                        state.1 += 1;
                    }
                })
            })
            .collect();
        let mut notified = 0;
        while notified < THREADS * 300 {
            let state = STATE.lock();
            assert!(state.1 <= notified, "one has woken for no reason");
            if state.0 > notified {
                CHANGED.notify_one();
                notified += 1;
            }
            drop(state);
            std::thread::yield_now();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut state = STATE.lock();
        assert_eq!(*state, (notified, notified));
        assert!(!CHANGED.wait_for(&mut state, Duration::from_millis(1)));
        assert_eq!(CHANGED.length.load(Ordering::Relaxed), 0);
    }
}
