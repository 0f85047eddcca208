//! How does one process sleep until the other has something for it?
//!
//! A word of the shared memory says whether somebody sleeps on it. Who sleeps says so first and then looks once more
//! whether there is really nothing; who has something makes it visible first and then looks whether somebody sleeps. So
//! either the sleeper sees it or the other sees the sleeper, and a wake-up costs a system call only when it is
//! needed.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::thread::Timespec;
use rustix::thread::futex;

use causeway_sync::awake;

/// Nobody sleeps, and what the word's owner does takes its time.
pub(super) const BUSY: u32 = 0;

/// The word's owner sleeps.
pub(super) const ASLEEP: u32 = 1;

/// The word's owner looks for what comes, or will before it sleeps.
pub(super) const LOOKING: u32 = 2;

/// The longest sleep. The peer can write what it likes into the word, and whoever waits must notice the end of the
/// link all the same.
const LONGEST_SLEEP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Sleeps on `word` until it is rung, but not when `is_ready` says that there is something already; may also return
/// for nothing. The word is left at `afterwards`.
pub(super) fn sleep(word: &AtomicU32, afterwards: u32, is_ready: impl FnOnce() -> bool) {
    word.store(ASLEEP, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if !is_ready() {
        // Interruptions, a word that has changed and the time that is over are all reasons to look again.
        let _ = futex::wait(word, futex::Flags::empty(), ASLEEP, Some(&LONGEST_SLEEP));
    }
    word.store(afterwards, Ordering::Relaxed);
}

/// Wakes whoever sleeps on `word`; what it is woken for must have been written before. Returns what its owner was doing.
pub(super) fn ring(word: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    wake(word)
}

/// The same behind a fence of the caller's.
pub(super) fn wake(word: &AtomicU32) -> u32 {
    let doing = word.load(Ordering::Relaxed);
    if doing == ASLEEP && word.swap(LOOKING, Ordering::Relaxed) == ASLEEP {
        // There is nothing that could fail but a bad address.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
    doing
}

/// How long a sender looks for room before it sleeps: on few cores, whoever is to make room needs this one.
pub(super) fn patience() -> Duration {
    awake::between_commands().min(Duration::from_micros(20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn no_wake_up_is_lost() {
        const ROUNDS: u64 = 20_000;
        let (word, counter) = (AtomicU32::new(BUSY), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    counter.fetch_add(1, Ordering::Release);
                    ring(&word);
                }
            });
            let mut seen = 0;
            let begun = std::time::Instant::now();
            while seen < ROUNDS {
                sleep(&word, BUSY, || counter.load(Ordering::Acquire) > seen);
                seen = counter.load(Ordering::Acquire);
            }
            // Every lost one would have cost a second.
            assert!(begun.elapsed() < Duration::from_secs(60));
        });
    }
}
