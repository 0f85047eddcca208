//! What is read of another worker when, and when does the stream go on?
//!
//! A copy takes one step after the other on the one thread of [`Peers::steps`](super::Peers), so that whoever notices something, a lane's
//! thread or a completion of the back end, has only to say so there.

use super::loans::Descriptors;
use crate::worker::arena::Arena;
use crate::worker::direct::Direct;
use crate::worker::engine::{Engine, Head};
use causeway_api::calls::peer_copy;
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::CUresult;
use causeway_fabric::pipeline::{Direction, Module, Piece, Plan, Shape, Table, cut};
use causeway_fabric::{
    Counters, DescriptorError, Destination, DeviceMemory, Lease, Link, LinkError, LinkEvents, Receiver, Via,
    threads,
};
use causeway_gpu::objects::Translate;
use causeway_gpu::{CuResult, Gate, NativePlace, Staging};
use causeway_wire::codec::Encode;
use causeway_wire::lent::LentMemory;
use causeway_wire::message::{Messages, PeerMessage};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many copies read of one worker at a time; others whose streams have come to them wait. It bounds the memory that
/// both sides need.
const MOST_READING: usize = 4;

/// A worker of another server, of which this one reads.
pub struct Reader {
    engine: Arc<Engine>,
    link: Link,
    /// Memory shared with it, where the link has any.
    arena: Option<Arc<Arena>>,
    /// Device memory that the link's card reaches, where it has one.
    direct: Option<Direct>,
    next_transfer: AtomicU64,
    /// Which pieces were asked for, by the numbers of the transfers that bring them.
    wanted: Mutex<FxHashMap<u64, Wanted>>,
    turns: Mutex<Turns>,
    /// Device memory that it lends.
    lent: Descriptors,
}

/// A piece that was asked for.
struct Wanted {
    copy: Arc<Copy>,
    piece: Piece,
    /// Where the card may put it: the memory, the first byte's address, and bytes.
    by_card: Option<(DeviceMemory, u64, usize)>,
}

/// The bytes of a piece.
enum Arrived {
    /// In memory of this process.
    Staged(Staging),
    /// In memory shared with the other worker.
    Leased(Lease),
}

impl Arrived {
    fn as_ptr(&self) -> *const u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Leased(lease) => lease.as_ptr(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Leased(lease) => lease.len(),
        }
    }
}

/// Whose turn it is to read.
#[derive(Default)]
struct Turns {
    reading: usize,
    waiting: VecDeque<Arc<Copy>>,
}

/// What the link tells the reader.
struct Events(Arc<Reader>);

impl LinkEvents for Events {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let wanted = self.0.wanted.lock().remove(&transfer)?;
        match wanted.copy.reader.engine.gpu.staging(wanted.piece.bytes()) {
            Ok(staging) if staging.len() as u64 == total => Some(wanted.expect(staging)),
            Ok(_) => {
                wanted.end(Err(CUresult::CUDA_ERROR_UNKNOWN));
                None
            }
            Err(status) => {
                wanted.end(Err(status));
                None
            }
        }
    }

    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        let Some(wanted) = self.0.wanted.lock().remove(&transfer) else { return Err(lease) };
        wanted.end(Ok(Arrived::Leased(lease)));
        Ok(())
    }

    fn allocation(&self, number: u64, allocation: Result<OwnedFd, DescriptorError>) {
        if !self.0.lent.arrive(number, allocation) {
            tracing::warn!("another server's worker lends more than anybody has asked it for");
            self.0.close();
        }
    }

    fn lost(&self, cause: &LinkError) {
        tracing::warn!("the link to another server is lost: {cause}");
        let wanted = core::mem::take(&mut *self.0.wanted.lock());
        wanted.into_values().for_each(|wanted| wanted.end(Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)));
    }
}

