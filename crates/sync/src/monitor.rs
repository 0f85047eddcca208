//! Monitor, latch and delegated lock: state behind a lock, and threads that sleep until it is as they need
//! it, until so many parts are done, or that leave their work to the lock's holder.
//!
//! The name is that of C. A. R. Hoare, "Monitors: An Operating System Structuring Concept", Communications of
//! the ACM 17 (1974). Nobody can change the state and forget those who wait: a change that they could wait
//! for is made by [`change`](Monitor::change), and no thread sleeps without having checked the state under its
//! lock.
//!
//! Delegated work: the idea is that of flat combining (D. Hendler, I. Incze, N. Shavit, M. Tzafrir, "Flat
//! Combining and the Synchronization-Parallelism Tradeoff", SPAA 2010), without its list: what is to be done
//! is found in the state.

use core::sync::atomic::Ordering;
use std::time::Duration;

use crate::face::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Stopwatch, fence, wait_for};

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

/// Opens once, when all its parts are done, and stays open.
#[derive(Debug)]
pub struct Latch {
    /// Parts that are not done.
    left: AtomicUsize,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    /// Closed until so many parts are done.
    pub fn new(parts: usize) -> Self {
        Self { left: AtomicUsize::new(parts), is_open: Mutex::new(parts == 0), opened: Condvar::new() }
    }

    /// So many more parts are done, all of them by the calling thread; what it has written is visible behind the latch.
    ///
    /// # Panics
    /// When more parts are done than there are.
    pub fn done(&self, parts: usize) {
        let left = self.left.fetch_sub(parts, Ordering::AcqRel);
        assert!(left >= parts, "{parts} parts done of {left} that are left");
        if left == parts && parts > 0 {
            *self.is_open.lock() = true;
            self.opened.notify_all();
        }
    }

    /// Whether all parts are done.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Sleeps until all parts are done.
    pub fn wait(&self) {
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
    }
}

/// State behind a lock, and whether work is left on it.
///
/// Work is made visible by who [leaves](Self::leave) it, in memory of its own, and found by the function `work` of who does it. While one
/// thread polls for work, as it does anyway between other things, it is left to that one.
#[derive(Debug, Default)]
pub struct Delegated<T> {
    state: Mutex<T>,
    /// There is work, and nobody has begun to do it.
    is_left: AtomicBool,
    /// A thread polls for work, and does it.
    is_polled: AtomicBool,
}

impl<T> Delegated<T> {
    /// No work is left.
    pub fn new(state: T) -> Self {
        Self { state: Mutex::new(state), is_left: AtomicBool::new(false), is_polled: AtomicBool::new(false) }
    }

    /// Waits for the lock, which goes back by [`release`](Self::release): if it is dropped, work may stay undone.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock()
    }

    /// Gives the lock back, after `work` has done all that was left while it was held.
    #[inline]
    pub fn release<'a>(&'a self, mut state: MutexGuard<'a, T>, mut work: impl FnMut(&mut T)) {
        loop {
            while self.take() {
                work(&mut state);
            }
            drop(state);
            // Either this sees what was left while the lock was held, or who left it finds the lock free.
            fence(Ordering::SeqCst);
            if !self.is_left.load(Ordering::Relaxed) {
                return;
            }
            match self.state.try_lock() {
                Some(again) => state = again,
                // Whoever has it now does what is left.
                None => return,
            }
        }
    }

    /// Leaves work to who polls for it or holds the lock; where neither is so, it is done here.
    #[inline]
    pub fn leave(&self, work: impl FnMut(&mut T)) {
        // Not a store: who takes it must see the work of all who have left some.
        self.is_left.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if !self.is_polled.load(Ordering::Relaxed) {
            self.try_work(work);
        }
    }

    /// The calling thread [polls](Self::poll) for work from here on. One does at a time.
    pub fn begin_to_poll(&self) {
        self.is_polled.store(true, Ordering::Relaxed);
    }

    /// Does what is left, unless somebody else holds the lock, who then does it.
    #[inline]
    pub fn poll(&self, work: impl FnMut(&mut T)) {
        if self.is_left.load(Ordering::Relaxed) {
            self.try_work(work);
        }
    }

    /// The calling thread does not poll any more; what is left until now is done once more.
    pub fn end_to_poll(&self, work: impl FnMut(&mut T)) {
        self.is_polled.store(false, Ordering::Relaxed);
        // Either who leaves work sees this, or this sees that work is left.
        fence(Ordering::SeqCst);
        self.poll(work);
    }

    fn try_work(&self, work: impl FnMut(&mut T)) {
        if let Some(state) = self.state.try_lock() {
            self.release(state, work);
        }
    }

    /// Whether work was left, for who does it now.
    #[inline]
    fn take(&self) -> bool {
        self.is_left.load(Ordering::Relaxed) && self.is_left.swap(false, Ordering::AcqRel)
    }
}
