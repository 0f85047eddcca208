//! Sender of a connection: messages, each cut into parts for the lanes, or offered to the receiver.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};

use causeway_cuda::CudaError;

use super::lanes::PART_BYTES;
use super::requests::{MAX_REQUESTS, Request};
use super::side::{Side, SideState};
use crate::engine::{
    Connection, DIRECT, Destination, Engine, Frame, FrameKind, LaneEnd, LaneSocket, Output, REFUSED, UNMAPPED,
};
use crate::error::{NetError, ResultCode};
use crate::gpu::GpuMemory;
use crate::log;

/// A lane gets at least so much of a message: the lanes' threads take some microseconds to begin, in which one moves so
/// much.
const MIN_PART_BYTES: usize = 128 << 10;

/// Parts begin at multiples of this.
const PART_ALIGNMENT: usize = 4096;

/// The lane on which exported memory is announced and offered.
const CONTROL_LANE: usize = 0;

/// The sender's side of a connection.
pub struct SendCommunicator(Arc<Sender>);

/// Memory of a GPU that messages are sent from.
#[derive(Debug, Clone, Copy)]
pub struct SendMemory {
    gpu: GpuMemory,
    /// The number by which the receiver knows it, where it could be exported.
    export: Option<u32>,
}

struct Sender {
    side: Side<State>,
    next_export: AtomicU32,
    /// Whether what copies need was made.
    is_prepared: Once,
}

#[derive(Default)]
struct State {
    /// The number of the next message.
    next: u64,
    /// The receiver has posted receives for all messages before this one,
    credit: u64,
    /// and copies these by itself, where it is offered their memory.
    direct: HashSet<u64>,
    /// Messages that it has posted none for yet.
    waiting: VecDeque<Message>,
    /// Messages that it has been offered.
    offered: HashMap<u64, Message>,
    /// Exported memory that it cannot copy from.
    refused: HashSet<u32>,
    /// Lanes whose peer has closed them.
    closed_lanes: usize,
    /// The receiver has closed the connection.
    is_closed: bool,
    failed: Option<ResultCode>,
}

#[derive(Clone, Copy)]
struct Message {
    number: u64,
    request: u32,
    data: *const u8,
    bytes: usize,
    memory: Option<SendMemory>,
}

// SAFETY: the memory is NCCL's, which keeps it as it is until the request is done, or the communicator is closed.
unsafe impl Send for Message {}

impl SendCommunicator {
    /// With connected sockets.
    pub fn new(engine: &Engine, sockets: Vec<LaneSocket>, peer: String) -> Self {
        let sender = Arc::new(Sender {
            side: Side::new(&sockets, peer),
            next_export: AtomicU32::new(0),
            is_prepared: Once::new(),
        });
        let connection: Arc<dyn Connection> = sender.clone();
        sender.side.lanes.start(engine, &connection, sockets);
        Self(sender)
    }

    /// Prepares memory of a GPU: the receiver gets a descriptor of it, where both can be had.
    ///
    /// # Errors
    /// What the driver says.
    pub fn register(&self, gpu: GpuMemory) -> Result<SendMemory, CudaError> {
        let sender = &self.0;
        let mut prepared = Ok(());
        sender.is_prepared.call_once(|| prepared = gpu.prepare());
        prepared?;
        let descriptor = sender.side.lanes.pass_descriptors.then(|| gpu.export()).flatten();
        let export = descriptor.map(|descriptor| {
            let number = sender.next_export.fetch_add(1, Ordering::Relaxed);
            let mut header = Frame::plain(FrameKind::Memory, number, gpu.gpu());
            header.total = gpu.bytes();
            let output = Output { descriptor: Some(descriptor), ..Output::plain(header) };
            sender.side.lanes.push(CONTROL_LANE, output);
            number
        });
        Ok(SendMemory { gpu, export })
    }

    /// The memory is used no more.
    pub fn deregister(&self, memory: SendMemory) {
        if let Some(number) = memory.export {
            self.0.side.lanes.push(CONTROL_LANE, Output::plain(Frame::plain(FrameKind::Forget, number, 0)));
        }
    }

