//! Parking of one thread: until there is work ([`Parker`]), or until the end of one numbered use of a slot
//! ([`WaitSlot`]). Wakers pay only when it sleeps.
//!
//! While both threads are awake all that passes between them is the cache line in which the slot lies, once
//! each way. The waiter sleeps on a futex of the slot: `std::thread::park` needs the thread's handle, which
//! there is none of any more in the last destructors of a thread, where programs still wait for the driver.

use core::sync::atomic::Ordering;

use crate::face::{AtomicU32, AtomicU64, fence, futex_wait, futex_wake};

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

/// Said beside the number by a waiter that sleeps, or is about to.
const WAITER_PARKED: u64 = 1 << 32;

/// A slot that one use at a time waits in. A use has a number of its own, so that a late or invented end of an
/// earlier one finds nobody.
#[derive(Debug)]
pub struct WaitSlot {
    /// The number of the use that waits, with [`WAITER_PARKED`] or without; 0 when there is none.
    waiting: AtomicU64,
    /// How many sleeping uses have ended, as far as that fits: what the waiter sleeps on.
    ended: AtomicU32,
}

impl Default for WaitSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitSlot {
    /// Nobody waits.
    pub fn new() -> Self {
        Self { waiting: AtomicU64::new(0), ended: AtomicU32::new(0) }
    }

    /// Begins the use `number`, which is not 0; before anybody can learn of it.
    pub fn begin(&self, number: u32) {
        self.waiting.store(u64::from(number), Ordering::Release);
    }

    /// Whether this use still waits. What was written before its [`end`](Self::end) is visible when it does not.
    #[inline]
    pub fn is_waiting(&self, number: u32) -> bool {
        self.waiting.load(Ordering::Acquire) as u32 == number
    }

    /// The number of the use that waits, 0 for none.
    pub fn number(&self) -> u32 {
        self.waiting.load(Ordering::Acquire) as u32
    }

    /// Ends the use and lets its thread go on; false when it does not wait any more.
    pub fn end(&self, number: u32) -> bool {
        let leave =
            |from| self.waiting.compare_exchange(from, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let number = u64::from(number);
        if leave(number) {
            return true;
        }
        // It parked in between.
        if !leave(number | WAITER_PARKED) {
            return false;
        }
        // When it is awake by now, somebody who waits here next may be woken, and sleeps again.
        self.ended.fetch_add(1, Ordering::Release);
        futex_wake(&self.ended);
        true
    }

    /// Sleeps until the use has ended.
    pub fn park(&self, number: u32) {
        let (awake, parked) = (u64::from(number), u64::from(number) | WAITER_PARKED);
        // Acquire where it has ended already, too: what was written before the end must be visible to who returns from here.
        if self.waiting.compare_exchange(awake, parked, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        loop {
            // Before the look: who ends the use after it changes the word, and there is no sleep.
            let ended = self.ended.load(Ordering::Acquire);
            if !self.is_waiting(number) {
                return;
            }
            futex_wait(&self.ended, ended, None);
        }
    }
}
