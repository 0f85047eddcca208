//! Which pieces of a copy are under way, and when does its stream go on?

use super::Reader;
use super::wanted::{Arrived, Wanted};
use crate::worker::engine::{Engine, Head};
use causeway_api::calls::peer_copy;
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::CUresult;
use causeway_gpu::busy::{Busy, HostMemory};
use causeway_gpu::objects::Translate;
use causeway_gpu::{CuResult, Gate, NativePlace};
use causeway_link::{DeviceMemory, LinkError, TransportKind};
use causeway_pipeline::{Direction, Piece, Plan, Shape, Table, cut};
use causeway_wire::codec::Encode;
use causeway_wire::message::PeerMessage;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One copy.
pub(super) struct Copy {
    pub(super) reader: Arc<Reader>,
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
        let reader = self.peers.reader(request.peer)?;
        let stream = self.objects.native(request.stream)?;
        let destination = request.destination.natives(&self.objects)?;
        let (plan, pieces) =
            pieces(&destination, reader.link.kind()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
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
fn pieces(
    destination: &NativePlace,
    via: TransportKind,
) -> Option<(Plan, impl Iterator<Item = Piece> + Send + use<>)> {
    let (width, height, depth) = destination.size();
    let bytes = usize::try_from(destination.bytes()?).ok()?;
    // The other worker's copy from its device is the first stage.
    let plan = Table::default().plan(via, Direction::FromDevice, bytes);
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
    pub(super) fn go_on(self: &Arc<Self>) {
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
    pub(super) fn fetched(self: &Arc<Self>, outcome: Result<(), LinkError>) {
        let engine = &self.reader.engine;
        let finish = || {
            outcome.map_err(|_| CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)?;
            engine.gpu.finish_direct_writes(engine.objects.native(self.head.context)?)
        };
        let finished = finish();
        self.landed(finished);
    }

    /// Writes a piece that has come, or never will, to the device.
    pub(super) fn arrived(self: &Arc<Self>, piece: Piece, outcome: CuResult<Arrived>) {
        if let Err(status) = outcome.and_then(|bytes| self.write(piece, bytes)) {
            self.landed(Err(status));
        }
    }

    fn write(self: &Arc<Self>, piece: Piece, bytes: Arrived) -> CuResult<()> {
        let engine = &self.reader.engine;
        engine.enter_context(self.head.context)?;
        let part = self.destination.part(piece.at.map(|at| at as u64), size(piece));
        let part =
            part.filter(|_| bytes.bytes() == piece.bytes()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if let (Arrived::Leased(lease), Some(arena)) = (&bytes, &self.reader.arena) {
            arena.prepare(&*engine.gpu, lease.as_ptr(), lease.len());
        }
        let busy = Busy::copy_to_device(&*engine.gpu, &part, bytes, self.writing)?;
        let copy = Arc::clone(self);
        busy.after(&*engine.gpu, move |outcome| {
            let outcome = outcome.map(drop);
            let engine = Arc::clone(&copy.reader.engine);
            engine.peers.steps.run(move || copy.landed(outcome));
        })
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
