//! Eventfd parking: a thread that sleeps for its peer, and for local waiters.
//!
//! Waking it takes 50 to 100 us on a virtual machine whose processor has been given back meanwhile. Called when the
//! wait begins, it is awake when the peer speaks; woken by what the peer says, it would be late by that.

use core::sync::atomic::Ordering;
use std::io;
#[cfg(not(any(loom, shuttle)))]
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use crate::face::{AtomicBool, Event, Readable, fence, poll_either};

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

    /// Sleeps until `descriptor` has something to read or somebody wakes the thread, at most for `timeout`. For one thread.
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

    /// Wakes the thread if it sleeps; a fence and a load when it does not. One that is about to sleep may be missed: it is woken by
    /// its descriptor then, only later.
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
