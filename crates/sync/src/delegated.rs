//! A lock whose holder also does what others have left to do, so that nobody waits for small work to be done.
//!
//! The idea is that of flat combining (D. Hendler, I. Incze, N. Shavit, M. Tzafrir, "Flat Combining and the
//! Synchronization-Parallelism Tradeoff", SPAA 2010), without its list: what is to be done is found in the state.

use core::sync::atomic::Ordering;

use crate::face::{AtomicBool, Mutex, MutexGuard, fence};

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
