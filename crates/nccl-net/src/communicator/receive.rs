//! Receiver of a connection: receives, in the order of the messages.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use causeway_cuda::CudaError;
use causeway_sync::threads;

use super::lanes::PART_BYTES;
use super::requests::Request;
use super::side::{Side, SideState};
use super::staging::{Delivery, PendingDelivery, Source};
use crate::engine::{
    Connection, DIRECT, Destination, Engine, Frame, FrameKind, LaneEnd, LaneSocket, Output, REFUSED, UNMAPPED,
};
use crate::error::{NetError, ResultCode};
use crate::gpu::{GpuMemory, ImportState, ImportedMemory};
use crate::log;
use crate::staging_block::StagingBlock;

/// The lane on which the receiver speaks.
const CONTROL_LANE: usize = 0;

/// Allocations that a sender may have exported at a time.
const MAX_IMPORTS: usize = 4096;

/// What marks the token of a part that comes into a block.
const STAGED: u64 = 1 << 63;

/// The receiver's side of a connection.
pub struct RecvCommunicator(Arc<Receiver>);

struct Receiver {
    side: Side<State>,
    /// Memory that the sender has exported, by its number.
    imports: Mutex<HashMap<u32, Arc<ImportedMemory>>>,
    /// The first memory of a GPU that was registered: exported memory is mapped for its device.
    gpu: OnceLock<GpuMemory>,
    /// Parts that come into blocks, by their tokens.
    staged: Mutex<HashMap<u64, StagedPart>>,
    next_staged: AtomicU64,
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
    gpu: Option<GpuMemory>,
    /// Bytes of the message, when a part of it came.
    total: Option<u64>,
    /// Bytes of parts that have a destination, and of those that are there.
    claimed: u64,
    received: u64,
}

// SAFETY: the memory is NCCL's, which leaves it alone until the request is done, or the communicator is closed.
unsafe impl Send for Posted {}

/// A part on its way to a GPU.
struct StagedPart {
    message: u64,
    gpu: GpuMemory,
    to: u64,
    block: StagingBlock,
}

impl RecvCommunicator {
    /// With connected sockets.
    pub fn new(engine: &Engine, sockets: Vec<LaneSocket>, peer: String) -> Self {
        let receiver = Arc::new(Receiver {
            side: Side::new(&sockets, peer),
            imports: Mutex::default(),
            gpu: OnceLock::new(),
            staged: Mutex::default(),
            next_staged: AtomicU64::new(0),
        });
        let connection: Arc<dyn Connection> = receiver.clone();
        receiver.side.lanes.start(engine, &connection, sockets);
        Self(receiver)
    }

    /// Prepares memory of a GPU to be received into.
    ///
    /// # Errors
    /// What the driver says.
    pub fn register(&self, gpu: GpuMemory) -> Result<(), CudaError> {
        let receiver = &self.0;
        if receiver.gpu.get().is_none() {
            gpu.prepare()?;
        }
        // Set before those are listed that have come: one that comes then is mapped when it does.
        let gpu = receiver.gpu.get_or_init(|| gpu);
        let imports: Vec<_> = receiver.imports().values().map(Arc::clone).collect();
        imports.iter().for_each(|memory| map(memory, gpu, &receiver.side.lanes.peer));
        Ok(())
    }

    /// Receives the next message, of at most so many bytes, into memory of the host or of a GPU. None where too many
    /// receives are in flight.
    ///
    /// # Safety
    /// The memory may be written until the request is done, or the communicator is closed.
    ///
    /// # Errors
    /// When the communicator has failed.
    pub unsafe fn receive(
        &self,
        data: *mut u8,
        capacity: usize,
        gpu: Option<GpuMemory>,
    ) -> Result<Option<&Request>, NetError> {
        let receiver = &self.0;
        let mut state = receiver.side.state();
        if let Some(code) = state.failed {
            return Err(NetError::Failed(code));
        }
        let Some((at, request)) = receiver.side.requests.take(data as u64, capacity) else { return Ok(None) };
        let number = state.first + state.posted.len() as u64;
        let posted = Posted { request: at, data, capacity, gpu, total: None, claimed: 0, received: 0 };
        state.posted.push_back(Some(posted));
        let is_over = state.closed_lanes == receiver.side.lanes.count();
        drop(state);
        if is_over {
            receiver.lose(&LaneEnd::Closed);
            return Ok(Some(request));
        }
        let flags = if gpu.is_some() && receiver.side.lanes.pass_descriptors { DIRECT } else { 0 };
        let credit = Output::plain(Frame::plain(FrameKind::Credit, flags, number));
        receiver.side.lanes.push(CONTROL_LANE, credit);
        Ok(Some(request))
    }

    /// None of this memory is used any more when this returns, if any was: the communicator has failed then.
    pub fn withdraw(&self, start: u64, bytes: usize) {
        self.0.side.withdraw(start, bytes);
    }
}

