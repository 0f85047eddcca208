//! Fallback poller of completions, while the receiver of frames executes a command.
//!
//! A thread that wakes every millisecond while the link is in use. Where the receiver has looked by itself
//! for a while the thread parks, so that an idle session costs no processor time, and the receiver's next
//! command wakes it.

use std::sync::atomic::{AtomicBool, Ordering};

use causeway_sync::Parker;

/// Whether somebody has to poll in the receiver's place.
#[derive(Default)]
pub struct FallbackPoller {
    /// Whether the receiver of frames polls, or will before it sleeps.
    is_attended: AtomicBool,
    parker: Parker,
}

impl FallbackPoller {
    /// The receiver of frames polls from here on.
    pub fn attend(&self) {
        self.is_attended.store(true, Ordering::Release);
    }

    /// Whether the receiver of frames polls, or will before it sleeps.
    pub fn is_attended(&self) -> bool {
        self.is_attended.load(Ordering::Acquire)
    }

    /// The receiver of frames is busy from here on.
    pub fn leave(&self) {
        self.is_attended.store(false, Ordering::Release);
        self.wake();
    }

    /// Wakes the thread, if it is parked.
    pub fn wake(&self) {
        self.parker.wake();
    }

    /// Parks until the receiver is busy, or `is_over` is the case when somebody wakes it.
    pub fn park(&self, is_over: impl Fn() -> bool) {
        self.parker.park_unless(|| !self.is_attended() || is_over());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_thread_parks_only_while_the_receiver_looks() {
        let fallback_poller = Arc::new(FallbackPoller::default());
        // Neither of these parks.
        fallback_poller.park(|| false);
        fallback_poller.attend();
        fallback_poller.park(|| true);
        let parking = std::thread::spawn({
            let fallback_poller = Arc::clone(&fallback_poller);
            move || fallback_poller.park(|| false)
        });
        while !fallback_poller.parker.is_parked() {
            std::thread::yield_now();
        }
        fallback_poller.leave();
        parking.join().unwrap();
    }
}
