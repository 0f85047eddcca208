//! The face of a program.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::futex;

pub use super::condvar::Condvar;
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
pub use parking_lot::{Mutex, MutexGuard};
pub use std::hint::spin_loop as spin;
pub use std::thread::{JoinHandle, Thread, current, park, yield_now};
pub use std::thread_local;

/// Says how much time has passed.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// It begins now.
    #[expect(clippy::new_without_default, reason = "the moment at which it is made matters")]
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// The time since it began.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Starts a thread of this name.
///
/// # Errors
/// When the system makes no more threads.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Sleeps while `word` is `expected`, at most for `timeout` if that is given; may return for no reason.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(timespec);
    // Interruptions, a word that has changed and the time that is over are all reasons for the caller to look again.
    let _ = futex::wait(word, futex::Flags::empty(), expected, timeout.as_ref());
}

/// Wakes one sleeper of `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // Nothing can fail but a bad address.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Sleeps on `changed` at most for `timeout`; whether it was woken before.
pub(crate) fn wait_for<T>(changed: &Condvar, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
    changed.wait_for(guard, timeout)
}

/// What a thread can sleep on in `poll`.
pub type Readable<'a> = BorrowedFd<'a>;

pub(crate) use crate::descriptors::EventFd as Event;

/// Sleeps until one of two is readable, or has ended, at most for `timeout`; which are. An error when a signal came.
pub(crate) fn poll_either(waited: [Readable<'_>; 2], timeout: Duration) -> io::Result<[bool; 2]> {
    let mut waited = waited.map(|readable| PollFd::from_borrowed_fd(readable, PollFlags::IN));
    poll(&mut waited, Some(&timespec(timeout)))?;
    Ok(waited.map(|waited| !waited.revents().is_empty()))
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}
