//! Poll state: what is kept between polls, where received frames lie, and the fallback poller.
//!
//! A thread that wakes every millisecond while the link is in use. Where the receiver has looked by itself
//! for a while the thread parks, so that an idle session costs no processor time, and the receiver's next
//! command wakes it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_ibverbs::{Completion, Receive};
use causeway_sync::Parker;

use crate::stripe::PartialPieces;

/// Completions that are taken at a time.
pub const AT_ONCE: usize = 32;

thread_local! {
    /// Whether this thread polls, and will see to what is released meanwhile.
    pub static RETURNS_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// What came in a receive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReceiveKind {
    Control,
    CreditUpdate,
    Hello,
}

/// What whoever polls keeps from one poll to the next.
pub struct PollState {
    pub completions: [Completion; AT_ONCE],
    pub partial: PartialPieces,
    /// Those of transfers that come where they belong.
    pub placed: PartialPieces,
    /// For each path: receives to be posted again, and of what they were.
    pub again: Vec<Vec<(Receive, ReceiveKind)>>,
}

impl PollState {
    /// Nobody has polled yet, on so many paths.
    pub fn new(paths: usize) -> Self {
        let completions = [Completion::default(); AT_ONCE];
        let (partial, placed) = Default::default();
        Self { completions, partial, placed, again: (0..paths).map(|_| Vec::new()).collect() }
    }
}

/// Where bytes of frames lie.
pub enum FrameLocation {
    /// In a receive, by its number; then their offset is that in the receives' buffer.
    InReceive(usize),
    /// In a range of slots, by the first one; then it is that in the arena.
    InSlots(u32),
}

/// Bytes of frames that have come.
pub struct Filled {
    pub lies: FrameLocation,
    pub at: usize,
    pub end: usize,
}

impl Filled {
    /// Whether they keep a receive from being posted.
    pub fn is_in_receive(&self) -> bool {
        matches!(self.lies, FrameLocation::InReceive(_))
    }
}

/// Whether somebody has to poll in the receiver's place.
#[derive(Default)]
pub struct FallbackPoller {
    /// Whether the receiver of frames polls, or will before it sleeps.
    is_attended: AtomicBool,
    parker: Parker,
}

impl FallbackPoller {
    /// The receiver of frames polls from here on.
    pub fn begin_polling(&self) {
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
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_thread_parks_only_while_the_receiver_looks() {
        let fallback_poller = Arc::new(FallbackPoller::default());
        // Neither of these parks.
        fallback_poller.park(|| false);
        fallback_poller.begin_polling();
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
