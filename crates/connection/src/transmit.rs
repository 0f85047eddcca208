//! System calls on sockets that go on until everything is done, also on memory that is not ours alone.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::net::{RecvFlags, SendFlags};
use thiserror::Error;

/// The peer ended the connection where it may.
#[derive(Debug, Error)]
#[error("the peer ended the connection")]
pub struct EndedBetween;

/// A part of a vectored send or receive.
pub fn io_vector(start: *const u8, length: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length }
}

/// Sends all of `bytes`.
pub fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8], flags: SendFlags) -> io::Result<()> {
    while !bytes.is_empty() {
        // A lost peer must be an error here, not a SIGPIPE in the program.
        match rustix::net::send(socket, bytes, flags | SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives some bytes; 0 when the peer has ended the connection.
pub fn receive_some(socket: BorrowedFd<'_>, into: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match rustix::net::recv(socket, &mut *into, flags) {
            Ok((count, _)) => return Ok(count),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Drops the first `count` bytes of `parts`.
fn advance(mut parts: &mut [libc::iovec], mut count: usize) -> &mut [libc::iovec] {
    while let Some(first) = parts.first_mut() {
        if count < first.iov_len {
            first.iov_base = first.iov_base.wrapping_byte_add(count);
            first.iov_len -= count;
            break;
        }
        count -= first.iov_len;
        parts = &mut parts[1..];
    }
    parts
}

fn message_header(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: msghdr is plain data for which zero means that a field is not used.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len();
    header
}

/// Sends all parts, with one system call where the kernel takes them at once.
///
/// # Safety
/// All parts must be readable.
pub unsafe fn send_vectored(socket: BorrowedFd<'_>, parts: &mut [libc::iovec]) -> io::Result<()> {
    let mut parts = advance(parts, 0);
    while !parts.is_empty() {
        // SAFETY: the header points at live vectors; the caller vouches for what they point at.
        let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &message_header(parts), libc::MSG_NOSIGNAL) };
        match usize::try_from(count) {
            Ok(count) => parts = advance(parts, count),
            Err(_) => interrupted_or_failed()?,
        }
    }
    Ok(())
}

/// Fills all parts. The error's inner one is [`EndedBetween`] when the peer ended the connection before the
/// first byte.
///
/// # Safety
/// All parts must be writable.
pub unsafe fn receive_vectored(socket: BorrowedFd<'_>, parts: &mut [libc::iovec]) -> io::Result<()> {
    let mut parts = advance(parts, 0);
    let mut started = false;
    let mut flags = libc::MSG_WAITALL;
    while !parts.is_empty() {
        let mut header = message_header(parts);
        // SAFETY: the header points at live vectors; the caller vouches for what they point at.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        match usize::try_from(count) {
            Ok(0) if started => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, EndedBetween)),
            Ok(count) => {
                started = true;
                parts = advance(parts, count);
            }
            // A vsock waits for no more at a time than its buffer holds (256 KiB), and says so by this error.
            Err(_) if flags != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) => {
                flags = 0
            }
            Err(_) => interrupted_or_failed()?,
        }
    }
    Ok(())
}

/// What the last system call says: to be tried again where a signal came, or that it has failed.
pub fn interrupted_or_failed() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