impl Wanted {
    /// Where its bytes go when they come in parts.
    fn expect(self, staging: Staging) -> Destination {
        let (start, length) = (staging.as_ptr(), staging.len());
        let arrived = move |outcome: Result<(), _>| {
            let outcome = outcome.map_err(|_| CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE);
            self.end(outcome.map(|()| Arrived::Staged(staging)));
        };
        // SAFETY: the memory belongs to the staging, which the callback owns until it has run.
        unsafe { Destination::raw(start, length, arrived) }
    }

    /// Its bytes have come, or never will.
    fn end(self, outcome: CuResult<Arrived>) {
        let Self { copy, piece, .. } = self;
        let engine = Arc::clone(&copy.reader.engine);
        engine.peers.steps.run(move || copy.arrived(piece, outcome));
    }

    /// Has the card fetch its bytes from where they lie in the other worker's memory; nothing where it was not asked for so.
    fn fetch(self, memory: LentMemory) -> Option<()> {
        let Self { copy, by_card, .. } = self;
        let (device, address, length) = by_card?;
        let link = copy.reader.link.clone();
        let then = Box::new(move |outcome: Result<(), LinkError>| {
            let engine = Arc::clone(&copy.reader.engine);
            engine.peers.steps.run(move || copy.fetched(outcome));
        });
        link.read_to_device(memory, &device, address, length, then);
        Some(())
    }
}

impl Reader {
    /// Begins to listen to what the other worker says. `direct` is GPUDirect for the link, where it has any.
    pub fn start(
        engine: &Arc<Engine>,
        link: Link,
        mut receiver: Receiver,
        direct: Option<Direct>,
    ) -> Arc<Self> {
        let reader = Arc::new(Self {
            engine: Arc::clone(engine),
            arena: link.regions().map(Arena::new),
            link,
            direct,
            next_transfer: AtomicU64::new(1),
            wanted: Mutex::default(),
            turns: Mutex::default(),
            lent: Descriptors::default(),
        });
        reader.link.start(Arc::new(Events(Arc::clone(&reader))));
        let listener = Arc::clone(&reader);
        let started = threads::spawn("peer", move || {
            while let Ok(body) = receiver.recv() {
                for message in Messages::<PeerMessage>::new(body) {
                    match message {
                        Ok(PeerMessage::Failed { transfer, status }) => {
                            let failed = listener.wanted.lock().remove(&transfer);
                            if let Some(failed) = failed {
                                failed.end(Err(CUresult(status)));
                            }
                        }
                        Ok(PeerMessage::Lent { transfer, memory }) if listener.fetch(transfer, memory) => {}
                        _ => {
                            tracing::warn!("another server's worker says something senseless");
                            listener.close();
                            return;
                        }
                    }
                }
            }
        });
        if let Err(cause) = started {
            tracing::error!("another server's worker cannot be listened to: {cause}");
            reader.close();
        }
        reader
    }

    /// Has the card fetch a transfer; false where it was not asked for so.
    fn fetch(&self, transfer: u64, memory: LentMemory) -> bool {
        let wanted = self.wanted.lock().remove(&transfer);
        wanted.is_some_and(|wanted| wanted.fetch(memory).is_some())
    }

    /// Ends the link; nothing more comes of what was asked for.
    pub fn close(&self) {
        let Counters { transfer_bytes_received: all, direct_bytes_received: direct, .. } =
            self.link.counters();
        tracing::info!("{all} bytes came from another server, {direct} of them by GPUDirect");
        self.link.close();
        let wanted = core::mem::take(&mut *self.wanted.lock());
        wanted.into_values().for_each(|wanted| wanted.end(Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)));
    }

    /// What the other worker has lent and nobody has taken yet.
    pub fn lent(&self) -> &Descriptors {
        &self.lent
    }

    /// Lets a copy begin to read, now or when another one has ended.
    fn take_turn(&self, copy: Arc<Copy>) {
        let mut turns = self.turns.lock();
        if turns.reading >= MOST_READING {
            turns.waiting.push_back(copy);
            return;
        }
        turns.reading += 1;
        drop(turns);
        copy.go_on();
    }

    /// A copy has ended: the next one's turn has come.
    fn give_turn(&self) {
        let next = {
            let mut turns = self.turns.lock();
            let next = turns.waiting.pop_front();
            turns.reading -= usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            self.engine.peers.steps.run(move || next.go_on());
        }
    }
}

