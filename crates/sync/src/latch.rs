//! Threads that wait until so many parts of some work are done.

use core::sync::atomic::Ordering;

use crate::face::{AtomicUsize, Condvar, Mutex};

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
