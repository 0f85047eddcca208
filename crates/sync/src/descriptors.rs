//! Descriptors that live in other people's processes.
//!
//! A program may have closed its standard input, output and error, and print all the same: whatever gets the number 1
//! or 2 then gets what it prints. And a program may close descriptors that it has not opened (`close_range`, as daemons
//! do), after which their numbers mean its own files.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;

/// Above standard input, output and error.
const FIRST: RawFd = 3;

/// The same with another number, where the system has given it one of the program's standard streams. Everything that
/// makes a descriptor which stays open goes through this; a test looks for what does not (`tests/descriptors.rs`).
///
/// # Errors
/// When the process has no descriptor left.
pub fn above_stdio<D: From<OwnedFd> + Into<OwnedFd>>(made: D) -> io::Result<D> {
    let made: OwnedFd = made.into();
    if made.as_raw_fd() >= FIRST {
        return Ok(made.into());
    }
    Ok(fcntl_dupfd_cloexec(&made, FIRST)?.into())
}

/// The commands by which a file's signal is set and told, which the `libc` crate lacks (`asm-generic/fcntl.h`).
const SET_SIGNAL: libc::c_int = 10;
const GET_SIGNAL: libc::c_int = 11;

/// An eventfd: readable from the first signal until it is cleared. It writes to no other file, should its number mean
/// one of the program's by now.
#[derive(Debug)]
pub struct EventFd {
    descriptor: OwnedFd,
    /// The signal that the kernel would send when the file becomes ready, had anybody asked for that (`O_ASYNC`): a mark
    /// by which the open file is known again. Of others it is 0.
    mark: libc::c_int,
}

impl EventFd {
    /// Makes it.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let descriptor = above_stdio(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?;
        // SAFETY: the command takes a number. Where the system has no such marks all files have the same.
        unsafe { libc::fcntl(descriptor.as_raw_fd(), SET_SIGNAL, libc::SIGRTMAX() - 1) };
        let mark = mark_of(&descriptor);
        Ok(Self { descriptor, mark })
    }

    /// What becomes readable.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Makes it readable.
    pub fn signal(&self) {
        if self.is_ours() {
            // A counter that is full is readable all the same.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Makes it unreadable; false where it cannot be, for it is another file by now.
    pub fn clear(&self) -> bool {
        let is_ours = self.is_ours();
        if is_ours {
            let _ = rustix::io::read(&self.descriptor, &mut [0_u8; 8]);
        }
        is_ours
    }

    fn is_ours(&self) -> bool {
        mark_of(&self.descriptor) == self.mark
    }
}

fn mark_of(descriptor: &OwnedFd) -> libc::c_int {
    // SAFETY: the command takes and returns a number.
    unsafe { libc::fcntl(descriptor.as_raw_fd(), GET_SIGNAL) }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::File;
    use std::io::{Read as _, Seek as _};

    #[test]
    fn eventfd_whose_number_is_another_file_writes_nothing() {
        let event = EventFd::new().unwrap();
        event.signal();
        assert!(event.clear());
        let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        // SAFETY: both are open; the number belongs to `event` alone, which this test is about.
        unsafe { libc::dup2(file.as_raw_fd(), event.descriptor.as_raw_fd()) };
        event.signal();
        assert!(!event.clear());
        file.rewind().unwrap();
        assert_eq!(file.read(&mut [0; 8]).unwrap(), 0);
    }
}