    /// Sends a message, from memory of the host or of a GPU. None where too many are in flight.
    ///
    /// # Safety
    /// The memory may be read until the request is done, or the communicator is closed.
    ///
    /// # Errors
    /// When the communicator has failed.
    pub unsafe fn send(
        &self,
        data: *const u8,
        bytes: usize,
        memory: Option<SendMemory>,
    ) -> Result<Option<&Request>, NetError> {
        let sender = &self.0;
        let mut state = sender.side.state();
        if let Some(code) = state.failed {
            return Err(NetError::Failed(code));
        }
        if state.is_closed {
            drop(state);
            return Err(NetError::Failed(sender.lose(&LaneEnd::Closed)));
        }
        let Some((at, request)) = sender.side.requests.take(data as u64, bytes) else { return Ok(None) };
        let message = Message { number: state.next, request: at, data, bytes, memory };
        state.next += 1;
        if message.number < state.credit {
            drop(state);
            sender.dispatch(message);
        } else {
            state.waiting.push_back(message);
        }
        Ok(Some(request))
    }

    /// None of this memory is used any more when this returns, if any was: the communicator has failed then.
    pub fn withdraw(&self, start: u64, bytes: usize) {
        self.0.side.withdraw(start, bytes);
    }
}

impl Drop for SendCommunicator {
    fn drop(&mut self) {
        self.0.side.quiesce();
        // What was sent may be in flight.
        self.0.side.lanes.drain();
    }
}

impl SideState for State {
    fn failed(&self) -> Option<ResultCode> {
        self.failed
    }

    fn fail(&mut self, code: ResultCode) {
        self.failed.get_or_insert(code);
        self.waiting.clear();
        self.offered.clear();
    }
}

impl Sender {
    /// Offers a message to the receiver, or gives each lane its parts.
    fn dispatch(&self, message: Message) {
        if self.offer(message) {
            return;
        }
        let parts = parts(message.bytes, self.side.lanes.count());
        self.side.requests.set_parts(message.request, parts.len() as u32, message.bytes as u64);
        let gpu = message.memory.map(|memory| memory.gpu).filter(|_| message.bytes > 0);
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
            // Short messages that follow each other go over different lanes.
            let lane = (message.number % self.side.lanes.count() as u64) as usize + at;
            let lane = lane % self.side.lanes.count();
            match gpu {
                None => {
                    let token = u64::from(message.request);
                    self.side.lanes.push(lane, Output { header, payload, token, descriptor: None });
                }
                Some(gpu) => {
                    self.side.staging.fetch_later(gpu, payload as u64, header, message.request, lane)
                }
            }
        }
        if gpu.is_some() {
            self.side.lanes.wake(CONTROL_LANE);
        }
    }

    /// Lets the receiver copy the message by itself, where it can; whether it is offered.
    fn offer(&self, message: Message) -> bool {
        let Message { number, bytes, .. } = message;
        let mut state = self.side.state();
        let is_direct = state.direct.remove(&number) && bytes > 0;
        let Some(SendMemory { gpu, export: Some(export) }) = message.memory.filter(|_| is_direct) else {
            return false;
        };
        let Some(offset) = gpu.offset_of(message.data as u64, bytes as u64) else { return false };
        if state.refused.contains(&export) || state.failed.is_some() {
            return false;
        }
        state.offered.insert(number, message);
        drop(state);
        let header = Frame {
            kind: FrameKind::Offer,
            flags: export,
            message: number,
            offset,
            length: bytes as u64,
            total: gpu.bytes(),
        };
        self.side.lanes.push(CONTROL_LANE, Output::plain(header));
        true
    }

    /// The receiver has copied what it was offered, or cannot.
    fn end_offer(&self, number: u64, flags: u32) -> Result<(), &'static str> {
        let mut state = self.side.state();
        let message = state.offered.remove(&number).ok_or("it ended an offer that does not exist")?;
        if flags & (REFUSED | UNMAPPED) == 0 {
            self.side.requests.finish(message.request, message.bytes as u64);
            return Ok(());
        }
        if let Some(SendMemory { export: Some(export), .. }) = message.memory.filter(|_| flags & REFUSED != 0)
        {
            state.refused.insert(export);
        }
        drop(state);
        self.dispatch(message);
        Ok(())
    }

    /// Nothing more can be sent. The code for it.
    fn lose(&self, end: &LaneEnd) -> ResultCode {
        let failed = self.side.state().failed;
        let code = failed.unwrap_or_else(|| self.side.lanes.report("sending to", end));
        self.side.fail(code);
        self.side.lanes.stop_later();
        code
    }

    /// A receive is posted.
    fn grant(&self, frame: &Frame) -> Result<(), &'static str> {
        let mut state = self.side.state();
        if frame.message != state.credit {
            return Err("it posted receives out of order");
        }
        if state.credit - state.next.min(state.credit) >= MAX_REQUESTS as u64 {
            return Err("it posted more receives than a communicator can have");
        }
        state.credit += 1;
        if frame.flags & DIRECT != 0 {
            state.direct.insert(frame.message);
        }
        let message = state.waiting.pop_front();
        drop(state);
        if let Some(message) = message {
            self.dispatch(message);
        }
        Ok(())
    }
}

