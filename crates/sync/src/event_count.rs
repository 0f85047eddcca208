//! Event counts: threads that sleep until a condition holds which others change without taking a lock; among
//! them one that polls, and one that sleeps in `poll` on an eventfd.
//!
//! The name and the shape are those of D. P. Reed and R. K. Kanodia, "Synchronization with Eventcounts and
//! Sequencers", Communications of the ACM 22 (1979).
//!
//! A poller has no descriptor to sleep on, so it sleeps for short times while there is something to look for
//! ([`PollPause`]). Who brings something urgent calls it out of such a pause, since the pauses grow; who
//! brings anything else need not: it is looked for soon enough. With nothing to look for it sleeps until
//! either comes.
//!
//! Waking a thread that sleeps on an eventfd ([`EventfdWake`]) takes 50 to 100 us on a virtual machine whose
//! processor has been released meanwhile. Called when the wait begins, it is awake when the peer speaks;
//! woken by what the peer says, it would be late by that.

use core::sync::atomic::Ordering;
use std::io;
#[cfg(not(any(loom, shuttle)))]
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use crate::face::{
    AtomicBool, AtomicU32, Condvar, Event, Mutex, MutexGuard, Readable, fence, poll_either, wait_for,
};

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

/// Where the thread sleeps, and how it is woken.
#[derive(Debug, Default)]
pub struct PollPause {
    calls: EventCount,
    /// The thread has nothing to look for, or is about to find that.
    is_idle: AtomicBool,
}

impl PollPause {
    /// The thread is awake.
    pub fn new() -> Self {
        Self { calls: EventCount::new(), is_idle: AtomicBool::new(false) }
    }

    /// To be asked for before the thread looks: no call from here on is slept over.
    #[inline]
    pub fn key(&self) -> Key {
        self.calls.key()
    }

    /// Sleeps for `interval`, or until somebody has [called](Self::call) since `key`; whether somebody has.
    pub fn pause(&self, key: Key, interval: Duration) -> bool {
        self.calls.wait_for(key, interval)
    }

    /// Sleeps until something is [brought](Self::bring) or somebody has called since `key`, but not when there is
    /// something to look for.
    pub fn idle_unless(&self, key: Key, has_some: impl FnOnce() -> bool) {
        self.is_idle.store(true, Ordering::Relaxed);
        // Either `has_some` sees what is brought, or who brings it sees that the thread is idle.
        fence(Ordering::SeqCst);
        if !has_some() {
            self.calls.wait(key);
        }
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Something to look for has been made visible: an idle thread begins to look. A fence and a load where it looks
    /// already.
    #[inline]
    pub fn bring(&self) {
        fence(Ordering::SeqCst);
        if self.is_idle.load(Ordering::Relaxed) {
            self.call();
        }
    }

    /// The thread looks at once, whether it is idle or pauses.
    #[inline]
    pub fn call(&self) {
        self.calls.notify_all();
    }
}

/// How long a thread that cannot be woken any more leaves its descriptor alone.
const CLOSED_PAUSE: Duration = Duration::from_millis(1);

/// Wakes a thread that sleeps on a descriptor, by an eventfd that it polls as well.
#[derive(Debug)]
pub struct EventfdWake {
    event: Event,
    is_parked: AtomicBool,
}

/// What has woken a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeReason {
    /// The descriptor has something to read or has ended, or a signal came: it is to be looked at.
    Descriptor,
    /// Somebody has woken it.
    Woken,
    /// The time is over.
    Time,
}

impl EventfdWake {
    /// Makes the eventfd.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: Event::new()?, is_parked: AtomicBool::new(false) })
    }

    /// The descriptor that this takes.
    #[cfg(not(any(loom, shuttle)))]
    pub fn descriptor(&self) -> RawFd {
        self.event.readable().as_raw_fd()
    }

    /// What becomes readable when somebody wakes the thread.
    #[cfg(loom)]
    pub(crate) fn readable(&self) -> Readable<'_> {
        self.event.readable()
    }

    /// Sleeps until `descriptor` has something to read or somebody wakes the thread, at most for `timeout`.
    /// For one thread.
    pub fn park(&self, descriptor: Readable<'_>, timeout: Duration) -> WakeReason {
        self.is_parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let outcome = poll_either([descriptor, self.event.readable()], timeout);
        self.is_parked.store(false, Ordering::Relaxed);
        let Ok([by_descriptor, by_event]) = outcome else { return WakeReason::Descriptor };
        // It was readable, and nobody else reads it.
        if by_event && !self.event.clear() {
            // The program has closed it. What it polls instead may be readable for ever.
            std::thread::sleep(CLOSED_PAUSE);
        }
        match (by_descriptor, by_event) {
            (true, _) => WakeReason::Descriptor,
            (false, true) => WakeReason::Woken,
            (false, false) => WakeReason::Time,
        }
    }

    /// Wakes the thread if it sleeps; a fence and a load when it does not. One that is about to sleep may be
    /// missed: it is woken by its descriptor then, only later.
    #[inline]
    pub fn wake_if_parked(&self) {
        fence(Ordering::SeqCst);
        if self.is_parked.load(Ordering::Relaxed) && self.is_parked.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the thread, now or before it sleeps next.
    pub fn wake(&self) {
        self.event.signal();
    }
}
