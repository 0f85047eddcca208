//! Byte stream of two ranks, whose reads and writes do not wait.

use std::io::{self, IoSlice, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use causeway_sync::descriptors::above_stdio;
use causeway_sync::fork::CloseOnFork;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};

use super::socket::Connection;
use super::stream::Stream;

/// A stream, both ends of which know who the other is.
#[derive(Debug)]
pub struct ByteStream {
    /// In front of the stream, so that it goes first.
    _close_on_fork: CloseOnFork,
    stream: Stream,
}

impl Connection {
    /// The connection as a stream of bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn into_byte_stream(self) -> io::Result<ByteStream> {
        self.stream.set_nonblocking(true)?;
        Ok(ByteStream { _close_on_fork: self._close_on_fork, stream: self.stream })
    }
}

impl ByteStream {
    /// One end of a new pair, and the descriptor of the other one, which goes to another rank of this host.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::of_descriptor(ours.into())?, theirs.into()))
    }

    /// The other end of a pair.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let stream = Stream::Unix(above_stdio(UnixStream::from(descriptor))?);
        stream.set_nonblocking(true)?;
        Ok(Self { _close_on_fork: CloseOnFork::new(&stream), stream })
    }

    /// Reads what is there; `None` where nothing is yet, and 0 at the end.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn read(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.stream).read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome.map(Some),
            }
        }
    }

    /// Writes what there is capacity for of one part and the one behind it; 0 where there is none.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn write(&self, parts: [&[u8]; 2]) -> io::Result<usize> {
        let parts = parts.map(IoSlice::new);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.stream, &parts, &mut SendAncillaryBuffer::default(), flags) {
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    /// Says that nothing more is written.
    pub fn end_writing(&self) {
        // Where the other end has gone there is nothing to say.
        let _ = shutdown(&self.stream, Shutdown::Write);
    }

    /// Ends it in both directions.
    pub fn shut(&self) {
        self.stream.shut();
    }
}

impl AsFd for ByteStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