/// One copy.
struct Copy {
    reader: Arc<Reader>,
    head: Head,
    offer: u64,
    destination: NativePlace,
    /// In which pieces are written.
    writing: Native<Stream>,
    /// How many pieces are under way at a time.
    buffers: usize,
    state: Mutex<State>,
}

struct State {
    pieces: Box<dyn Iterator<Item = Piece> + Send>,
    under_way: usize,
    failure: Option<CUresult>,
    end: End,
}

/// What of a copy's end has come.
enum End {
    /// Nothing: the stream stops at this gate, or will.
    Open(Option<Box<dyn Gate>>),
    /// The copy is over.
    Over,
}

impl Engine {
    /// Puts a copy from another worker into a stream.
    pub(in crate::worker) fn copy_from_peer(
        self: &Arc<Self>,
        head: Head,
        request: &peer_copy,
    ) -> CuResult<()> {
        let reader = self.peers.readers.lock().get(&request.peer).cloned();
        let reader = reader.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let stream = self.objects.native(request.stream)?;
        let destination = request.destination.natives(&self.objects)?;
        let (plan, pieces) =
            pieces(&destination, reader.link.via()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let copy = Arc::new(Copy {
            head,
            offer: request.offer,
            destination,
            writing: self.writing_stream(head.context)?,
            buffers: plan.buffers,
            state: Mutex::new(State {
                pieces: Box::new(pieces),
                under_way: 0,
                failure: None,
                end: End::Open(None),
            }),
            reader,
        });
        let (engine, reached) = (Arc::clone(self), Arc::clone(&copy));
        let gate = self.gpu.gate(
            stream,
            Box::new(move || {
                engine.peers.steps.run(move || Arc::clone(&reached.reader).take_turn(reached));
            }),
        )?;
        let mut state = copy.state.lock();
        match &mut state.end {
            End::Open(kept) => *kept = Some(gate),
            End::Over => {
                drop(state);
                gate.open();
            }
        }
        Ok(())
    }
}

/// How a copy is read, and its pieces. Rows of arrays stay whole: what their elements are only the driver knows.
fn pieces(destination: &NativePlace, via: Via) -> Option<(Plan, impl Iterator<Item = Piece> + Send + use<>)> {
    let (width, height, depth) = destination.size();
    let bytes = usize::try_from(destination.bytes()?).ok()?;
    let module = match via {
        Via::Tcp => Module::Tcp,
        Via::Shm => Module::Shm,
        Via::Verbs => Module::Verbs,
    };
    // The other worker's copy from its device is the first stage.
    let plan = Table::default().plan(module, Direction::FromDevice, bytes);
    let shape = Shape { width: width as usize, height: height as usize, depth: depth as usize };
    let most = match destination {
        NativePlace::Memory(_) => plan.buffer_bytes,
        NativePlace::Array(_) => plan.buffer_bytes.max(shape.width),
    };
    Some((plan, cut(shape, most, 1)))
}

/// The width in bytes, the height and the depth of a piece.
fn size(piece: Piece) -> [u64; 3] {
    [piece.shape.width, piece.shape.height, piece.shape.depth].map(|size| size as u64)
}

impl Copy {
    /// Reads as many pieces as may be under way, and ends the copy when there is nothing left to do.
    fn go_on(self: &Arc<Self>) {
        loop {
            let piece = {
                let mut state = self.state.lock();
                if state.failure.is_some() || state.under_way >= self.buffers {
                    None
                } else {
                    let piece = state.pieces.next();
                    state.under_way += usize::from(piece.is_some());
                    piece
                }
            };
            let Some(piece) = piece else { break };
            if let Err(status) = self.read(piece) {
                self.landed(Err(status));
                return;
            }
        }
        if self.state.lock().under_way == 0 {
            self.finish();
        }
    }

