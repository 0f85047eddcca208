//! Destination side of one copy between servers: its pieces in flight, and its stream.

use super::reader::{ReadRequest, Reader};
use crate::locks::{Mutex, rank};
use crate::worker::peers::destination::reader::{Arrived, Asker};
use crate::worker::pool::Pool;
use crate::worker::session::{Head, Session};
use crate::worker::stream_task::{self, Stop};
use causeway_api::calls::peer_copy;
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::CUresult;
use causeway_gpu::in_flight::{HostMemory, InFlight};
use causeway_gpu::objects::Translate;
use causeway_gpu::{CuResult, NativeLocation};
use causeway_link::{DeviceMemory, LinkError, TransportKind};
use causeway_pipeline::{Direction, Piece, Plan, Shape, Table, cut};
use causeway_wire::codec::Encode;
use causeway_wire::message::PeerMessage;
use std::sync::Arc;

/// One copy.
struct Copy {
    session: Arc<Session>,
    /// The one thread that takes each copy's next step.
    event_loop: Arc<Pool>,
    reader: Arc<Reader>,
    head: Head,
    offer: u64,
    destination: NativeLocation,
    /// In which pieces are written.
    writing: Native<Stream>,
    /// How many pieces are under way at a time.
    buffers: usize,
    state: Mutex<rank::Leaf, State>,
}

struct State {
    pieces: Box<dyn Iterator<Item = Piece> + Send>,
    in_flight: usize,
    failure: Option<CUresult>,
    /// Where the stream stops, from its turn on until the copy is over.
    stop: Option<Arc<Stop>>,
}

