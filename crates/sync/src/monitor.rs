//! State behind a lock, and threads that sleep until it is as they need it.
//!
//! The name is that of C. A. R. Hoare, "Monitors: An Operating System Structuring Concept", Communications of the ACM 17
//! (1974). Nobody can change the state and forget those who wait: a change that they could wait for is made by
//! [`change`](Monitor::change), and nobody sleeps without having looked at the state under its lock.

use std::time::Duration;

use crate::face::{Condvar, Mutex, MutexGuard, Stopwatch, wait_for};

/// State that threads wait for.
#[derive(Debug, Default)]
pub struct Monitor<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    /// Nobody waits.
    pub fn new(state: T) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The state, to look at it or to change what nobody waits for.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock()
    }

    /// Changes the state, and lets all who wait look at it.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.state.lock());
        self.changed.notify_all();
        result
    }

    /// As [`change`](Self::change), for so many of those who wait: where each needs something of its own and any will do.
    pub fn change_for<R>(&self, threads: usize, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.state.lock());
        for _ in 0..threads {
            self.changed.notify_one();
        }
        result
    }

    /// Sleeps until `find` finds what it looks for; it may take that out.
    pub fn wait<R>(&self, mut find: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut state = self.state.lock();
        loop {
            if let Some(found) = find(&mut state) {
                return found;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Sleeps until `find` finds what it looks for, at most for `timeout`; nothing when it has not by then.
    pub fn wait_for<R>(&self, timeout: Duration, mut find: impl FnMut(&mut T) -> Option<R>) -> Option<R> {
        let since = Stopwatch::new();
        let mut state = self.state.lock();
        loop {
            let found = find(&mut state);
            let left = timeout.saturating_sub(since.elapsed());
            if found.is_some() || left.is_zero() {
                return found;
            }
            wait_for(&self.changed, &mut state, left);
        }
    }
}

/// One of several queues of threads that sleep behind one lock, each for something of its own: a [`Monitor`]
/// has one alone.
///
/// Who sleeps has looked at the state under the lock and says there, if somebody counts the sleepers, that it
/// does. Nobody can come between that and the sleep. So who changes the state under the lock may notify as
/// many as it has counted there, with the lock or after it.
#[derive(Debug, Default)]
pub struct WaitQueue(Condvar);

impl WaitQueue {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Self(Condvar::new())
    }

    /// Gives the lock up and sleeps until it is notified, or for no reason: the caller looks at the state
    /// again.
    pub fn wait<T>(&self, state: &mut MutexGuard<'_, T>) {
        self.0.wait(state);
    }

    /// As [`wait`](Self::wait), at most for `timeout`; whether it was notified by then.
    pub fn wait_for<T>(&self, state: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        wait_for(&self.0, state, timeout)
    }

    /// Wakes up to so many of those that sleep.
    pub fn notify(&self, threads: usize) {
        for _ in 0..threads {
            self.0.notify_one();
        }
    }

    /// Wakes all that sleep.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