    /// Asks for a piece.
    fn read(self: &Arc<Self>, piece: Piece) -> CuResult<()> {
        let reader = &self.reader;
        let transfer = reader.next_transfer.fetch_add(1, Ordering::Relaxed);
        let by_card = self.reach(piece)?;
        let message = PeerMessage::Read {
            offer: self.offer,
            at: piece.at.map(|at| at as u64),
            size: size(piece),
            transfer,
            by_card: by_card.is_some(),
        };
        reader.wanted.lock().insert(transfer, Wanted { copy: Arc::clone(self), piece, by_card });
        let sent = reader.link.send(|out| message.encode(out));
        // Whoever notices the loss of the link ends what is wanted by then.
        if sent.is_err() && reader.wanted.lock().remove(&transfer).is_some() {
            return Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE);
        }
        Ok(())
    }

    /// The memory of a piece's place, as the link's card knows it.
    fn reach(&self, piece: Piece) -> CuResult<Option<(DeviceMemory, u64, usize)>> {
        let Some(direct) = &self.reader.direct else { return Ok(None) };
        let engine = &self.reader.engine;
        engine.enter_context(self.head.context)?;
        let part = self.destination.part(piece.at.map(|at| at as u64), size(piece));
        Ok(part.and_then(|part| direct.reach(&*engine.gpu, &part)))
    }

    /// The card has put a piece into the device's memory, or never will.
    fn fetched(self: &Arc<Self>, outcome: Result<(), LinkError>) {
        let engine = &self.reader.engine;
        let finish = || {
            outcome.map_err(|_| CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)?;
            engine.gpu.finish_direct_writes(engine.objects.native(self.head.context)?)
        };
        let finished = finish();
        self.landed(finished);
    }

    /// Writes a piece that has come, or never will, to the device.
    fn arrived(self: &Arc<Self>, piece: Piece, outcome: CuResult<Arrived>) {
        if let Err(status) = outcome.and_then(|bytes| self.write(piece, bytes)) {
            self.landed(Err(status));
        }
    }

    fn write(self: &Arc<Self>, piece: Piece, bytes: Arrived) -> CuResult<()> {
        let engine = &self.reader.engine;
        engine.enter_context(self.head.context)?;
        let part = self.destination.part(piece.at.map(|at| at as u64), size(piece));
        let part = part.filter(|_| bytes.len() == piece.bytes()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if let (Arrived::Leased(lease), Some(arena)) = (&bytes, &self.reader.arena) {
            arena.prepare(&*engine.gpu, lease.as_ptr(), lease.len());
        }
        // SAFETY: the memory has the part's bytes and is kept by the completion asked for right after.
        unsafe { engine.gpu.start_copy_to_device(&part, bytes.as_ptr(), self.writing)? };
        let copy = Arc::clone(self);
        engine.gpu.after(
            self.writing,
            Box::new(move |outcome| {
                drop(bytes);
                let engine = Arc::clone(&copy.reader.engine);
                engine.peers.steps.run(move || copy.landed(outcome));
            }),
        )
    }

    /// A piece is on the device, or never will be.
    fn landed(self: &Arc<Self>, outcome: CuResult<()>) {
        {
            let mut state = self.state.lock();
            state.under_way -= 1;
            if let Err(status) = outcome {
                state.failure.get_or_insert(status);
            }
        }
        self.go_on();
    }

    /// Lets the stream go on, and tells the client what failed.
    fn finish(&self) {
        let (end, failure) = {
            let mut state = self.state.lock();
            (core::mem::replace(&mut state.end, End::Over), state.failure)
        };
        let End::Open(gate) = end else { return };
        // A lost link needs to be told nothing.
        let _ = self.reader.link.append(|out| PeerMessage::Done { offer: self.offer }.encode(out));
        if let Some(status) = failure {
            self.reader.engine.answer(self.head, Err(status), &[]);
        }
        if let Some(gate) = gate {
            gate.open();
        }
        self.reader.give_turn();
    }
}
