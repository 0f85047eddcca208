//! Lane: one socket of a connection, read and written by one worker.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::frame::{FRAME_BYTES, Frame, FrameKind};
use super::socket::LaneSocket;

/// Bytes that are read at once where a header is expected: short messages come with one system call.
const BUFFER_BYTES: usize = 16 << 10;

/// System calls for a lane until its worker looks at others.
const MAX_CALLS_AT_ONCE: usize = 16;

/// How long a lane that is no longer used waits for its peer to end, too.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The token of what belongs to no request.
pub const NO_REQUEST: u64 = u64::MAX;

/// Something to be written.
pub struct Output {
    /// What stands in front.
    pub header: Frame,
    /// From where the payload is read.
    pub payload: *const u8,
    /// By which the connection knows it again.
    pub token: u64,
    /// What is sent along, over lanes that pass descriptors.
    pub descriptor: Option<OwnedFd>,
}

impl Output {
    /// A frame without payload.
    pub fn plain(header: Frame) -> Self {
        Self { header, payload: core::ptr::null(), token: NO_REQUEST, descriptor: None }
    }
}

// SAFETY: the payload's memory is the program's, of which the connection promises that it may be read from any thread
// until it hears that the output is written, or the lane has stopped.
unsafe impl Send for Output {}

/// Where a payload goes.
#[derive(Debug, Clone, Copy)]
pub struct Destination {
    /// Where its bytes are written.
    pub memory: *mut u8,
    /// By which the connection knows it again.
    pub token: u64,
}

// SAFETY: the memory is the program's, of which the connection promises that it may be written from any thread until it
// hears that the payload is there, or the lane has stopped.
unsafe impl Send for Destination {}

/// How a lane ended.
#[derive(Debug)]
pub enum LaneEnd {
    /// The peer has ended its side between two frames.
    Closed,
    /// The peer has ended its side within a frame.
    CutOff,
    /// The system reports an error.
    Failed(io::Error),
    /// What came is no frame, or not one for this moment.
    Malformed(&'static str),
}

/// What a lane's frames belong to.
pub trait Connection: Send + Sync {
    /// The next that is to be written to a lane, if anything is. Its payload may be read until [`written`](Self::written),
    /// or until the lane is stopped.
    fn next_output(&self, lane: usize) -> Option<Output>;

    /// An output is written.
    fn written(&self, token: u64);

    /// A header came, and the last descriptor that came before it. Says where its payload goes, if it has one: there bytes may be written until
    /// [`received`](Self::received), or until the lane is stopped.
    ///
    /// # Errors
    /// Why there can be no such frame now.
    fn frame(&self, frame: &Frame, descriptor: Option<OwnedFd>) -> Result<Option<Destination>, &'static str>;

    /// A payload is there.
    fn received(&self, token: u64, bytes: u64);

    /// Looks at what goes on beside the lanes, such as copies of GPUs: by the worker of the first lane, when that was
    /// woken, and again and again as long as this says that something goes on.
    fn poll(&self) -> bool;

    /// A lane ended without having been told to.
    fn ended(&self, lane: usize, end: LaneEnd);
}

/// What comes next from the peer.
enum Input {
    Header,
    Payload { destination: Destination, bytes: usize, left: usize },
}

/// What is being written.
struct Writing {
    output: Output,
    header: [u8; FRAME_BYTES],
    written: usize,
}

/// Whether a lane stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stays {
    Yes,
    No,
}

/// A lane.
pub(super) struct Lane {
    pub(super) socket: LaneSocket,
    connection: Arc<dyn Connection>,
    index: usize,
    buffer: Box<[u8; BUFFER_BYTES]>,
    /// A descriptor that came, until the frame is read that it belongs to.
    descriptor: Option<OwnedFd>,
    /// The bytes of the buffer that were read and not looked at yet.
    filled: core::ops::Range<usize>,
    input: Input,
    writing: Option<Writing>,
    /// Whether its turn ended before everything was written.
    has_more: bool,
    /// Until when it waits for its peer to end.
    draining: Option<Instant>,
    /// Whether the peer has ended its side.
    has_ended: bool,
    has_ended_writing: bool,
}

impl Lane {
    pub(super) fn new(socket: LaneSocket, connection: Arc<dyn Connection>, index: usize) -> Self {
        Self {
            socket,
            connection,
            index,
            buffer: Box::new([0; BUFFER_BYTES]),
            descriptor: None,
            filled: 0..0,
            input: Input::Header,
            writing: None,
            has_more: false,
            draining: None,
            has_ended: false,
            has_ended_writing: false,
        }
    }

    /// Whether it waits for room, or for its next turn.
    pub(super) fn needs_write(&self) -> bool {
        self.writing.is_some() || self.has_more
    }

    /// Whether something may still come.
    pub(super) fn needs_read(&self) -> bool {
        !self.has_ended
    }

    /// From now on what comes is dropped, and the lane ends when nothing is left to be written and the peer has ended.
    pub(super) fn drain(&mut self) {
        self.draining = Some(Instant::now() + DRAIN_TIMEOUT);
        self.input = Input::Header;
        self.filled = 0..0;
        // Which payloads are under way is known: none that the program's memory is needed for.
        self.writing = self.writing.take().filter(|writing| writing.output.header.payload() == 0);
    }

