//! How is a thread woken that sleeps until its peer says something, when somebody begins to wait for that?
//!
//! Waking it takes 50 to 100 us where its processor has been given back meanwhile (see [`awake`](crate::awake)). Called when the
//! wait begins, it is awake when the peer speaks; woken by what the peer says, it would be late by that.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes a thread that sleeps on a descriptor.
#[derive(Debug)]
pub struct Doorbell {
    event: OwnedFd,
    is_asleep: AtomicBool,
}

/// What has woken a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The descriptor has something to read or has ended, or a signal came: it is to be looked at.
    Descriptor,
    /// The bell was rung.
    Bell,
    /// The time is over.
    Time,
}

impl Doorbell {
    /// An eventfd that nobody sleeps on yet.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, is_asleep: AtomicBool::new(false) })
    }

    /// The descriptor that this takes.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Sleeps until `descriptor` has something to read or the bell is rung, at most for `longest`. For one thread.
    pub fn sleep(&self, descriptor: BorrowedFd<'_>, longest: Duration) -> Woken {
        let longest =
            Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        let mut waited = [
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
            PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN),
        ];
        self.is_asleep.store(true, Ordering::SeqCst);
        let outcome = poll(&mut waited, Some(&longest));
        self.is_asleep.store(false, Ordering::SeqCst);
        if outcome.is_err() {
            return Woken::Descriptor;
        }
        let [by_descriptor, by_bell] = waited.map(|waited| !waited.revents().is_empty());
        if by_bell {
            // It was readable, and nobody else reads it.
            let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        }
        match (by_descriptor, by_bell) {
            (true, _) => Woken::Descriptor,
            (false, true) => Woken::Bell,
            (false, false) => Woken::Time,
        }
    }

    /// Wakes the thread if it sleeps; one load when it does not. One that is about to sleep may be missed: it is woken by its
    /// descriptor then.
    pub fn call(&self) {
        if self.is_asleep.load(Ordering::SeqCst) && self.is_asleep.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Wakes the thread, now or before it sleeps next.
    pub fn ring(&self) {
        // A counter that is full wakes all the same.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_sleeper_is_woken_by_its_descriptor_by_the_bell_and_by_the_end_of_its_time() {
        let (bell, (reader, writer)) = (Doorbell::new().unwrap(), pipe().unwrap());
        assert_eq!(bell.sleep(reader.as_fd(), SHORT), Woken::Time);
        bell.ring();
        assert_eq!(bell.sleep(reader.as_fd(), LONG), Woken::Bell);
        assert_eq!(bell.sleep(reader.as_fd(), SHORT), Woken::Time);
        rustix::io::write(&writer, &[1]).unwrap();
        bell.ring();
        assert_eq!(bell.sleep(reader.as_fd(), LONG), Woken::Descriptor);
        drop(writer);
        assert_eq!(bell.sleep(reader.as_fd(), LONG), Woken::Descriptor);
    }

    #[test]
    fn who_is_awake_is_not_called_and_who_sleeps_is() {
        let (bell, (reader, _writer)) = (Doorbell::new().unwrap(), pipe().unwrap());
        bell.call();
        assert_eq!(bell.sleep(reader.as_fd(), SHORT), Woken::Time);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| bell.sleep(reader.as_fd(), LONG));
            let begun = Instant::now();
            while !sleeper.is_finished() && begun.elapsed() < Duration::from_secs(30) {
                bell.call();
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().unwrap(), Woken::Bell);
        });
    }
}
