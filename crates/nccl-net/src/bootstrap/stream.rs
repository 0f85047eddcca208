//! Socket of a lane before its handshake, and the connection that its lanes make.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::engine::LaneSocket;

/// A connection, all of whose lanes are here.
pub struct Arrived {
    /// The lanes, in their order.
    pub sockets: Vec<LaneSocket>,
    /// The peer, for messages.
    pub peer: String,
}

/// The most lanes of a connection.
pub(super) const MAX_LANES: u16 = 16;

/// A connected socket that is not a lane yet.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// For messages.
    pub(super) fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) => stream.peer_addr().map_or_else(
                |_| "a peer".to_owned(),
                |at| SocketAddr::new(at.ip().to_canonical(), at.port()).to_string(),
            ),
            Self::Unix(_) => "a process of this host".to_owned(),
        }
    }

    pub(super) fn into_lane(self) -> io::Result<LaneSocket> {
        match self {
            Self::Tcp(stream) => LaneSocket::tcp(stream),
            Self::Unix(stream) => LaneSocket::unix(stream),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl io::Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(bytes),
            Stream::Unix(stream) => (&mut &*stream).read(bytes),
        }
    }
}

impl io::Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that cannot be guessed.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: the kernel writes at most the array's length.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    // Up to 256 bytes come whole or not at all.
    if usize::try_from(got) == Ok(N) { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}