impl Connection for Sender {
    fn next_output(&self, lane: usize) -> Option<Output> {
        self.side.lanes.pop(lane)
    }

    fn written(&self, token: u64) {
        // What has no payload has no request.
        if let Some(request) = self.side.staging.written(token) {
            self.side.requests.finish_part(request);
        }
    }

    fn frame(&self, frame: &Frame, _: Option<OwnedFd>) -> Result<Option<Destination>, &'static str> {
        match frame.kind {
            FrameKind::Credit => self.grant(frame)?,
            FrameKind::Done => self.end_offer(frame.message, frame.flags)?,
            _ => return Err("the receiver sent a message that only senders send"),
        }
        Ok(None)
    }

    fn received(&self, _: u64, _: u64) {}

    fn poll(&self) -> bool {
        match self.side.staging.advance_fetches(|lane, output| self.side.lanes.push(lane, output)) {
            Ok(is_pending) => is_pending,
            Err(error) => {
                log::warn(&format!("sending to {} failed: {error}", self.side.lanes.peer));
                self.side.fail(ResultCode::CudaError);
                self.side.lanes.stop_later();
                false
            }
        }
    }

    fn ended(&self, _: usize, end: LaneEnd) {
        let mut state = self.side.state();
        if matches!(end, LaneEnd::Closed) {
            state.closed_lanes += 1;
            if !self.side.requests.has_pending() {
                // It is an error only if something is to be sent yet.
                state.is_closed = true;
                return;
            }
            // The answer to what is pending may be on another lane.
            if state.closed_lanes < self.side.lanes.count() {
                return;
            }
        }
        drop(state);
        self.lose(&end);
    }
}

/// The parts of a message of so many bytes for so many lanes; one that is empty for an empty message.
fn parts(bytes: usize, lanes: usize) -> Vec<core::ops::Range<usize>> {
    let count = (bytes / MIN_PART_BYTES).clamp(1, lanes).max(bytes.div_ceil(PART_BYTES));
    let length = bytes.div_ceil(count).next_multiple_of(PART_ALIGNMENT);
    let start_of = |part: usize| (part * length).min(bytes);
    let parts = (0..count).map(|part| start_of(part)..start_of(part + 1));
    // Rounding up may leave nothing for the last ones.
    parts.filter(|part| !part.is_empty() || bytes == 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_message_and_none_is_empty() {
        for lanes in [1, 2, 3, 4, 16] {
            for bytes in [1, 4095, 128 << 10, 256 << 10, (256 << 10) + 1, 300_001, 1 << 20, (8 << 20) + 5] {
                let parts = parts(bytes, lanes);
                assert!(
                    parts.iter().all(|part| !part.is_empty() && part.len() <= PART_BYTES),
                    "{bytes} {lanes}"
                );
                assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, bytes));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
            assert_eq!(parts(0, lanes), [0..0]);
        }
    }
}
