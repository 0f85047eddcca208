//! Sender of a connection: messages, each cut into a part a lane.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lanes::Lanes;
use super::requests::{Request, Requests};
use crate::engine::{Connection, Destination, Engine, Frame, FrameKind, LaneEnd, LaneSocket, Output};
use crate::error::{NetError, ResultCode};

/// A lane gets at least so much of a message: the lanes' threads take some microseconds to begin, in which one moves so
/// much.
const MIN_PART_BYTES: usize = 128 << 10;

/// Parts begin at multiples of this.
const PART_ALIGNMENT: usize = 4096;

/// The sender's side of a connection.
pub struct SendCommunicator(Arc<Sender>);

struct Sender {
    lanes: Lanes,
    requests: Requests,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the next message.
    next: u64,
    /// The receiver has posted receives for all messages before this one.
    credit: u64,
    /// Messages that it has posted none for yet.
    waiting: VecDeque<Message>,
    /// The receiver has closed the connection.
    is_closed: bool,
    failed: Option<ResultCode>,
}

struct Message {
    number: u64,
    request: u32,
    data: *const u8,
    bytes: usize,
}

// SAFETY: the memory is NCCL's, which keeps it as it is until the request is done, or the communicator is closed.
unsafe impl Send for Message {}

impl SendCommunicator {
    /// With connected sockets.
    pub fn new(engine: &Engine, sockets: Vec<LaneSocket>, peer: String) -> Self {
        let lanes = Lanes::new(sockets.len(), peer);
        let sender = Arc::new(Sender { lanes, requests: Requests::new(), state: Mutex::default() });
        let connection: Arc<dyn Connection> = sender.clone();
        sender.lanes.start(engine, &connection, sockets);
        Self(sender)
    }

    /// Sends a message. None where too many are under way.
    ///
    /// # Safety
    /// The memory may be read until the request is done, or the communicator is closed.
    ///
    /// # Errors
    /// When the communicator has failed.
    pub unsafe fn send(&self, data: *const u8, bytes: usize) -> Result<Option<&Request>, NetError> {
        let sender = &self.0;
        let mut state = sender.state();
        if let Some(code) = state.failed {
            return Err(NetError::Failed(code));
        }
        if state.is_closed {
            drop(state);
            return Err(NetError::Failed(sender.lose(&LaneEnd::Closed)));
        }
        let Some((at, request)) = sender.requests.take() else { return Ok(None) };
        let message = Message { number: state.next, request: at, data, bytes };
        state.next += 1;
        if message.number < state.credit {
            drop(state);
            sender.dispatch(&message);
        } else {
            state.waiting.push_back(message);
        }
        Ok(Some(request))
    }

    /// No memory of the program is used any more when this returns, if any was: the communicator has failed then.
    pub fn quiesce(&self) {
        if self.0.requests.has_pending() || self.0.state().failed.is_some() {
            self.0.fail(ResultCode::InvalidUsage);
            self.0.lanes.stop();
        }
    }
}

impl Drop for SendCommunicator {
    fn drop(&mut self) {
        self.quiesce();
        // What was sent may be under way.
        self.0.lanes.drain();
    }
}

impl Sender {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each lane its part.
    fn dispatch(&self, message: &Message) {
        let parts = parts(message.bytes, self.lanes.count());
        self.requests.set_parts(message.request, parts.len() as u32, message.bytes as u64);
        // Short messages that follow each other go over different lanes.
        let first = (message.number % self.lanes.count() as u64) as usize;
        for (at, part) in parts.into_iter().enumerate() {
            let header = Frame {
                kind: FrameKind::Data,
                flags: 0,
                message: message.number,
                offset: part.start as u64,
                length: part.len() as u64,
                total: message.bytes as u64,
            };
            let payload = message.data.wrapping_add(part.start);
            let output = Output { header, payload, token: message.request };
            self.lanes.push((first + at) % self.lanes.count(), output);
        }
    }

    fn fail(&self, code: ResultCode) {
        let mut state = self.state();
        state.failed.get_or_insert(code);
        state.waiting.clear();
        self.requests.fail_pending(code);
    }

    /// Nothing more can be sent. The code for it.
    fn lose(&self, end: &LaneEnd) -> ResultCode {
        let failed = self.state().failed;
        let code = failed.unwrap_or_else(|| self.lanes.report("sending to", end));
        self.fail(code);
        self.lanes.stop_later();
        code
    }

    /// All messages before this one have a receive.
    fn grant(&self, credit: u64) {
        loop {
            let mut state = self.state();
            state.credit = state.credit.max(credit);
            let is_due = state.waiting.front().is_some_and(|message| message.number < state.credit);
            let Some(message) = state.waiting.pop_front_if(|_| is_due) else { return };
            drop(state);
            self.dispatch(&message);
        }
    }
}

impl Connection for Sender {
    fn next_output(&self, lane: usize) -> Option<Output> {
        self.lanes.pop(lane)
    }

    fn written(&self, token: u32) {
        self.requests.finish_part(token);
    }

    fn frame(&self, frame: &Frame) -> Result<Option<Destination>, &'static str> {
        match frame.kind {
            FrameKind::Credit => {
                self.grant(frame.message);
                Ok(None)
            }
            FrameKind::Data => Err("the receiver sent data"),
        }
    }

    fn received(&self, _: u64, _: u64) {}

    fn ended(&self, _: usize, end: LaneEnd) {
        let mut state = self.state();
        if matches!(end, LaneEnd::Closed) && !self.requests.has_pending() {
            // It is an error only if something is to be sent yet.
            state.is_closed = true;
            return;
        }
        drop(state);
        self.lose(&end);
    }
}

/// The parts of a message of so many bytes for so many lanes; one that is empty for an empty message.
fn parts(bytes: usize, lanes: usize) -> Vec<core::ops::Range<usize>> {
    let count = (bytes / MIN_PART_BYTES).clamp(1, lanes);
    let length = bytes.div_ceil(count).next_multiple_of(PART_ALIGNMENT);
    let start_of = |part: usize| (part * length).min(bytes);
    (0..count).map(|part| start_of(part)..start_of(part + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_message_and_none_is_empty() {
        for lanes in [1, 2, 3, 4, 16] {
            for bytes in [1, 4095, 128 << 10, 256 << 10, (256 << 10) + 1, 300_001, 1 << 20, (8 << 20) + 5] {
                let parts = parts(bytes, lanes);
                assert!(parts.len() <= lanes && parts.iter().all(|part| !part.is_empty()), "{bytes} {lanes}");
                assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, bytes));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
            assert_eq!(parts(0, lanes), [0..0]);
        }
    }
}
