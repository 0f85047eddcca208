//! The two directions of a connection, encrypted or not.
//!
//! Memory of the program (the source or the destination of a large copy) is handed to the kernel as it is,
//! never as a Rust slice: the program's other threads may touch it meanwhile. On an encrypted connection it
//! is copied into a record before it is encrypted, and decrypted where it arrives.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_wire::frame::{FrameError, FrameHeader, FrameKind, HEADER_SIZE};
use rustix::net::{RecvFlags, SendFlags};
use thiserror::Error;

use super::record::{Cipher, ConnectionKeys, LENGTH_SIZE, MAX_RECORD, TAG_SIZE};
use super::splice::Pipe;
use super::transmit::{EndedBetween, io_vector, receive_some, receive_vectored, send_all, send_vectored};

/// Records that are sent with one system call.
const RECORDS_AT_ONCE: usize = 4;

/// Bytes that an encrypted connection asks the kernel for at once.
const READ_SIZE: usize = 256 << 10;

/// From this many bytes on, references to pages cost less than a copy.
const WORTH_REFERRING: usize = 64 << 10;

/// An open connection: what both directions share.
pub type Socket = Arc<TcpStream>;

/// Ends both directions of a connection at once, whoever is waiting on it.
pub fn shut_down(socket: &Socket) {
    // An error means that the connection has ended already, which is what is wanted.
    let _ = socket.shutdown(Shutdown::Both);
}

/// Ends a connection so that what was sent last still reaches the peer.
///
/// Closing a socket with unread bytes resets the connection, which can overtake the last words; so the peer's
/// bytes are read and dropped until it ends the connection too, for half a second at most.
pub fn end_after_last_words(socket: &Socket) {
    let deadline = Instant::now() + Duration::from_millis(500);
    // Errors here and below mean that the connection has ended already.
    let _ = socket.shutdown(Shutdown::Write);
    let mut dropped = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match receive_some(socket.as_fd(), &mut dropped, RecvFlags::empty()) {
            Ok(count) if count > 0 => {}
            _ => return,
        }
    }
}

/// A connection that is authenticated, between messages, and may be handed to another process.
#[derive(Debug)]
pub struct Connection {
    /// The direction to the peer.
    pub outgoing: Outgoing,
    /// The direction from the peer.
    pub incoming: Incoming,
}

impl Connection {
    /// Takes over a connection; `keys` are there when it is encrypted.
    pub fn new(socket: TcpStream, keys: Option<ConnectionKeys>) -> Self {
        let socket = Arc::new(socket);
        let (send, receive) = match keys {
            Some(keys) => (Some(Cipher::new(keys.send)), Some(Cipher::new(keys.receive))),
            None => (None, None),
        };
        Self {
            outgoing: Outgoing { socket: Arc::clone(&socket), cipher: send, scratch: Vec::new(), pipe: None },
            incoming: Incoming {
                socket,
                cipher: receive,
                sealed: Vec::new(),
                start: 0,
                plain_end: 0,
                end: 0,
                read_ahead: false,
            },
        }
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.outgoing.socket
    }

    /// The state of the encryption, for another process that goes on with this connection.
    ///
    /// # Errors
    /// When the peer sent more than it may before it was answered.
    pub fn into_keys(self) -> Result<Option<ConnectionKeys>, SpokeTooSoon> {
        if self.incoming.end > self.incoming.start {
            return Err(SpokeTooSoon);
        }
        Ok(match (self.outgoing.cipher, self.incoming.cipher) {
            (Some(send), Some(receive)) => {
                Some(ConnectionKeys { send: send.into_state(), receive: receive.into_state() })
            }
            _ => None,
        })
    }

    /// Sends one handshake frame.
    pub fn send_handshake(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let frame = handshake_frame(encode);
        self.outgoing.send(&frame)
    }

