//! Frames: the units in which messages travel on the command connection.
//!
//! A frame is a [`FrameHeader`] of [`HEADER_SIZE`] bytes and a body of concatenated messages. All numbers are
//! little-endian:
//!
//! | Bytes  | Field                                                             |
//! |--------|-------------------------------------------------------------------|
//! | 0..3   | magic, [`MAGIC`]                                                  |
//! | 3      | kind, see [`FrameKind`]                                           |
//! | 4..8   | length of the body in bytes, at most [`MAX_BODY`]                 |
//! | 8..16  | sequence number, counted from 1 in each direction                 |
//! | 16..24 | acknowledgement: the last frame of the other direction dealt with |

use thiserror::Error;

/// Size of an encoded [`FrameHeader`] in bytes.
pub const HEADER_SIZE: usize = 24;

/// The largest body a frame may have, in bytes.
pub const MAX_BODY: usize = 16 << 20;

/// The largest single message in bytes. It leaves room for the batch that the message is appended to.
pub const MAX_MESSAGE: usize = MAX_BODY - (1 << 20);

/// The largest body of a handshake frame from a peer that has not been authenticated, in bytes.
pub const MAX_OPENING: usize = 64 << 10;

/// The first three bytes of every frame.
pub const MAGIC: [u8; 3] = *b"CwF";

/// How much a [`FrameReader`] asks for at once while it does not know how long the next frame is.
const READ_SIZE: usize = 256 << 10;

/// What the body of a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// One message of [`crate::handshake`]; not numbered.
    Handshake = 1,
    /// Messages of [`crate::message`].
    Messages = 2,
    /// The same, compressed as [`crate::compressed`] says.
    CompressedMessages = 3,
    /// Nothing: the sender has closed the session. It is sent where a connection that ends would be taken for one
    /// that is to be replaced.
    Goodbye = 4,
}

/// The fixed part in front of a frame's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the body holds.
    pub kind: FrameKind,
    /// Bytes in the body.
    pub length: u32,
    /// Number of this frame in its direction, from 1; 0 in a handshake.
    pub sequence: u64,
    /// Number of the last frame of the other direction that was dealt with completely.
    pub acknowledgement: u64,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The bytes do not begin with [`MAGIC`].
    #[error(
        "a frame begins with the bytes {found:02x?} instead of {MAGIC:02x?}: the peer does not speak this \
         protocol"
    )]
    BadMagic {
        /// The bytes found.
        found: [u8; 3],
    },
    /// The kind is none of [`FrameKind`].
    #[error("a frame has the undefined kind {0}")]
    UnknownKind(u8),
    /// The body is longer than the receiver accepts here.
    #[error("a frame announces a body of {length} bytes; at most {limit} are accepted")]
    Oversize {
        /// Bytes announced.
        length: u32,
        /// Bytes accepted.
        limit: usize,
    },
}

impl FrameHeader {
    /// The header as it travels.
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.acknowledgement.to_le_bytes());
        bytes
    }

    /// Reads a header; `limit` is the longest body accepted here.
    pub fn parse(bytes: &[u8; HEADER_SIZE], limit: usize) -> Result<Self, FrameError> {
        let [m0, m1, m2, kind, l0, l1, l2, l3, numbers @ ..] = *bytes;
        if [m0, m1, m2] != MAGIC {
            return Err(FrameError::BadMagic { found: [m0, m1, m2] });
        }
        let kind = match kind {
            1 => FrameKind::Handshake,
            2 => FrameKind::Messages,
            3 => FrameKind::CompressedMessages,
            4 => FrameKind::Goodbye,
            other => return Err(FrameError::UnknownKind(other)),
        };
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length as usize > limit {
            return Err(FrameError::Oversize { length, limit });
        }
        let numbers = u128::from_le_bytes(numbers);
        Ok(Self { kind, length, sequence: numbers as u64, acknowledgement: (numbers >> 64) as u64 })
    }
}

/// Cuts a stream of bytes into frames.
///
/// The owner reads from its connection into [`space`](Self::space), reports the count with
/// [`filled`](Self::filled) and takes frames with [`next_frame`](Self::next_frame) until there is none.
/// Bodies are handed out as slices of the buffer, so a byte is never copied here except to close the gap
/// that consumed frames leave in front of a partial one.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// First byte that has not been handed out.
    start: usize,
    /// End of the bytes received.
    end: usize,
    limit: usize,
}

