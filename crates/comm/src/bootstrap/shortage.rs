//! Accept without free descriptors: connections are refused.
//!
//! A listener has someone waiting then whom it cannot accept, and a thread that polled it would find it ready again and
//! again. So one descriptor is kept in reserve. It is given up for a moment to accept whoever has come and to send them
//! away, so that they hear at once that they are to come back later; and the listeners are left alone for a while.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use causeway_sync::fork::CloseOnFork;

/// For how long listeners are left alone: at first, and at most.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The most that are sent away at once.
const MAX_TURNED_AWAY: usize = 64;

/// A lack of descriptors, and what is kept for it.
#[derive(Debug)]
pub(super) struct Shortage {
    reserve: Option<Reserve>,
    pause: Duration,
    until: Option<Instant>,
}

#[derive(Debug)]
struct Reserve {
    /// In front of the descriptor, so that it goes first.
    _close_on_fork: CloseOnFork,
    _descriptor: OwnedFd,
}

impl Reserve {
    fn of(descriptor: &impl AsFd) -> Option<Self> {
        let descriptor = descriptor.as_fd().try_clone_to_owned().ok()?;
        Some(Self { _close_on_fork: CloseOnFork::new(&descriptor), _descriptor: descriptor })
    }
}

impl Shortage {
    /// None so far. A copy of a descriptor is kept in reserve.
    pub(super) fn new(descriptor: &impl AsFd) -> Self {
        Self { reserve: Reserve::of(descriptor), pause: MIN_PAUSE, until: None }
    }

    /// For how long listeners are to be left alone from now on.
    pub(super) fn pause(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Sends those away who are waiting at a listener, one by each call of `accept`.
    pub(super) fn refuse(&mut self, descriptor: &impl AsFd, accept: impl Fn() -> io::Result<()>) {
        drop(self.reserve.take());
        for _ in 0..MAX_TURNED_AWAY {
            if accept().is_err() {
                break;
            }
        }
        self.reserve = Reserve::of(descriptor);
        self.until = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    /// Somebody could be let in. Another thread may have taken the descriptor that was in reserve.
    pub(super) fn is_over(&mut self, descriptor: &impl AsFd) {
        if self.reserve.is_none() {
            self.reserve = Reserve::of(descriptor);
        }
        (self.pause, self.until) = (MIN_PAUSE, None);
    }
}

/// Whether an error says that the process or the system has nothing left for a connection.
pub(super) fn is_meant(error: &io::Error) -> bool {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| short.contains(&code))
}
