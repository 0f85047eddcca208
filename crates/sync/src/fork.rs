//! Forks of the process: descriptors that a child closes, and the work of threads that it does not have.
//!
//! A child has all open files of its parent until it starts another program. A rank's lock on a board and its
//! connections would outlive the rank with such a child: the peers would wait for one that has ended. So a
//! child closes the descriptors that are [`CloseOnFork`], and takes part in nothing ([`is_child`]).
//!
//! A child that is to go on with what its parent has needs that to be whole. What threads of our libraries do
//! to it they do inside of [`BACKGROUND`], which is closed over that fork.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::Once;

#[cfg(not(any(loom, shuttle)))]
use crate::gate::{Gate, Section};

/// The work of our libraries' own threads in a process that may fork: what they do for others, such as the end of
/// a transfer, and what they send by themselves. They are not inside while they wait for a peer.
#[cfg(not(any(loom, shuttle)))]
pub static BACKGROUND: Gate = Gate::new();

/// Enters [`BACKGROUND`].
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub fn in_background() -> Section<'static> {
    BACKGROUND.enter()
}

/// Models do not fork.
#[cfg(any(loom, shuttle))]
pub fn in_background() {}

/// Places for descriptors. Where more are open, those are shared with children.
const CAPACITY: usize = 4096;

const FREE: i32 = -1;

/// The handler takes no locks: another thread of the parent may have held them.
static DESCRIPTORS: [AtomicI32; CAPACITY] = [const { AtomicI32::new(FREE) }; CAPACITY];

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// While it lives, a child does not keep a descriptor. It goes before the descriptor is closed, as a field in
/// front of it does.
#[derive(Debug)]
pub struct CloseOnFork {
    entry: Option<usize>,
}

impl CloseOnFork {
    /// For this descriptor.
    pub fn new(descriptor: impl AsFd) -> Self {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            // SAFETY: the handler is a function for good, and makes async-signal-safe calls alone. Where it cannot
            // be set for lack of memory, children keep what they have.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        let number = descriptor.as_fd().as_raw_fd();
        let is_taken = |entry: &AtomicI32| {
            entry.compare_exchange(FREE, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        Self { entry: DESCRIPTORS.iter().position(is_taken) }
    }
}

impl Drop for CloseOnFork {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            DESCRIPTORS[entry].store(FREE, Ordering::Release);
        }
    }
}

extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Release);
    for entry in &DESCRIPTORS {
        let number = entry.swap(FREE, Ordering::AcqRel);
        if number != FREE {
            // SAFETY: the descriptor is a rank's, whose values the child never uses.
            unsafe { libc::close(number) };
        }
    }
}

/// Whether this process was made by `fork` by one that has taken part in a job.
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}