impl FrameReader {
    /// A reader that refuses bodies above `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, end: 0, limit }
    }

    /// Where the next bytes from the connection go; never empty.
    ///
    /// The buffer at most doubles each time, so that a peer must send bytes before memory is spent on the
    /// length that it announced.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > 4 * READ_SIZE {
                self.buffer = Vec::new();
            }
        } else if self.start > 0 && self.buffer.len() - self.end < READ_SIZE / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < READ_SIZE / 2 {
            let doubled = (2 * self.buffer.len()).max(READ_SIZE);
            self.buffer.resize(doubled.min(self.end + self.limit + HEADER_SIZE), 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Says that the first `count` bytes of [`space`](Self::space) now hold received bytes.
    ///
    /// # Panics
    /// When `count` is more than that space.
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.end, "more bytes reported than there was space for");
        self.end += count;
    }

    /// Takes the next complete frame, if there is one. After an error the stream cannot be understood any
    /// more.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let received = &self.buffer[self.start..self.end];
        let Some((header, rest)) = received.split_first_chunk::<HEADER_SIZE>() else {
            return Ok(None);
        };
        let header = FrameHeader::parse(header, self.limit)?;
        if rest.len() < header.length as usize {
            return Ok(None);
        }
        let body_start = self.start + HEADER_SIZE;
        self.start = body_start + header.length as usize;
        Ok(Some(Frame { header, body: body_start..self.start }))
    }

    /// The body of a frame that was taken since the last call of [`space`](Self::space).
    pub fn body(&self, frame: &Frame) -> &[u8] {
        &self.buffer[frame.body.clone()]
    }

    /// Bytes received that do not make a whole frame yet.
    pub fn pending(&self) -> usize {
        self.end - self.start
    }
}

/// A complete frame inside a [`FrameReader`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The frame's header.
    pub header: FrameHeader,
    body: core::ops::Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: u32) -> FrameHeader {
        FrameHeader { kind: FrameKind::Messages, length, sequence: 7, acknowledgement: 3 }
    }

    fn feed(reader: &mut FrameReader, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = reader.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            reader.filled(count);
            bytes = &bytes[count..];
        }
    }

    #[test]
    fn a_header_survives_a_round_trip() {
        let header = FrameHeader { sequence: u64::MAX, acknowledgement: 1 << 63, ..header(5) };
        assert_eq!(FrameHeader::parse(&header.to_bytes(), MAX_BODY), Ok(header));
    }

    #[test]
    fn frames_come_out_whole_however_the_bytes_come_in() {
        let mut stream = Vec::new();
        for length in [0_u32, 1, 300_000, 24] {
            stream.extend_from_slice(&header(length).to_bytes());
            stream.extend((0..length).map(|i| i as u8));
        }
        for piece in [1_000, 7_919, stream.len()] {
            let mut reader = FrameReader::new(MAX_BODY);
            let mut lengths = Vec::new();
            for bytes in stream.chunks(piece) {
                feed(&mut reader, bytes);
                while let Some(frame) = reader.next_frame().unwrap() {
                    let body = reader.body(&frame);
                    assert!(body.iter().enumerate().all(|(i, byte)| *byte == i as u8));
                    lengths.push(body.len());
                }
            }
            assert_eq!(lengths, [0, 1, 300_000, 24]);
            assert_eq!(reader.pending(), 0);
        }
    }

    #[test]
    fn a_hostile_length_is_refused_before_memory_is_spent_on_it() {
        let mut reader = FrameReader::new(1 << 20);
        feed(&mut reader, &header(1 << 20).to_bytes());
        assert_eq!(reader.next_frame(), Ok(None));
        assert!(reader.space().len() <= 2 * READ_SIZE);
        let mut reader = FrameReader::new(1 << 20);
        feed(&mut reader, &header((1 << 20) + 1).to_bytes());
        assert!(matches!(reader.next_frame(), Err(FrameError::Oversize { .. })));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let mut reader = FrameReader::new(MAX_BODY);
        feed(&mut reader, b"GET / HTTP/1.1\r\nHost: example\r\n");
        assert_eq!(reader.next_frame(), Err(FrameError::BadMagic { found: *b"GET" }));
        let mut bytes = header(0).to_bytes();
        bytes[3] = 9;
        assert_eq!(FrameHeader::parse(&bytes, MAX_BODY), Err(FrameError::UnknownKind(9)));
    }
}
