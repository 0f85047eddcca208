//! Boundaries of frames and chunks in the bytes that a relay forwards, over connections that replace each
//! other.
//!
//! Only sessions in the clear can be read so; of others each piece ends that comes at once. A connection that
//! takes the place of the one for commands goes on at the byte that its receiver lacks, which may be in the
//! middle of a frame, and frames come again.

use super::{Carries, Direction};
use causeway_wire::chunk::{CHUNK_HEADER_SIZE, LaneRecord};
use causeway_wire::codec::Decoder;
use causeway_wire::frame::{FrameHeader, HEADER_SIZE, MAX_BODY};
use causeway_wire::handshake::{LaneHello, Opening, PREFACE_SIZE};
use std::sync::{Arc, Mutex, PoisonError};

/// The frames of one direction of a session.
#[derive(Debug, Default)]
struct FrameStream {
    /// Where each frame has ended, as far as they are known.
    ends: Vec<u64>,
    /// What has come of the header of the frame behind the last of these.
    header: Vec<u8>,
    /// Bytes up to here have come.
    at: u64,
}

impl FrameStream {
    /// The bytes from here on come again.
    fn rewind(&mut self, to: u64) {
        let last = self.ends.last().copied().unwrap_or(0);
        self.header.truncate(to.saturating_sub(last) as usize);
        self.at = to;
    }

    /// Takes in bytes, and notes at which of them frames end.
    fn advance(&mut self, bytes: &[u8], found: &mut Vec<usize>) {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let next = self.ends.get(self.ends.partition_point(|end| *end <= self.at)).copied();
            let count = match next {
                Some(end) => rest.len().min((end - self.at) as usize),
                None => {
                    let count = rest.len().min(HEADER_SIZE - self.header.len());
                    self.header.extend_from_slice(&rest[..count]);
                    count
                }
            };
            self.at += count as u64;
            done += count;
            if next == Some(self.at) {
                found.push(done);
            }
            if let Ok(header) = <[u8; HEADER_SIZE]>::try_from(&*self.header) {
                let header = FrameHeader::parse(&header, MAX_BODY).expect("both ends send frames");
                self.header.clear();
                self.ends.push(self.at + u64::from(header.length));
                if header.length == 0 {
                    found.push(done);
                }
            }
        }
    }
}

/// The session that a relay serves.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// By direction.
    frames: [FrameStream; 2],
    /// Which connection is that for commands. What is on its way on an earlier one comes again.
    number: u64,
    /// How many have begun: with the first frame that the server sends.
    pub begun: usize,
}

/// What both directions of a connection share.
#[derive(Debug)]
pub(super) struct ConnectionState {
    carries: Carries,
    /// Whether it takes the place of another one.
    is_resumed: bool,
    /// From which byte on the frames of each direction come.
    starts: [u64; 2],
    /// Which connection it is, in the order in which they came.
    number: u64,
}

/// Follows one direction of a connection.
#[derive(Debug)]
pub(super) struct Parser {
    direction: Direction,
    connection: Arc<Mutex<ConnectionState>>,
    session: Arc<Mutex<Session>>,
    step: Step,
    /// What has come of the step.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Preface,
    HandshakeHeader,
    HandshakeBody(usize),
    /// What a connection begins with that takes the place of another one.
    CommandsRecord,
    Frames,
    LaneRecord,
    Chunk(usize),
    Other,
}

impl Parser {
    /// Both directions of a new connection, which has a higher number than earlier ones.
    pub fn pair(session: &Arc<Mutex<Session>>, number: u64) -> [Self; 2] {
        let state =
            ConnectionState { carries: Carries::Handshake, is_resumed: false, starts: [0; 2], number };
        let connection = Arc::new(Mutex::new(state));
        [Direction::ToServer, Direction::ToClient].map(|direction| Self {
            direction,
            connection: Arc::clone(&connection),
            session: Arc::clone(session),
            step: Step::Preface,
            bytes: Vec::new(),
        })
    }

    /// Which direction it follows.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// What the bytes are that come next.
    pub fn carries(&self) -> Carries {
        match self.step {
            Step::Frames => Carries::Frames,
            Step::LaneRecord | Step::Chunk(_) => Carries::Lane,
            Step::Other => Carries::Other,
            _ => Carries::Handshake,
        }
    }

