//! Receiver of a connection: receives, in the order of the messages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lanes::Lanes;
use super::requests::{Request, Requests};
use crate::engine::{Connection, Destination, Engine, Frame, FrameKind, LaneEnd, LaneSocket, Output};
use crate::error::{NetError, ResultCode};
use crate::log;

/// The lane on which the receiver speaks.
const CONTROL_LANE: usize = 0;

/// The receiver's side of a connection.
pub struct RecvCommunicator(Arc<Receiver>);

struct Receiver {
    lanes: Lanes,
    requests: Requests,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the oldest message in `posted`.
    first: u64,
    /// A receive for each message; none where it is done already.
    posted: VecDeque<Option<Posted>>,
    /// Lanes whose peer has closed them.
    closed_lanes: usize,
    failed: Option<ResultCode>,
}

struct Posted {
    request: u32,
    data: *mut u8,
    capacity: usize,
    /// Bytes of the message, when a part of it came.
    total: Option<u64>,
    /// Bytes of parts that have a place, and of those that are there.
    claimed: u64,
    received: u64,
}

// SAFETY: the memory is NCCL's, which leaves it alone until the request is done, or the communicator is closed.
unsafe impl Send for Posted {}

impl RecvCommunicator {
    /// With connected sockets.
    pub fn new(engine: &Engine, sockets: Vec<LaneSocket>, peer: String) -> Self {
        let lanes = Lanes::new(sockets.len(), peer);
        let receiver = Arc::new(Receiver { lanes, requests: Requests::new(), state: Mutex::default() });
        let connection: Arc<dyn Connection> = receiver.clone();
        receiver.lanes.start(engine, &connection, sockets);
        Self(receiver)
    }

    /// Receives the next message, of at most so many bytes. None where too many receives are under way.
    ///
    /// # Safety
    /// The memory may be written until the request is done, or the communicator is closed.
    ///
    /// # Errors
    /// When the communicator has failed.
    pub unsafe fn receive(&self, data: *mut u8, capacity: usize) -> Result<Option<&Request>, NetError> {
        let receiver = &self.0;
        let mut state = receiver.state();
        if let Some(code) = state.failed {
            return Err(NetError::Failed(code));
        }
        let Some((at, request)) = receiver.requests.take() else { return Ok(None) };
        let posted = Posted { request: at, data, capacity, total: None, claimed: 0, received: 0 };
        state.posted.push_back(Some(posted));
        let credit = state.first + state.posted.len() as u64;
        let is_over = state.closed_lanes == receiver.lanes.count();
        drop(state);
        if is_over {
            receiver.lose(&LaneEnd::Closed);
            return Ok(Some(request));
        }
        let header =
            Frame { kind: FrameKind::Credit, flags: 0, message: credit, offset: 0, length: 0, total: 0 };
        let output = Output { header, payload: core::ptr::null(), token: 0 };
        receiver.lanes.push(CONTROL_LANE, output);
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

impl Drop for RecvCommunicator {
    fn drop(&mut self) {
        self.quiesce();
        self.0.lanes.drain();
    }
}

impl Receiver {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, code: ResultCode) {
        let mut state = self.state();
        state.failed.get_or_insert(code);
        self.requests.fail_pending(code);
    }

    /// Nothing more comes.
    fn lose(&self, end: &LaneEnd) {
        if self.state().failed.is_none() {
            let code = self.lanes.report("receiving from", end);
            self.fail(code);
        }
        self.lanes.stop_later();
    }

    /// Finds a place for a part.
    fn destination_of(&self, frame: &Frame) -> Result<Destination, &'static str> {
        let mut state = self.state();
        if state.failed.is_some() {
            return Err("the connection has failed");
        }
        let at = frame.message.checked_sub(state.first).and_then(|at| usize::try_from(at).ok());
        let posted = at.and_then(|at| state.posted.get_mut(at)).and_then(Option::as_mut);
        let posted = posted.ok_or("it sent a message that nothing was posted for")?;
        if frame.total > posted.capacity as u64 {
            let (total, capacity) = (frame.total, posted.capacity);
            log::warn(&format!(
                "a message of {total} bytes from {} is longer than its receive, {capacity} bytes",
                self.lanes.peer
            ));
            return Err("a message is longer than its receive");
        }
        if posted.total.is_some_and(|total| total != frame.total) {
            return Err("parts of a message contradict each other");
        }
        if frame.length == 0 && frame.total > 0 || posted.claimed + frame.length > frame.total {
            return Err("parts of a message overlap, or one is empty");
        }
        posted.total = Some(frame.total);
        posted.claimed += frame.length;
        // `offset + length <= total <= capacity`, by the frame's decoder and above.
        Ok(Destination { memory: posted.data.wrapping_add(frame.offset as usize), token: frame.message })
    }
}

impl Connection for Receiver {
    fn next_output(&self, lane: usize) -> Option<Output> {
        self.lanes.pop(lane)
    }

    fn written(&self, _: u32) {}

    fn frame(&self, frame: &Frame) -> Result<Option<Destination>, &'static str> {
        match frame.kind {
            FrameKind::Data => self.destination_of(frame).map(Some),
            FrameKind::Credit => Err("the sender sent credit"),
        }
    }

    fn received(&self, message: u64, bytes: u64) {
        let mut state = self.state();
        // Of an empty message more than one part may have come at once.
        let Some(at) = message.checked_sub(state.first).map(|at| at as usize) else { return };
        let Some(Some(posted)) = state.posted.get_mut(at) else { return };
        posted.received += bytes;
        if Some(posted.received) != posted.total {
            return;
        }
        self.requests.finish(posted.request, posted.received);
        state.posted[at] = None;
        while state.posted.pop_front_if(|posted| posted.is_none()).is_some() {
            state.first += 1;
        }
    }

    fn ended(&self, _: usize, end: LaneEnd) {
        let mut state = self.state();
        state.closed_lanes += 1;
        // What the others bring counts.
        let is_waiting = matches!(end, LaneEnd::Closed)
            && (state.closed_lanes < self.lanes.count() || !self.requests.has_pending());
        drop(state);
        if !is_waiting {
            self.lose(&end);
        }
    }
}
