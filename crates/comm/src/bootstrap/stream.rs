//! What joins two ranks: a Unix socket, or a connection of TCP.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;

/// A stream of bytes in both directions.
#[derive(Debug)]
pub(super) enum Stream {
    /// Within a host. It carries descriptors.
    Unix(UnixStream),
    /// Over a network.
    Tcp(TcpStream),
}

/// How long a host may not acknowledge what was sent to it: then it is taken for gone. With the last question
/// that it may not answer, nobody waits longer than ten seconds.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(8);

impl Stream {
    /// A connection of TCP, which ends soon when the other host is gone without a word.
    pub(super) fn over_network(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_TIMEOUT.as_millis() as u32)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, UNACKNOWLEDGED_TIMEOUT / 2)?;
        sockopt::set_tcp_keepintvl(&stream, UNACKNOWLEDGED_TIMEOUT / 5)?;
        Ok(Self::Tcp(stream))
    }

    /// Whether the stream goes over a network.
    pub(super) fn is_network(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// The addresses of this end and the other one, of a network.
    pub(super) fn addresses(&self) -> Option<[IpAddr; 2]> {
        let Self::Tcp(stream) = self else { return None };
        let ends = [stream.local_addr().ok()?, stream.peer_addr().ok()?];
        Some(ends.map(|end| end.ip().to_canonical()))
    }

    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    pub(super) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_write_timeout(timeout),
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
        }
    }

    pub(super) fn set_nonblocking(&self, is_so: bool) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(is_so),
            Self::Tcp(stream) => stream.set_nonblocking(is_so),
        }
    }

    /// Ends it in both directions, for whoever waits at either end.
    pub(super) fn shut(&self) {
        // Where the other end has gone there is nothing to end.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).read(bytes),
            Stream::Tcp(stream) => (&mut &*stream).read(bytes),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