impl Drop for RecvCommunicator {
    fn drop(&mut self) {
        self.0.side.quiesce();
        self.0.side.lanes.drain();
        // Nothing is copied from it any more.
        self.0.imports().clear();
    }
}

impl SideState for State {
    fn failed(&self) -> Option<ResultCode> {
        self.failed
    }

    fn fail(&mut self, code: ResultCode) {
        self.failed.get_or_insert(code);
    }
}

impl Receiver {
    fn imports(&self) -> MutexGuard<'_, HashMap<u32, Arc<ImportedMemory>>> {
        self.imports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more comes.
    fn lose(&self, end: &LaneEnd) {
        if self.side.state().failed.is_none() {
            let code = self.side.lanes.report("receiving from", end);
            self.side.fail(code);
        }
        self.side.lanes.stop_later();
    }

    /// Finds the destination of a part.
    fn destination_of(&self, frame: &Frame) -> Result<Destination, &'static str> {
        let (data, gpu) = self.claim(frame.message, frame.offset, frame.length, frame.total)?;
        let Some(gpu) = gpu.filter(|_| frame.length > 0) else {
            return Ok(Destination { memory: data, token: frame.message });
        };
        if frame.length > PART_BYTES as u64 {
            return Err("a part is longer than parts are");
        }
        let block = StagingBlock::take().map_err(|_| "cannot allocate memory to stage a message of a GPU")?;
        let memory = block.memory();
        let token = STAGED | self.next_staged.fetch_add(1, Ordering::Relaxed);
        let part = StagedPart { message: frame.message, gpu, to: data as u64, block };
        self.staged.lock().unwrap_or_else(PoisonError::into_inner).insert(token, part);
        Ok(Destination { memory, token })
    }

    /// Claims a range of a message for a part: its destination, and memory of a GPU if it is that.
    fn claim(
        &self,
        message: u64,
        offset: u64,
        length: u64,
        total: u64,
    ) -> Result<(*mut u8, Option<GpuMemory>), &'static str> {
        let mut state = self.side.state();
        if state.failed.is_some() {
            return Err("the connection has failed");
        }
        let posted = posted_of(&mut state, message).ok_or("it sent a message without a posted receive")?;
        if total > posted.capacity as u64 {
            let (capacity, peer) = (posted.capacity, &self.side.lanes.peer);
            log::warn(&format!(
                "a message of {total} bytes from {peer} is longer than its receive of {capacity} bytes"
            ));
            return Err("a message is longer than its receive");
        }
        if posted.total.is_some_and(|known| known != total) {
            return Err("parts of a message contradict each other");
        }
        if length == 0 && total > 0 || posted.claimed + length > total {
            return Err("parts of a message overlap, or one is empty");
        }
        posted.total = Some(total);
        posted.claimed += length;
        // `offset + length <= total <= capacity`, by the frame's decoder and above.
        Ok((posted.data.wrapping_add(offset as usize), posted.gpu))
    }

    /// A range of a message is there.
    fn account(&self, message: u64, bytes: u64) {
        let mut state = self.side.state();
        // Of an empty message more than one part may have come at once.
        let Some(posted) = posted_of(&mut state, message) else { return };
        posted.received += bytes;
        if Some(posted.received) != posted.total {
            return;
        }
        self.side.requests.finish(posted.request, posted.received);
        let at = (message - state.first) as usize;
        state.posted[at] = None;
        while state.posted.pop_front_if(|posted| posted.is_none()).is_some() {
            state.first += 1;
        }
    }

    /// The sender has exported memory.
    fn import(&self, frame: &Frame, descriptor: Option<OwnedFd>) -> Result<(), &'static str> {
        let mut imports = self.imports();
        if imports.len() == MAX_IMPORTS {
            return Err("it exported too much memory at a time");
        }
        let memory = Arc::new(ImportedMemory::new(descriptor, frame.message, frame.total));
        imports.insert(frame.flags, Arc::clone(&memory));
        drop(imports);
        // Not here: kernels may wait for this thread. Without a thread it stays unmapped.
        if let Some(gpu) = self.gpu.get().copied() {
            let peer = self.side.lanes.peer.clone();
            let _ = threads::spawn("nccl-map", move || map(&memory, &gpu, &peer));
        }
        Ok(())
    }

    fn forget(&self, number: u32) {
        let memory = self.imports().remove(&number);
        drop(memory);
    }

    /// Copies what the sender offers, or says that it cannot.
    fn accept_offer(&self, frame: &Frame) -> Result<(), &'static str> {
        let message = frame.message;
        let gpu = posted_of(&mut self.side.state(), message).and_then(|posted| posted.gpu);
        let gpu = gpu.ok_or("it offered a message to a receive that is not of a GPU")?;
        let memory = self.imports().get(&frame.flags).map(Arc::clone);
        let memory = memory.ok_or("it offered memory that it has not exported")?;
        if frame.total != memory.bytes() || frame.length == 0 {
            return Err("it offered memory that it has not exported");
        }
        let refuse = |flags| {
            let refusal = Output::plain(Frame::plain(FrameKind::Done, flags, message));
            self.side.lanes.push(CONTROL_LANE, refusal);
            Ok(())
        };
        let is_of_device = self.gpu.get().is_some_and(|first| first.is_on_device_of(&gpu));
        let start = match memory.state() {
            ImportState::Mapped(start) if is_of_device => start,
            ImportState::Unmapped => return refuse(UNMAPPED),
            ImportState::Mapped(_) | ImportState::Unreachable => return refuse(REFUSED),
        };
        let (data, _) = self.claim(message, 0, frame.length, frame.length)?;
        let from = start + frame.offset;
        let of = Delivery { message, bytes: frame.length, source: Source::Exported { _memory: memory } };
        self.side.staging.deliver_later(PendingDelivery { gpu, to: data as u64, from, of });
        self.side.lanes.wake(CONTROL_LANE);
        Ok(())
    }
}

