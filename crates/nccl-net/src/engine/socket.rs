//! Socket of a lane: reads and writes that do not wait, into and from memory of the program.
//!
//! The memory is NCCL's, and GPUs or other threads may use it at the same time, so that no Rust reference to it is made.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use causeway_sync::fork::CloseOnFork;
use rustix::net::sockopt;

/// How long the network may be silent while something is under way, or while nothing is and the peer is asked whether
/// it is there: with the second until it is asked, a lost peer is noticed within 5 s.
const PEER_TIMEOUT: Duration = Duration::from_secs(4);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// A connected stream that carries a lane.
pub struct LaneSocket {
    /// In front of the descriptor, so that it goes first.
    _close_on_fork: CloseOnFork,
    descriptor: OwnedFd,
}

impl LaneSocket {
    /// Over TCP.
    ///
    /// # Errors
    /// When the system refuses an option.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        // What the receiver has no room for is not sent (credits), so that a window stays closed only where the peer's
        // process stands still.
        sockopt::set_tcp_user_timeout(&stream, PEER_TIMEOUT.as_millis() as u32)?;
        Self::new(stream.into())
    }

    /// Within the host.
    ///
    /// # Errors
    /// When the system refuses an option.
    pub fn unix(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream.into())
    }

    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        Ok(Self { _close_on_fork: CloseOnFork::new(&descriptor), descriptor })
    }

    /// Reads what there is, at most so many bytes. 0 when the peer has ended its side.
    ///
    /// # Safety
    /// So many bytes may be written there.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing.
    pub(super) unsafe fn read(&self, to: *mut u8, bytes: usize) -> io::Result<usize> {
        // SAFETY: as promised by the caller.
        let got = unsafe { libc::recv(self.descriptor.as_raw_fd(), to.cast(), bytes, libc::MSG_DONTWAIT) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// Writes as much of two ranges, one behind the other, as there is room for.
    ///
    /// # Safety
    /// Both may be read.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room.
    pub(super) unsafe fn write(&self, ranges: [(*const u8, usize); 2]) -> io::Result<usize> {
        let mut parts =
            ranges.map(|(start, bytes)| libc::iovec { iov_base: start as *mut _, iov_len: bytes });
        // SAFETY: a structure of numbers and addresses, which may all be 0.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the message names the two ranges, which may be read as promised.
        let sent = unsafe { libc::sendmsg(self.descriptor.as_raw_fd(), &raw const message, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Says that nothing more is written.
    pub(super) fn end_writing(&self) {
        // Where the other end has gone there is nothing to end.
        let _ = rustix::net::shutdown(&self.descriptor, rustix::net::Shutdown::Write);
    }
}

impl AsFd for LaneSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
