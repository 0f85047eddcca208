//! One thread that sleeps until there is work, and wakers that pay for it only when it sleeps.

use core::sync::atomic::Ordering;

use crate::face::{AtomicU32, fence, futex_wait, futex_wake};

const AWAKE: u32 = 0;
const PARKED: u32 = 1;

/// Where one thread at a time parks, and any thread wakes it: a futex.
///
/// Work is made visible by the waker before [`wake`](Self::wake), in memory of its own with at least release order, and
/// looked for by the parking thread in `is_ready`.
#[derive(Debug)]
pub struct Parker {
    state: AtomicU32,
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl Parker {
    /// Nobody is parked.
    pub fn new() -> Self {
        Self { state: AtomicU32::new(AWAKE) }
    }

    /// Parks the calling thread until somebody wakes it, or not at all when `is_ready` says that there is work.
    pub fn park_unless(&self, is_ready: impl FnOnce() -> bool) {
        // A store would do. Loom does not know that no store comes between what a read-modify-write has read and what it
        // has written, and with this one it need not.
        self.state.swap(PARKED, Ordering::Relaxed);
        // Either `is_ready` sees what the waker has made visible, or the waker sees that this thread parks.
        fence(Ordering::SeqCst);
        if is_ready() {
            self.state.store(AWAKE, Ordering::Relaxed);
            return;
        }
        // A futex also returns for signals, and for a late wake-up of an earlier round.
        while self.is_parked() {
            futex_wait(&self.state, PARKED, None);
        }
    }

    /// Wakes the thread if it is parked or about to be; a fence and a load when it is not.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_parked() {
            self.unpark();
        }
    }

    /// Whether the thread is parked, or about to be.
    pub fn is_parked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == PARKED
    }

    #[cold]
    fn unpark(&self) {
        // Of several wakers one makes the system call.
        if self.state.swap(AWAKE, Ordering::Relaxed) == PARKED {
            futex_wake(&self.state);
        }
    }
}