    /// Receives one handshake frame of at most `limit` bytes, and not a byte beyond it.
    pub fn receive_handshake(
        &mut self,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<u8>, HandshakeReadError> {
        let mut header = [0; HEADER_SIZE];
        self.incoming.receive_exact(&mut header, deadline)?;
        let header = FrameHeader::parse(&header, limit)?;
        if header.kind != FrameKind::Handshake || header.sequence != 0 || header.acknowledgement != 0 {
            return Err(HandshakeReadError::NoHandshake);
        }
        // The body grows as its bytes arrive, so an announced length alone costs nothing.
        let mut body = Vec::new();
        while body.len() < header.length as usize {
            let start = body.len();
            body.resize((start + MAX_RECORD).min(header.length as usize), 0);
            self.incoming.receive_exact(&mut body[start..], deadline)?;
        }
        Ok(body)
    }
}

/// A handshake frame around what `encode` appends.
pub fn handshake_frame(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = vec![0; HEADER_SIZE];
    encode(&mut frame);
    let length = (frame.len() - HEADER_SIZE) as u32;
    let header = FrameHeader { kind: FrameKind::Handshake, length, sequence: 0, acknowledgement: 0 };
    frame[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
    frame
}

/// The peer sent bytes before it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the peer sent more before it was answered")]
pub struct SpokeTooSoon;

/// Why a handshake frame could not be received.
#[derive(Debug, Error)]
pub enum HandshakeReadError {
    /// The connection failed or ended.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame of another kind came.
    #[error("the peer sent a frame that does not belong to the handshake")]
    NoHandshake,
}

/// The direction to the peer.
#[derive(Debug)]
pub struct Outgoing {
    socket: Socket,
    cipher: Option<Cipher>,
    /// Sealed records on their way to the kernel.
    scratch: Vec<u8>,
    /// What steady memory goes through.
    pipe: Option<Pipe>,
}

impl Outgoing {
    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// From here on steady memory is sent without being copied, where the system can and nothing is encrypted. The
    /// descriptors that this takes.
    pub fn send_by_reference(&mut self) -> Option<[RawFd; 2]> {
        if self.cipher.is_none() {
            self.pipe = Pipe::new().inspect_err(|error| tracing::info!("sending by copying: {error}")).ok();
        }
        self.pipe.as_ref().map(Pipe::descriptors)
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { socket, cipher, scratch, .. } = self;
        let Some(cipher) = cipher else {
            return send_all(socket.as_fd(), bytes, SendFlags::empty());
        };
        for piece in bytes.chunks(RECORDS_AT_ONCE * MAX_RECORD) {
            scratch.clear();
            for record in piece.chunks(MAX_RECORD) {
                cipher.append(scratch, record.len(), |out| out.extend_from_slice(record));
            }
            send_all(socket.as_fd(), scratch, SendFlags::empty())?;
        }
        Ok(())
    }

    /// Sends `headers` and the `length` bytes at `data`, with one system call where the kernel takes them at
    /// once. On an encrypted connection each header is a record of its own and the data are cut into full
    /// records, which is what [`Incoming::receive_exact_raw`] counts on.
    ///
    /// # Safety
    /// The memory must be readable, if it is `steady` until the peer has it; other threads may write to it, and then either
    /// value is sent.
    pub unsafe fn send_with_data<const N: usize>(
        &mut self,
        headers: &[[u8; N]],
        data: *const u8,
        length: usize,
        steady: bool,
    ) -> io::Result<()> {
        let Self { socket, cipher, scratch, pipe } = self;
        let Some(cipher) = cipher else {
            let (mut header, mut data, mut length) = (headers.as_flattened(), data, length);
            if steady
                && length >= WORTH_REFERRING
                && let Some(pipe) = pipe
            {
                send_all(socket.as_fd(), header, SendFlags::MORE)?;
                // SAFETY: the caller vouches for the data.
                let sent = unsafe { pipe.send(&**socket, data, length)? };
                (header, data, length) = (&[], data.wrapping_add(sent), length - sent);
            }
            let mut parts = [io_vector(header.as_ptr(), header.len()), io_vector(data, length)];
            // SAFETY: the headers are a live slice; the caller vouches for the data.
            return unsafe { send_vectored(socket.as_fd(), &mut parts) };
        };
        scratch.clear();
        for header in headers {
            cipher.append(scratch, N, |out| out.extend_from_slice(header));
        }
        let mut sent = 0;
        while sent < length {
            for _ in 0..RECORDS_AT_ONCE {
                let record = (length - sent).min(MAX_RECORD);
                if record == 0 {
                    break;
                }
                cipher.append(scratch, record, |out| {
                    out.reserve(record);
                    // SAFETY: the caller vouches for the source; `reserve` made room behind the vector's end,
                    // and exactly the bytes copied become part of it.
                    unsafe {
                        let end = out.as_mut_ptr().add(out.len());
                        core::ptr::copy_nonoverlapping(data.add(sent), end, record);
                        out.set_len(out.len() + record);
                    }
                });
                sent += record;
            }
            send_all(socket.as_fd(), scratch, SendFlags::empty())?;
            scratch.clear();
        }
        if scratch.is_empty() { Ok(()) } else { send_all(socket.as_fd(), scratch, SendFlags::empty()) }
    }
}

/// The direction from the peer.
#[derive(Debug)]
pub struct Incoming {
    socket: Socket,
    cipher: Option<Cipher>,
    /// Bytes of an encrypted connection: `start..plain_end` are decrypted and not handed out yet,
    /// `plain_end..end` still sealed. Between records `start == plain_end`.
    sealed: Vec<u8>,
    start: usize,
    plain_end: usize,
    end: usize,
    /// Whether more than the record under way may be asked for.
    read_ahead: bool,
}

impl Incoming {
    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// From here on as many bytes are asked for as there is room for. Only after the handshake, when nobody
    /// else will go on reading from the connection.
    pub fn read_ahead(&mut self) {
        self.read_ahead = true;
    }

    /// Receives some bytes; 0 when the peer has ended the connection. With `wait` false the error is
    /// [`io::ErrorKind::WouldBlock`] when nothing is there.
    pub fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<usize> {
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        if self.cipher.is_none() {
            return receive_some(self.socket.as_fd(), into, flags);
        }
        loop {
            let plain = &self.sealed[self.start..self.plain_end];
            if !plain.is_empty() {
                let count = plain.len().min(into.len());
                into[..count].copy_from_slice(&plain[..count]);
                self.start += count;
                if self.start == self.plain_end {
                    // Step over the tag.
                    self.start += TAG_SIZE;
                    self.plain_end = self.start;
                }
                return Ok(count);
            }
            let missing = self.open_next_record()?;
            if missing > 0 && self.receive_sealed(missing, flags)? == 0 {
                return match self.end - self.start {
                    0 => Ok(0),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Opens the record at `start` if it is there; otherwise says how many bytes of it are missing at least.
    fn open_next_record(&mut self) -> io::Result<usize> {
        let Self { cipher, sealed, start, plain_end, end, .. } = self;
        let Some((length, _)) = sealed[*start..*end].split_first_chunk::<LENGTH_SIZE>() else {
            return Ok(LENGTH_SIZE - (*end - *start));
        };
        let length = record_length(*length)?;
        let whole = LENGTH_SIZE + length + TAG_SIZE;
        if *end - *start < whole {
            return Ok(whole - (*end - *start));
        }
        let (body, tag) = sealed[*start + LENGTH_SIZE..*start + whole].split_at_mut(length);
        let tag = (&*tag).try_into().expect("the tag was split off at its size");
        let cipher = cipher.as_mut().expect("records come on encrypted connections only");
        cipher.open(body, tag).map_err(io::Error::other)?;
        *start += LENGTH_SIZE;
        *plain_end = *start + length;
        if length == 0 {
            *start += TAG_SIZE;
            *plain_end = *start;
        }
        Ok(0)
    }

    fn receive_sealed(&mut self, missing: usize, flags: RecvFlags) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.plain_end, self.end) = (0, 0, 0);
        }
        if self.end + missing > self.sealed.len() {
            self.sealed.copy_within(self.start..self.end, 0);
            (self.start, self.plain_end, self.end) = (0, 0, self.end - self.start);
            if self.sealed.len() < self.end + missing {
                self.sealed.resize(READ_SIZE, 0);
            }
        }
        let room = if self.read_ahead { self.sealed.len() - self.end } else { missing };
        let count = receive_some(self.socket.as_fd(), &mut self.sealed[self.end..self.end + room], flags)?;
        self.end += count;
        Ok(count)
    }

    /// Fills `into` before `deadline` is over.
    pub fn receive_exact(&mut self, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !into.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.receive(into, true) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
        self.socket.set_read_timeout(None)
    }

    /// Receives the header of a chunk; `Ok(false)` when the peer has ended the connection between chunks.
    pub fn receive_header<const N: usize>(&mut self, header: &mut [u8; N]) -> io::Result<bool> {
        // SAFETY: the header is a live, exclusively borrowed array.
        match unsafe { self.receive_exact_raw(header.as_mut_ptr(), N) } {
            Ok(()) => Ok(true),
            Err(error) if error.get_ref().is_some_and(|inner| inner.is::<EndedBetween>()) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Receives exactly `length` bytes straight to `into`, as [`Outgoing::send_with_data`] sent them.
    ///
    /// # Safety
    /// The memory must be writable; on an encrypted connection no other thread may touch it meanwhile.
    pub unsafe fn receive_exact_raw(&mut self, into: *mut u8, length: usize) -> io::Result<()> {
        debug_assert!(!self.read_ahead, "bytes read ahead would be passed over");
        let Some(cipher) = &mut self.cipher else {
            let mut part = [io_vector(into, length)];
            // SAFETY: the caller vouches for the memory.
            return unsafe { receive_vectored(self.socket.as_fd(), &mut part) };
        };
        let mut done = 0;
        while done < length {
            let mut frames = [([0_u8; LENGTH_SIZE], [0_u8; TAG_SIZE]); RECORDS_AT_ONCE];
            let mut parts = [io_vector(core::ptr::null(), 0); 3 * RECORDS_AT_ONCE];
            let mut batch = 0;
            for (frame, parts) in frames.iter_mut().zip(parts.chunks_exact_mut(3)) {
                let record = (length - done - batch).min(MAX_RECORD);
                if record == 0 {
                    break;
                }
                parts[0] = io_vector(frame.0.as_mut_ptr(), LENGTH_SIZE);
                // SAFETY: the record lies inside the memory that the caller vouches for.
                parts[1] = io_vector(unsafe { into.add(done + batch) }, record);
                parts[2] = io_vector(frame.1.as_mut_ptr(), TAG_SIZE);
                batch += record;
            }
            let records = batch.div_ceil(MAX_RECORD);
            // SAFETY: lengths and tags lie in `frames`, which outlives the call; the caller vouches for the
            // rest.
            unsafe { receive_vectored(self.socket.as_fd(), &mut parts[..3 * records])? };
            for (sent_length, tag) in &frames[..records] {
                let record = (length - done).min(MAX_RECORD);
                if record_length(*sent_length)? != record {
                    return Err(io::Error::other("the records of a chunk are not cut where they must be"));
                }
                // SAFETY: these bytes were just received; the caller vouches that nobody else touches them.
                let bytes = unsafe { core::slice::from_raw_parts_mut(into.add(done), record) };
                cipher.open(bytes, *tag).map_err(io::Error::other)?;
                done += record;
            }
        }
        Ok(())
    }
}

fn record_length(bytes: [u8; LENGTH_SIZE]) -> io::Result<usize> {
    let length = u32::from_le_bytes(bytes) as usize;
    if length <= MAX_RECORD {
        Ok(length)
    } else {
        Err(io::Error::other(format!(
            "an encrypted record announces {length} bytes; at most {MAX_RECORD} are accepted"
        )))
    }
}
