//! Threads that sleep until a condition holds which others change without taking a lock.
//!
//! The name and the shape are those of D. P. Reed and R. K. Kanodia, "Synchronization with Eventcounts and Sequencers",
//! Communications of the ACM 22 (1979).

use core::sync::atomic::Ordering;
use std::time::Duration;

use crate::face::{AtomicU32, Condvar, Mutex, MutexGuard, fence, wait_for};

/// Counts events; who waits names the count that it has seen.
#[derive(Debug)]
pub struct EventCount {
    count: AtomicU32,
    /// Threads that wait, or are about to.
    waiters: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

/// The count at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u32);

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl EventCount {
    /// Nothing has happened.
    pub fn new() -> Self {
        let (count, waiters) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { count, waiters, lock: Mutex::new(()), changed: Condvar::new() }
    }

    /// To be asked for before the condition is looked at: what changes from here on is not slept over.
    #[inline]
    pub fn key(&self) -> Key {
        Key(self.count.load(Ordering::Acquire))
    }

    /// Sleeps until something has happened since `key`.
    pub fn wait(&self, key: Key) {
        self.wait_by(key, |held| {
            // Woken by an event, or for no reason: the caller looks at its condition again in any case.
            self.changed.wait(held);
            true
        });
    }

    /// Sleeps until something has happened since `key`, at most for `timeout`; whether something has.
    pub fn wait_for(&self, key: Key, timeout: Duration) -> bool {
        self.wait_by(key, |held| wait_for(&self.changed, held, timeout))
    }

    fn wait_by(&self, key: Key, sleep: impl FnOnce(&mut MutexGuard<'_, ()>) -> bool) -> bool {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        // Either this thread sees the event's count, or who counts it sees the waiter.
        fence(Ordering::SeqCst);
        let mut held = self.lock.lock();
        let has_happened = self.key() != key || sleep(&mut held);
        drop(held);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        has_happened
    }

    /// Something has happened, and was made visible before: wakes everybody who waits.
    #[inline]
    pub fn notify_all(&self) {
        self.count.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) > 0 {
            // Who has looked at the count and holds the lock is not asleep yet; once the lock is free it is.
            drop(self.lock.lock());
            self.changed.notify_all();
        }
    }
}