/// Puts a copy from another worker into a stream. Its pieces are written to the device in the stream
/// `writing`, and its steps are taken on the one thread of `event_loop`.
pub fn copy(
    session: &Arc<Session>,
    event_loop: &Arc<Pool>,
    reader: Arc<Reader>,
    writing: Native<Stream>,
    head: Head,
    request: &peer_copy,
) -> CuResult<()> {
    let stream = session.objects().native(request.stream)?;
    let destination = request.destination.natives(session.objects())?;
    let (plan, pieces) =
        pieces(&destination, reader.link.kind()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let copy = Arc::new(Copy {
        session: Arc::clone(session),
        event_loop: Arc::clone(event_loop),
        head,
        offer: request.offer,
        destination,
        writing,
        buffers: plan.buffers,
        state: Mutex::new(State { pieces: Box::new(pieces), in_flight: 0, failure: None, stop: None }),
        reader,
    });
    let ready = Arc::clone(&copy);
    stream_task::enqueue(
        session.gpu(),
        stream,
        move |stop| {
            ready.state.lock().stop = Some(stop);
            let event_loop = Arc::clone(&ready.event_loop);
            event_loop.run(move || {
                let reader = Arc::clone(&ready.reader);
                reader.enqueue(Box::new(move || ready.resume()));
            });
        },
        move |status| copy.send_end(Some(status)),
    )?;
    Ok(())
}

/// How a copy is read, and its pieces. Rows of arrays stay whole: what their elements are only the driver
/// knows.
fn pieces(
    destination: &NativeLocation,
    via: TransportKind,
) -> Option<(Plan, impl Iterator<Item = Piece> + Send + use<>)> {
    let (width, height, depth) = destination.size();
    let bytes = usize::try_from(destination.bytes()?).ok()?;
    // The other worker's copy from its device is the first stage.
    let plan = Table::default().plan(via, Direction::FromDevice, bytes);
    let shape = Shape { width: width as usize, height: height as usize, depth: depth as usize };
    let max = match destination {
        NativeLocation::Memory(_) => plan.buffer_bytes,
        NativeLocation::Array(_) => plan.buffer_bytes.max(shape.width),
    };
    Some((plan, cut(shape, max, 1)))
}

/// The width in bytes, the height and the depth of a piece.
fn size(piece: Piece) -> [u64; 3] {
    [piece.shape.width, piece.shape.height, piece.shape.depth].map(|size| size as u64)
}

impl Copy {
    /// Reads as many pieces as may be under way, and ends the copy when there is nothing left to do.
    fn resume(self: &Arc<Self>) {
        loop {
            let piece = {
                let mut state = self.state.lock();
                if state.failure.is_some() || state.in_flight >= self.buffers {
                    None
                } else {
                    let piece = state.pieces.next();
                    state.in_flight += usize::from(piece.is_some());
                    piece
                }
            };
            let Some(piece) = piece else { break };
            if let Err(status) = self.read(piece) {
                self.landed(Err(status));
                return;
            }
        }
        if self.state.lock().in_flight == 0 {
            self.finish();
        }
    }

    /// Asks for a piece.
    fn read(self: &Arc<Self>, piece: Piece) -> CuResult<()> {
        let pending =
            ReadRequest { asker: Arc::<Self>::clone(self), piece, by_rdma: self.map_window(piece)? };
        self.reader.ask(self.offer, piece.at.map(|at| at as u64), size(piece), pending)
    }

    /// The memory of a piece's place, as the link's card knows it.
    fn map_window(&self, piece: Piece) -> CuResult<Option<(DeviceMemory, u64, usize)>> {
        let Some(direct) = &self.reader.direct else { return Ok(None) };
        if !self.session.exchange().allows_gpudirect() {
            return Ok(None);
        }
        self.session.enter_context(self.head.context)?;
        let part = self.destination.part(piece.at.map(|at| at as u64), size(piece));
        Ok(part.and_then(|part| direct.map_window(self.session.gpu(), &part)))
    }

    fn write(self: &Arc<Self>, piece: Piece, bytes: Arrived) -> CuResult<()> {
        let gpu = self.session.gpu();
        self.session.enter_context(self.head.context)?;
        let part = self.destination.part(piece.at.map(|at| at as u64), size(piece));
        let part =
            part.filter(|_| bytes.bytes() == piece.bytes()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if let (Arrived::Leased(lease), Some(arena)) = (&bytes, &self.reader.arena) {
            arena.prepare(gpu, lease.as_ptr(), lease.len());
        }
        let started = InFlight::copy_to_device(gpu, &part, bytes, self.writing)?;
        let copy = Arc::clone(self);
        started.after(gpu, move |outcome| {
            let outcome = outcome.map(drop);
            let event_loop = Arc::clone(&copy.event_loop);
            event_loop.run(move || copy.landed(outcome));
        })
    }

    /// A piece is on the device, or never will be.
    fn landed(self: &Arc<Self>, outcome: CuResult<()>) {
        {
            let mut state = self.state.lock();
            state.in_flight -= 1;
            if let Err(status) = outcome {
                state.failure.get_or_insert(status);
            }
        }
        self.resume();
    }

    /// Lets the stream go on, and tells the client what failed.
    fn finish(&self) {
        let (stop, failure) = {
            let mut state = self.state.lock();
            (state.stop.take(), state.failure)
        };
        let Some(stop) = stop else { return };
        self.send_end(failure);
        stop.open();
        self.reader.finish_copy();
    }

    /// Tells the other worker, whose stream waits for it, that the copy is over, and the client what failed.
    fn send_end(&self, failure: Option<CUresult>) {
        // A lost link needs to be told nothing.
        let _ = self.reader.link.append(|out| PeerMessage::Done { offer: self.offer }.encode(out));
        if let Some(status) = failure {
            self.session.reply(self.head, Err(status), &[]);
        }
    }
}

impl Asker for Copy {
    /// Writes a piece that has come, or never will, to the device.
    fn arrived(self: Arc<Self>, piece: Piece, outcome: CuResult<Arrived>) {
        if let Err(status) = outcome.and_then(|bytes| self.write(piece, bytes)) {
            self.landed(Err(status));
        }
    }

    fn fetched(self: Arc<Self>, outcome: Result<(), LinkError>) {
        let finish = || {
            outcome.map_err(|_| CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)?;
            self.session.gpu().finish_direct_writes(self.session.objects().native(self.head.context)?)
        };
        let finished = finish();
        self.landed(finished);
    }
}
