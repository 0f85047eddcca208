//! Questions and answers over one connection: what a monitoring session needs, which has no posted calls, no
//! transfers and no threads.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant};

use causeway_wire::frame::{FrameError, FrameHeader, FrameKind, HEADER_SIZE};
use thiserror::Error;

use crate::channel::Connection;
use crate::socket::path_mtu;

/// The longest question or answer in bytes.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// How long the rest of a message may take once it has begun, and how long the peer may take nothing of one.
const REST: Duration = Duration::from_secs(30);

/// Why an exchange has ended. Nothing can be asked over it any more.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The frame is not the one that comes next.
    #[error("the peer sent an unexpected message")]
    Unexpected,
    /// The message is too long to be sent.
    #[error("a message of {0} bytes is too long; at most {MAX_MESSAGE_BYTES} are accepted")]
    TooLong(usize),
}

/// One end of a connection on which messages go to and fro.
#[derive(Debug)]
pub struct Exchange {
    connection: Connection,
    sent: u64,
    received: u64,
}

impl Exchange {
    /// Over an authenticated connection on which nothing else is under way.
    pub fn new(connection: Connection) -> Self {
        // Whoever takes nothing holds nobody up for longer; where that cannot be had it is as without.
        let _ = connection.socket().set_write_timeout(Some(REST));
        Self { connection, sent: 0, received: 0 }
    }

    /// The connection's descriptor, for a forked child that closes its copy.
    pub fn descriptor(&self) -> RawFd {
        self.connection.socket().as_raw_fd()
    }

    /// Bytes of the longest packet on the way to the peer, where the kernel knows.
    pub fn path_mtu(&self) -> Option<u32> {
        path_mtu(self.connection.socket())
    }

    /// Sends one message.
    pub fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), ExchangeError> {
        let mut frame = vec![0; HEADER_SIZE];
        encode(&mut frame);
        let length = frame.len() - HEADER_SIZE;
        if length > MAX_MESSAGE_BYTES {
            return Err(ExchangeError::TooLong(length));
        }
        self.sent += 1;
        let header = FrameHeader {
            kind: FrameKind::Messages,
            length: length as u32,
            sequence: self.sent,
            acknowledgement: self.received,
        };
        frame[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
        Ok(self.connection.outgoing.send(&frame)?)
    }

    /// Receives one message, which must begin within `timeout`; `None` when the peer has ended the
    /// connection.
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>, ExchangeError> {
        let mut header = [0; HEADER_SIZE];
        self.connection.socket().set_read_timeout(timeout)?;
        let started = self.connection.incoming.receive(&mut header, true)?;
        if started == 0 {
            return Ok(None);
        }
        let deadline = Instant::now() + REST;
        self.connection.incoming.receive_exact(&mut header[started..], deadline)?;
        let header = FrameHeader::parse(&header, MAX_MESSAGE_BYTES)?;
        self.received += 1;
        if header.kind != FrameKind::Messages || header.sequence != self.received {
            return Err(ExchangeError::Unexpected);
        }
        // The body grows as its bytes arrive, so an announced length alone costs nothing.
        let (length, mut body) = (header.length as usize, Vec::new());
        while body.len() < length {
            let start = body.len();
            body.resize((start + (64 << 10)).min(length), 0);
            self.connection.incoming.receive_exact(&mut body[start..], deadline)?;
        }
        Ok(Some(body))
    }

    /// Sends a question and receives its answer, which must begin within `timeout`; `None` when the peer has
    /// ended the connection.
    pub fn request(
        &mut self,
        timeout: Duration,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<Vec<u8>>, ExchangeError> {
        self.send(encode)?;
        self.receive(Some(timeout))
    }
}
