//! Stream of frames and payloads over a byte stream, on which nothing waits, and the errors of a link.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::bootstrap::ByteStream;
use crate::device::failure::{Failure, Status};
use crate::device::gpu::GpuError;
use crate::device::remote::frame::{FRAME_BYTES, Frame, MAX_PAYLOAD};
use crate::device::remote::parts::Part;

/// Bytes that are collected before they are written, and that are read at once.
const BUFFER: usize = 32 << 10;

/// A payload up to which it is written with the frames around it.
const MAX_INLINE: u64 = 4 << 10;

/// A payload that is to be written.
#[derive(Debug)]
pub struct Payload {
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The part from which it is, which is kept.
    pub part: Arc<Part>,
    /// Whether it lies in staging memory, which is freed behind it.
    pub is_staged: bool,
    /// Whether it answers a get; else it is a put's.
    pub is_reply: bool,
}

impl Payload {
    fn slice(&self, from: u64) -> &[u8] {
        // SAFETY: a range of a part, which is kept, or of staging memory that is not freed before; that no
        // one writes it meanwhile is for the program to see to, as with any put.
        unsafe {
            core::slice::from_raw_parts((self.address + from) as *const u8, (self.bytes - from) as usize)
        }
    }
}

/// What is to be written.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: Vec<u8>,
    written: usize,
    /// What comes behind the buffer, and how much of it is written.
    payload: Option<(Payload, u64)>,
}

impl Writer {
    /// Whether a frame more may be pushed.
    pub fn has_capacity(&self) -> bool {
        self.payload.is_none() && self.buffer.len() < BUFFER
    }

    /// Whether all is written.
    pub fn is_empty(&self) -> bool {
        self.payload.is_none() && self.buffer.is_empty()
    }

    /// Adds a frame and its payload, which comes back if it has been read.
    pub fn push(&mut self, frame: &Frame, payload: Option<Payload>) -> Option<Payload> {
        self.buffer.extend_from_slice(&frame.encode());
        let payload = payload?;
        if payload.bytes <= MAX_INLINE {
            self.buffer.extend_from_slice(payload.slice(0));
            return Some(payload);
        }
        self.payload = Some((payload, 0));
        None
    }

    /// Writes what there is capacity for: how much, and the payload if that was all of it.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn flush(&mut self, stream: &ByteStream) -> io::Result<(usize, Option<Payload>)> {
        if self.is_empty() {
            return Ok((0, None));
        }
        let behind = self.payload.as_ref().map_or(&[][..], |(payload, written)| payload.slice(*written));
        let count = stream.write([&self.buffer[self.written..], behind])?;
        let of_buffer = count.min(self.buffer.len() - self.written);
        self.written += of_buffer;
        if self.written == self.buffer.len() {
            self.buffer.clear();
            self.written = 0;
        }
        if let Some((payload, written)) = &mut self.payload {
            *written += (count - of_buffer) as u64;
            if *written == payload.bytes {
                return Ok((count, self.payload.take().map(|(payload, _)| payload)));
            }
        }
        Ok((count, None))
    }
}

/// What is read.
#[derive(Debug)]
pub struct Reader {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Where the rest of a payload goes, and its bytes.
    payload: Option<(u64, u64)>,
}

impl Default for Reader {
    fn default() -> Self {
        Self { buffer: vec![0; BUFFER].into_boxed_slice(), start: 0, end: 0, payload: None }
    }
}

impl Reader {
    /// The next frame, if all of it is there.
    ///
    /// # Errors
    /// When the peer has ended, or says something else than a frame.
    pub fn frame(&mut self, stream: &ByteStream) -> Result<Option<Frame>, LinkError> {
        while self.end - self.start < FRAME_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match stream.read(&mut self.buffer[self.end..])? {
                None => return Ok(None),
                Some(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Some(count) => self.end += count,
            }
        }
        let bytes = core::array::from_fn(|at| self.buffer[self.start + at]);
        self.start += FRAME_BYTES;
        Frame::decode(&bytes)
            .map(Some)
            .ok_or(LinkError::Wrong("it sends bytes that are not a frame of a team"))
    }

    /// What follows is a payload, which goes there.
    ///
    /// # Safety
    /// So much memory of this process is there, and stays until the payload is read.
    pub unsafe fn begin_payload(&mut self, address: u64, bytes: u32) {
        debug_assert!(bytes <= MAX_PAYLOAD, "frames are bounded");
        self.payload = Some((address, u64::from(bytes)));
    }

    /// Reads of the payload what is there: whether that was the rest of it.
    ///
    /// # Errors
    /// When the peer has ended.
    pub fn payload(&mut self, stream: &ByteStream) -> Result<bool, LinkError> {
        while let Some((address, left)) = &mut self.payload {
            // SAFETY: whoever called `begin_payload` keeps so many bytes there until the payload is read.
            // That they have no other use meanwhile is for the programs to see to, as with any put.
            let target = unsafe { core::slice::from_raw_parts_mut(*address as *mut u8, *left as usize) };
            let buffered = &self.buffer[self.start..self.end];
            let count = if buffered.is_empty() {
                match stream.read(target)? {
                    None => return Ok(false),
                    Some(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    Some(count) => count,
                }
            } else {
                let count = buffered.len().min(target.len());
                target[..count].copy_from_slice(&buffered[..count]);
                self.start += count;
                count
            };
            *address += count as u64;
            *left -= count as u64;
            if *left == 0 {
                self.payload = None;
            }
        }
        Ok(true)
    }
}

/// Why a link has come to an end.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The peer, or the network, has gone.
    #[error("the connection has ended: {0}")]
    Lost(#[from] io::Error),
    /// This rank's GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// This rank's network card.
    #[error("{0}")]
    Nic(String),
    /// A kernel here uses a window that was freed.
    #[error("a window was freed while a kernel used it")]
    Freed,
    /// The peer asks for what it must not, or answers what was not asked.
    #[error("{0}")]
    Wrong(&'static str),
}

impl LinkError {
    /// The peer's position that was refused.
    pub fn refused(status: Status) -> Self {
        Self::Wrong(match status {
            Status::OtherTeam => "it names a window that this rank does not have",
            Status::OutOfBounds => "it names bytes that do not lie in the window",
            Status::Misaligned => "it names a word at no multiple of 8",
            _ => "it asks for what this rank cannot do",
        })
    }

    /// Why the team ends, whose rank this is.
    pub fn into_failure(self, rank: u32, peer: u32) -> Failure {
        match self {
            Self::Lost(cause) if is_end(&cause) => Failure::Peer(peer),
            Self::Gpu(cause) => Failure::Gpu { rank, cause },
            error => Failure::Link { rank, peer, cause: error.to_string() },
        }
    }
}

/// Whether the peer has ended, rather than the network.
fn is_end(cause: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(cause.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}