/// Maps exported memory for the device of the receiver's, and says which way its messages go.
fn map(memory: &ImportedMemory, gpu: &GpuMemory, peer: &str) {
    if matches!(memory.state(), ImportState::Unmapped) {
        match memory.map_for(gpu) {
            Ok(()) => log::info(&format!("messages of {peer} are copied from GPU to GPU")),
            Err(error) => log::info(&format!("messages of {peer} pass through the host: {error}")),
        }
    }
}

/// How long copies may take whose sender has ended.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Between two looks at them.
const DELIVERY_PAUSE: Duration = Duration::from_micros(50);

/// The receive of a message that has not come as a whole.
fn posted_of(state: &mut State, message: u64) -> Option<&mut Posted> {
    let at = usize::try_from(message.checked_sub(state.first)?).ok()?;
    state.posted.get_mut(at)?.as_mut()
}

impl Connection for Receiver {
    fn next_output(&self, lane: usize) -> Option<Output> {
        self.side.lanes.pop(lane)
    }

    fn written(&self, _: u64) {}

    fn frame(&self, frame: &Frame, descriptor: Option<OwnedFd>) -> Result<Option<Destination>, &'static str> {
        match frame.kind {
            FrameKind::Data => return self.destination_of(frame).map(Some),
            FrameKind::Memory => self.import(frame, descriptor)?,
            FrameKind::Offer => self.accept_offer(frame)?,
            FrameKind::Forget => self.forget(frame.flags),
            FrameKind::Credit | FrameKind::Done => {
                return Err("the sender sent a message that only receivers \
                send");
            }
        }
        Ok(None)
    }

    fn received(&self, token: u64, bytes: u64) {
        if token & STAGED == 0 {
            self.account(token, bytes);
            return;
        }
        let part = self.staged.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        let Some(StagedPart { message, gpu, to, block }) = part else { return };
        let from = block.memory() as u64;
        let of = Delivery { message, bytes, source: Source::Block { _block: block } };
        self.side.staging.deliver_later(PendingDelivery { gpu, to, from, of });
        self.side.lanes.wake(CONTROL_LANE);
    }

    fn poll(&self) -> bool {
        let advanced = self.side.staging.advance_deliveries(|delivery| {
            self.account(delivery.message, delivery.bytes);
            if matches!(delivery.source, Source::Exported { .. }) {
                let done = Output::plain(Frame::plain(FrameKind::Done, 0, delivery.message));
                self.side.lanes.push(CONTROL_LANE, done);
            }
        });
        advanced.unwrap_or_else(|error| {
            log::warn(&format!("receiving from {} failed: {error}", self.side.lanes.peer));
            self.side.fail(ResultCode::CudaError);
            self.side.lanes.stop_later();
            false
        })
    }

    fn ended(&self, _: usize, end: LaneEnd) {
        let mut state = self.side.state();
        state.closed_lanes += 1;
        let is_last = state.closed_lanes == self.side.lanes.count();
        drop(state);
        if matches!(end, LaneEnd::Closed) {
            // What the others bring counts.
            if !is_last {
                return;
            }
            self.finish_deliveries();
            if !self.side.requests.has_pending() {
                return;
            }
        }
        self.lose(&end);
    }
}

impl Receiver {
    /// Waits for copies of what has come whole: a sender may end as soon as its bytes have left.
    fn finish_deliveries(&self) {
        let deadline = Instant::now() + DELIVERY_TIMEOUT;
        while self.poll() && Instant::now() < deadline {
            std::thread::sleep(DELIVERY_PAUSE);
        }
    }
}
