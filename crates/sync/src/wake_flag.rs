//! Wake flag: a futex in shared memory with which one process wakes the other.
//!
//! A word of the shared memory says whether a thread sleeps on it, and is the futex on which it does.

use core::sync::atomic::Ordering;
use std::time::Duration;

use crate::face::{AtomicU32, fence, futex_wait, futex_wake};

/// Nobody sleeps, and what the word's owner does takes its time.
pub const BUSY: u32 = 0;

/// The word's owner sleeps.
pub const PARKED: u32 = 1;

/// The word's owner polls for what comes, or will before it sleeps.
pub const POLLING: u32 = 2;

/// The longest sleep. The peer can write what it likes into the word, and whoever waits must notice the end of the
/// link all the same.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Sleeps on `word` until it is woken, but not when `is_ready` says that there is something already; may also return
/// for nothing. The word is left at `afterwards`.
pub fn park(word: &AtomicU32, afterwards: u32, is_ready: impl FnOnce() -> bool) {
    word.store(PARKED, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if !is_ready() {
        futex_wait(word, PARKED, Some(MAX_SLEEP));
    }
    word.store(afterwards, Ordering::Relaxed);
}

/// Wakes whoever sleeps on `word`; what it is woken for must have been written before. Returns what its owner was doing.
pub fn wake(word: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    wake_after_fence(word)
}

/// The same behind a sequentially consistent fence of the caller's.
pub fn wake_after_fence(word: &AtomicU32) -> u32 {
    let doing = word.load(Ordering::Relaxed);
    if doing == PARKED && word.swap(POLLING, Ordering::Relaxed) == PARKED {
        futex_wake(word);
    }
    doing
}
