//! Receive direction of a connection.

use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use causeway_sync::spin;
use rustix::net::RecvFlags;

use super::socket::{RECORDS_AT_ONCE, Socket};
use crate::record::{Cipher, LENGTH_SIZE, MAX_RECORD, TAG_SIZE};
use crate::transmit::{EndedBetween, io_vector, receive_some, receive_vectored};

/// Bytes that an encrypted connection asks the kernel for at once.
const READ_SIZE: usize = 256 << 10;

/// How long is looked for bytes when the time for them is over.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// How much longer an answer may take on a machine that has more to do than it can.
const ON_BUSY_MACHINES: Duration = Duration::from_secs(25);

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
    pub(super) fn new(socket: Socket, cipher: Option<Cipher>) -> Self {
        Self { socket, cipher, sealed: Vec::new(), start: 0, plain_end: 0, end: 0, read_ahead: false }
    }

    /// Whether bytes have come that were not handed out.
    pub(super) fn has_bytes(&self) -> bool {
        self.end > self.start
    }

    /// From here on bytes come in the clear.
    pub(super) fn disable_encryption(&mut self) {
        self.cipher = None;
    }

    /// What decrypts, for another process that goes on with the connection.
    pub(super) fn into_cipher(self) -> Option<Cipher> {
        self.cipher
    }

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
        let capacity = if self.read_ahead { self.sealed.len() - self.end } else { missing };
        let count =
            receive_some(self.socket.as_fd(), &mut self.sealed[self.end..self.end + capacity], flags)?;
        self.end += count;
        Ok(count)
    }

    /// Fills `into` before `deadline` is over; on a machine that is overloaded, some time later.
    pub fn receive_exact(&mut self, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !into.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            // What has come while this thread could not run is there at once.
            self.socket.set_read_timeout(Some(left.max(LAST_LOOK)))?;
            match self.receive(into, true) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => into = &mut into[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The peer may be on the same machine, or this end may be why it has not spoken.
                    if !spin::is_overcommitted() || Instant::now() >= deadline + ON_BUSY_MACHINES {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
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

    /// Receives exactly `length` bytes straight to `into`, as
    /// [`Outgoing::send_with_data`](super::Outgoing::send_with_data) sent them.
    ///
    /// # Safety
    /// The memory must be writable; on an encrypted connection no other thread may touch it meanwhile.
    pub unsafe fn receive_exact_raw(&mut self, into: *mut u8, length: usize) -> io::Result<()> {
        debug_assert!(!self.read_ahead, "bytes read ahead would be passed over");
        let Some(cipher) = &mut self.cipher else {
            let mut part = [io_vector(into, length)];
            // SAFETY: the caller has `length` bytes writable at `into` until this returns.
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
