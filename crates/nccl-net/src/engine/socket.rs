//! Socket of a lane: reads and writes that do not wait, into and from memory of the program.
//!
//! The memory is NCCL's, and GPUs or other threads may use it at the same time, so that no Rust reference to it is made.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use causeway_sync::descriptors::above_stdio;
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
    passes_descriptors: bool,
}

/// Room for one descriptor beside bytes, as the system lays it out.
#[repr(C, align(8))]
struct Ancillary([u8; 32]);

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
        Self::new(stream.into(), false)
    }

    /// Whether descriptors can be sent along with bytes.
    pub fn passes_descriptors(&self) -> bool {
        self.passes_descriptors
    }

    /// Within the host.
    ///
    /// # Errors
    /// When the system refuses an option.
    pub fn unix(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream.into(), true)
    }

    fn new(descriptor: OwnedFd, passes_descriptors: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        Ok(Self { _close_on_fork: CloseOnFork::new(&descriptor), descriptor, passes_descriptors })
    }

    /// Reads what there is, at most so many bytes. 0 when the peer has ended its side.
    ///
    /// # Safety
    /// So many bytes may be written there.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing.
    pub(super) unsafe fn read(&self, to: *mut u8, bytes: usize) -> io::Result<usize> {
        // SAFETY: the caller has `bytes` bytes writable at `to`.
        let got = unsafe { libc::recv(self.descriptor.as_raw_fd(), to.cast(), bytes, libc::MSG_DONTWAIT) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    /// The same into a buffer, with the descriptor that came along with the bytes.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing.
    pub(super) fn read_with_descriptor(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        if !self.passes_descriptors {
            // SAFETY: memory of the caller.
            return unsafe { self.read(buffer.as_mut_ptr(), buffer.len()) }.map(|count| (count, None));
        }
        let mut ancillary = Ancillary([0; 32]);
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: a structure of numbers and addresses, which may all be 0.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = ancillary.0.as_mut_ptr().cast();
        // As much as one descriptor takes: the system closes those that there is no room for.
        // SAFETY: a calculation.
        message.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<libc::c_int>() as u32) } as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message names memory of this function and its caller.
        let got = unsafe { libc::recvmsg(self.descriptor.as_raw_fd(), &raw mut message, flags) };
        let count = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the system has filled the message in.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
        let is_descriptor = |header: &&libc::cmsghdr| {
            (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        };
        let received = header.filter(is_descriptor).map(|header| {
            // SAFETY: one descriptor, which is new and nobody else's.
            unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned()) }
        });
        Ok((count, received.map(above_stdio).transpose()?))
    }

    /// Writes as much of two ranges, one behind the other, as there is room for, and a copy of a descriptor with the
    /// first byte.
    ///
    /// # Safety
    /// Both may be read.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room.
    pub(super) unsafe fn write(
        &self,
        ranges: [(*const u8, usize); 2],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<usize> {
        let mut parts =
            ranges.map(|(start, bytes)| libc::iovec { iov_base: start as *mut _, iov_len: bytes });
        // SAFETY: a structure of numbers and addresses, which may all be 0.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        let mut ancillary = Ancillary([0; 32]);
        if let Some(descriptor) = descriptor {
            const BYTES: u32 = size_of::<libc::c_int>() as u32;
            message.msg_control = ancillary.0.as_mut_ptr().cast();
            // SAFETY: there is room for a header and a descriptor, which is written where the system looks for it.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(BYTES) as _;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(BYTES) as _;
                libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(descriptor.as_raw_fd());
            }
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the message names the two ranges, which the caller has readable until this returns.
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