    /// Looks at what goes on beside the connection's lanes, for its first lane; whether anything does.
    pub(super) fn poll(&self) -> bool {
        self.index == 0 && self.draining.is_none() && self.connection.poll()
    }

    /// When it ends at the latest, if it is to end.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.draining
    }

    /// Writes as much as there is room for.
    pub(super) fn write(&mut self) -> Stays {
        self.has_more = true;
        for _ in 0..MAX_CALLS_AT_ONCE {
            if self.writing.is_none() {
                self.writing = self.connection.next_output(self.index).map(|output| Writing {
                    header: output.header.encode(),
                    output,
                    written: 0,
                });
            }
            let Some(writing) = &mut self.writing else {
                self.has_more = false;
                if self.draining.is_some() && !self.has_ended_writing {
                    self.has_ended_writing = true;
                    self.socket.end_writing();
                }
                break;
            };
            let payload = writing.output.header.payload() as usize;
            let in_header = writing.written.min(FRAME_BYTES);
            let in_payload = writing.written - in_header;
            let ranges = [
                (writing.header[in_header..].as_ptr(), FRAME_BYTES - in_header),
                (writing.output.payload.wrapping_add(in_payload), payload - in_payload),
            ];
            let descriptor = writing.output.descriptor.as_ref().filter(|_| writing.written == 0);
            let descriptor = descriptor.map(|descriptor| descriptor.as_fd());
            // SAFETY: the header is this lane's, and the payload may be read until the output is reported as written.
            match unsafe { self.socket.write(ranges, descriptor) } {
                Ok(count) => writing.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.end(LaneEnd::Failed(error)),
            }
            if writing.written == FRAME_BYTES + payload {
                let token = writing.output.token;
                self.writing = None;
                self.connection.written(token);
            }
        }
        self.stays()
    }

    /// Reads what there is.
    pub(super) fn read(&mut self) -> Stays {
        for _ in 0..MAX_CALLS_AT_ONCE {
            if self.has_ended {
                break;
            }
            let got = match &mut self.input {
                Input::Payload { destination, left, .. } if self.draining.is_none() => {
                    // SAFETY: so many bytes may be written there until they are reported as received.
                    unsafe { self.socket.read(destination.memory, *left) }
                }
                _ => {
                    let got = self.socket.read_with_descriptor(&mut self.buffer[self.filled.end..]);
                    got.map(|(count, descriptor)| {
                        self.descriptor = descriptor.or(self.descriptor.take());
                        count
                    })
                }
            };
            match got {
                Ok(0) if self.draining.is_some() => self.has_ended = true,
                Ok(0) => self.peer_has_ended(),
                // It has closed without having read all, and what it had sent before was read here.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset && self.draining.is_none() => {
                    self.peer_has_ended();
                }
                Ok(_) if self.draining.is_some() => self.filled = 0..0,
                Ok(count) => {
                    if let Err(text) = self.advance(count) {
                        return self.end(LaneEnd::Malformed(text));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.end(LaneEnd::Failed(error)),
            }
        }
        self.stays()
    }

    fn peer_has_ended(&mut self) {
        self.has_ended = true;
        let is_between = matches!(self.input, Input::Header) && self.filled.is_empty();
        let end = if is_between { LaneEnd::Closed } else { LaneEnd::CutOff };
        self.connection.ended(self.index, end);
    }

    /// Looks at what was read.
    fn advance(&mut self, count: usize) -> Result<(), &'static str> {
        if let Input::Payload { destination, bytes, left } = &mut self.input {
            destination.memory = destination.memory.wrapping_add(count);
            *left -= count;
            if *left == 0 {
                let (token, bytes) = (destination.token, *bytes as u64);
                self.input = Input::Header;
                self.connection.received(token, bytes);
            }
            return Ok(());
        }
        self.filled.end += count;
        while self.filled.len() >= FRAME_BYTES {
            let start = self.filled.start;
            let header = core::array::from_fn(|at| self.buffer[start + at]);
            self.filled.start += FRAME_BYTES;
            let frame = Frame::decode(&header).ok_or("it sent something that is no frame")?;
            let descriptor = if frame.kind == FrameKind::Memory { self.descriptor.take() } else { None };
            let Some(destination) = self.connection.frame(&frame, descriptor)? else { continue };
            let bytes = usize::try_from(frame.payload()).map_err(|_| "a payload is longer than memory")?;
            let buffered = bytes.min(self.filled.len());
            // SAFETY: so many bytes may be written there; they are not this lane's own.
            unsafe {
                let from = self.buffer[self.filled.start..].as_ptr();
                destination.memory.copy_from_nonoverlapping(from, buffered);
            }
            self.filled.start += buffered;
            if buffered == bytes {
                self.connection.received(destination.token, bytes as u64);
                continue;
            }
            let memory = destination.memory.wrapping_add(buffered);
            let destination = Destination { memory, token: destination.token };
            self.input = Input::Payload { destination, bytes, left: bytes - buffered };
        }
        // The beginning of a header goes to the front.
        self.buffer.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        Ok(())
    }

    fn end(&mut self, end: LaneEnd) -> Stays {
        if self.draining.is_none() {
            self.connection.ended(self.index, end);
        }
        Stays::No
    }

    fn stays(&self) -> Stays {
        let is_over = self.draining.is_some() && self.has_ended && self.has_ended_writing;
        if is_over { Stays::No } else { Stays::Yes }
    }
}