    /// Takes in bytes; behind which of them a frame, or a chunk with its bytes, or a step of the handshake,
    /// ends, and what that was.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<(usize, Carries)> {
        let (mut done, mut found) = (0, Vec::new());
        while done < bytes.len() {
            let (rest, carries) = (&bytes[done..], self.carries());
            let wanted = match self.step {
                Step::Preface => PREFACE_SIZE,
                Step::HandshakeHeader => HEADER_SIZE,
                Step::HandshakeBody(length) | Step::Chunk(length) => length,
                Step::CommandsRecord | Step::LaneRecord => CHUNK_HEADER_SIZE,
                Step::Frames => {
                    let mut ends = Vec::new();
                    self.advance(rest, &mut ends);
                    found.extend(ends.into_iter().map(|end| (done + end, carries)));
                    return found;
                }
                Step::Other => {
                    found.push((bytes.len(), carries));
                    return found;
                }
            };
            let count = rest.len().min(wanted - self.bytes.len());
            self.bytes.extend_from_slice(&rest[..count]);
            done += count;
            if self.bytes.len() == wanted {
                let whole = std::mem::take(&mut self.bytes);
                self.step = self.next(&whole);
                if !matches!(self.step, Step::Chunk(_)) {
                    found.push((done, carries));
                }
            }
        }
        found
    }

    fn advance(&self, bytes: &[u8], ends: &mut Vec<usize>) {
        let number = self.connection.lock().unwrap_or_else(PoisonError::into_inner).number;
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if session.number == number {
            session.frames[self.direction as usize].advance(bytes, ends);
        }
    }

    /// What follows a whole step.
    fn next(&self, whole: &[u8]) -> Step {
        let mut state = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        match self.step {
            Step::Preface => Step::HandshakeHeader,
            Step::HandshakeHeader => {
                let header = whole.try_into().expect("as many bytes as a header has");
                FrameHeader::parse(&header, MAX_BODY)
                    .map_or(Step::Other, |header| Step::HandshakeBody(header.length as usize))
            }
            Step::HandshakeBody(_) => {
                if self.direction == Direction::ToServer {
                    self.note_opening(&mut state, whole);
                }
                match (state.carries, state.is_resumed) {
                    (Carries::Frames, true) => Step::CommandsRecord,
                    (Carries::Frames, false) => {
                        let is_granted = self.direction == Direction::ToClient;
                        self.session.lock().unwrap_or_else(PoisonError::into_inner).begun +=
                            usize::from(is_granted);
                        Step::Frames
                    }
                    (Carries::Lane, _) => Step::LaneRecord,
                    _ => Step::Other,
                }
            }
            Step::CommandsRecord => {
                let record = LaneRecord::parse(whole.try_into().expect("as many bytes as a record has"));
                let Ok(LaneRecord::Commands { received }) = record else { return Step::Other };
                // Its sender lacks the bytes of the other direction from there on, and gets them after it.
                state.starts[1 - self.direction as usize] = received;
                if self.direction == Direction::ToClient {
                    let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
                    if session.number < state.number {
                        session.number = state.number;
                        let streams = session.frames.iter_mut().zip(state.starts);
                        streams.for_each(|(stream, start)| stream.rewind(start));
                    }
                }
                Step::Frames
            }
            Step::LaneRecord => {
                match LaneRecord::parse(whole.try_into().expect("as many bytes as a record has")) {
                    Ok(LaneRecord::Chunk(chunk)) if chunk.length > 0 => Step::Chunk(chunk.length as usize),
                    _ => Step::LaneRecord,
                }
            }
            Step::Chunk(_) => Step::LaneRecord,
            Step::Frames | Step::Other => self.step,
        }
    }

    /// Notes what the client wants of this connection.
    fn note_opening(&self, state: &mut ConnectionState, body: &[u8]) {
        state.carries = match Decoder::new(body).value::<Opening<'_>>() {
            Ok(Opening::Session { .. }) => {
                let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
                session.frames = <[FrameStream; 2]>::default();
                session.number = state.number;
                Carries::Frames
            }
            Ok(Opening::Lane(hello)) if hello.lane == LaneHello::COMMANDS => {
                state.is_resumed = true;
                Carries::Frames
            }
            Ok(Opening::Lane(_)) => Carries::Lane,
            _ => Carries::Other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::frame::FrameKind;

    fn frame(length: usize) -> Vec<u8> {
        let header =
            FrameHeader { kind: FrameKind::Messages, length: length as u32, sequence: 1, acknowledgement: 0 };
        [&header.to_bytes()[..], &vec![0; length]].concat()
    }

    /// At which offsets frames end, of bytes that come so many at a time.
    fn ends(stream: &mut FrameStream, bytes: &[u8], at_once: usize) -> Vec<u64> {
        let mut all = Vec::new();
        for part in bytes.chunks(at_once) {
            let (before, mut found) = (stream.at, Vec::new());
            stream.advance(part, &mut found);
            all.extend(found.into_iter().map(|end| before + end as u64));
        }
        all
    }

    #[test]
    fn frames_end_where_they_do_however_their_bytes_come_and_come_again() {
        let bytes = [frame(10), frame(0), frame(1), frame(100)].concat();
        let expected: Vec<u64> = vec![34, 58, 83, 207];
        for at_once in [1, 7, 1000] {
            for cut in 0..bytes.len() {
                for to in [0, cut / 2, cut] {
                    let mut stream = FrameStream::default();
                    let mut found = ends(&mut stream, &bytes[..cut], at_once);
                    stream.rewind(to as u64);
                    found.retain(|end| *end <= to as u64);
                    found.extend(ends(&mut stream, &bytes[to..], at_once));
                    assert_eq!(found, expected, "cut at {cut}, again from {to} on, {at_once} at once");
                }
            }
        }
    }
}
