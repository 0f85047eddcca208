//! One thread that waits for the end of one numbered use of a slot.
//!
//! While both threads are awake all that passes between them is the cache line in which the slot lies, once each way.
//! The waiter sleeps on a futex of the slot: `std::thread::park` needs the thread's handle, which there is none of any
//! more in the last destructors of a thread, where programs still wait for the driver.

use core::sync::atomic::Ordering;

use crate::face::{AtomicU32, AtomicU64, futex_wait, futex_wake};

/// Said beside the number by a waiter that sleeps, or is about to.
const PARKED: u64 = 1 << 32;

/// A slot that one use at a time waits in. A use has a number of its own, so that a late or invented end of an
/// earlier one finds nobody.
#[derive(Debug)]
pub struct WaitSlot {
    /// The number of the use that waits, with [`PARKED`] or without; 0 when there is none.
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
        if !leave(number | PARKED) {
            return false;
        }
        // When it is awake by now, somebody who waits here next may be woken, and sleeps again.
        self.ended.fetch_add(1, Ordering::Release);
        futex_wake(&self.ended);
        true
    }

    /// Sleeps until the use has ended.
    pub fn park(&self, number: u32) {
        let (awake, parked) = (u64::from(number), u64::from(number) | PARKED);
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
