//! The engine: issues a client's commands in order, parks what cannot be issued yet, and answers.
//!
//! One lock holds the order. The receiving thread holds it while it issues a command; whoever makes a parked
//! command ready (a thread that receives bulk data, a completion of the back end) calls [`Engine::wake`], which issues it at once if
//! the lock is free and leaves it to the holder otherwise. No command is issued by two threads at a time, and
//! nobody waits for the GPU while holding the lock.

use super::arena::Arena;
use super::client_memory::ClientMemory;
use super::copies::Lent;
use super::direct::{DeviceBlocks, Direct};
use super::execute::Answer;
use super::fences::Fences;
use super::gates::Gates;
use super::incoming::Incoming;
use super::mirrors::Mirrors;
use super::order::{self, Blockers, Place, StreamKinds};
use super::peers::Peers;
use super::pool::Pool;
use super::status;
use crate::broker::Exchange;
use crate::cache::ImageCache;
use causeway_api::calls::{Opcode, Request};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_fabric::{
    DescriptorError, Destination, DeviceUse, Lease, Link, LinkError, LinkEvents, SealedMemory,
};
use causeway_gpu::objects::Objects;
use causeway_gpu::{CuResult, Gpu};
use causeway_wire::codec::{DecodeError, Encode};
use causeway_wire::message::{Command, HOST_DONE_TRANSFER, WorkerMessage, begin_reply};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use thiserror::Error;

/// A stream's progress is asked for once in so many commands: an event each would double the cost of a launch.
const COMMANDS_PER_MARK: u64 = 64;

/// Bytes of parked commands. A client that has more waiting for streams that do not move is cut off.
const MOST_PARKED: usize = 1 << 30;

/// How long a worker whose client has gone may take to write images to the cache.
const MOST_KEEPING: Duration = Duration::from_secs(5);

/// Why a session cannot go on.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// A message or a command's arguments could not be decoded.
    #[error("the client sent a message that cannot be decoded: {0}")]
    Undecodable(#[from] DecodeError),
    /// A command has a number that the declaration list does not have.
    #[error("the client sent command number {0}, which this server does not know")]
    UnknownCommand(u16),
    /// The client posts without end into streams that do not move.
    #[error("the client has {0} bytes of commands waiting for streams that do not move")]
    TooMuchParked(usize),
}

/// Whom to answer, and in whose context a command runs.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Number of the call, 0 when no reply is expected.
    pub call: u32,
    /// The client's handle of the context, null when the command needs none.
    pub context: Handle<Context>,
    /// The command.
    pub opcode: Opcode,
}

struct Parked {
    head: Head,
    place: Place,
    payload: Box<[u8]>,
}

/// How far a stream is, in commands.
#[derive(Default)]
struct Progress {
    issued: u64,
    marked: u64,
    completed: Arc<AtomicU64>,
}

/// What the lock protects.
#[derive(Default)]
pub struct State {
    parked: VecDeque<Parked>,
    parked_bytes: usize,
    pub(super) blockers: Blockers,
    kinds: StreamKinds,
    pub(super) fences: Fences,
    progress: FxHashMap<u64, Progress>,
    pub(super) lent: FxHashMap<u64, Lent>,
    pub(super) reply: Vec<u8>,
}

/// The engine of one session.
pub struct Engine {
    pub(super) gpu: Arc<dyn Gpu>,
    pub(super) objects: Objects,
    pub(super) link: Link,
    pub(super) exchange: Arc<Exchange>,
    pub(super) incoming: Incoming,
    /// Memory shared with the client, where the link has any.
    pub(super) arena: Option<Arc<Arena>>,
    /// Device memory that network cards reach, or why there is none.
    pub(super) direct: Result<Direct, String>,
    /// Blocks of device memory that cards of any link may come to reach.
    pub(super) blocks: Arc<DeviceBlocks>,
    pub(super) mirrors: Mirrors,
    pub(super) client_memory: ClientMemory,
    pub(super) peers: Peers,
    /// Bytes of copies to the client that are under way.
    pub(super) outgoing: AtomicUsize,
    /// Threads for slow driver calls.
    pub(super) aside: Pool,
    /// The one thread for the linker of device code.
    pub(super) linker: Pool,
    /// Images of earlier sessions, if they are kept.
    pub(super) cache: Option<Arc<ImageCache>>,
    /// The thread that writes images to the cache.
    pub(super) keeper: Pool,
    /// Bytes of copies that it has still to write.
    pub(super) keeping: Arc<AtomicUsize>,
    /// Objects whose making aside has ended since the lock was last taken.
    pub(super) made: Mutex<Vec<u64>>,
    pub(super) gates: Mutex<Gates>,
    state: Mutex<State>,
    /// Something that a parked command waits for has come since the lock was last taken.
    woken: AtomicBool,
}

impl Engine {
    /// An engine that executes on `gpu`, answers over `link`, keeps images in `cache`, and shares with other sessions
    /// by `exchange`.
    pub fn new(
        gpu: Arc<dyn Gpu>,
        link: Link,
        cache: Option<ImageCache>,
        exchange: Arc<Exchange>,
    ) -> Arc<Self> {
        let arena = link.regions().map(Arena::new);
        let blocks = Arc::default();
        let direct = Direct::new(&link, &*gpu, &blocks, DeviceUse::Own);
        Arc::new(Self {
            gpu,
            direct,
            blocks,
            objects: Objects::default(),
            arena,
            link,
            exchange,
            incoming: Incoming::default(),
            mirrors: Mirrors::default(),
            client_memory: ClientMemory::default(),
            peers: Peers::default(),
            outgoing: AtomicUsize::new(0),
            aside: Pool::new("causeway-aside", 4),
            linker: Pool::new("causeway-link", 1),
            cache: cache.map(Arc::new),
            keeper: Pool::new("causeway-keep", 1),
            keeping: Arc::default(),
            made: Mutex::default(),
            gates: Mutex::default(),
            state: Mutex::default(),
            woken: AtomicBool::new(false),
        })
    }

    /// Takes one command of the client: issues it, or parks it.
    pub fn command(self: &Arc<Self>, command: &Command<'_>) -> Result<(), ProtocolError> {
        let opcode =
            Opcode::from_number(command.opcode).ok_or(ProtocolError::UnknownCommand(command.opcode))?;
        let request = Request::decode(opcode, command.payload)?;
        let head = Head { call: command.call, context: Handle::from_value(command.context), opcode };
        let place = order::place(&request);
        if let Some(Payload::Image { number, length, hash }) = request.payload() {
            self.seek_image(number, length, hash, matches!(request, Request::copy_to_device(_)));
        }
        if let Request::copy_to_device(copy) = &request {
            self.see_to_lent(copy);
        }
        let mut state = self.state.lock();
        match &request {
            Request::stream_create(create) => state.kinds.created(create.stream, create.flags),
            Request::green_stream_create(create) => state.kinds.created(create.stream, create.flags),
            _ => {}
        }
        if !state.blockers.holds_up(place, &request, &state.kinds) && self.is_ready(&state, place, &request) {
            self.issue(&mut state, head, place, &request, command.payload);
        } else {
            let answered = self.answer_held_up_query(head, &request);
            let parked = Parked { head: answered, place, payload: command.payload.into() };
            self.park(&mut state, parked, &request)?;
        }
        self.release(state);
        Ok(())
    }

    /// Issues parked commands that have become ready, if nobody else is at it.
    pub fn wake(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if let Some(state) = self.state.try_lock() {
            self.release(state);
        }
    }

    /// Gives the lock back, after issuing what became ready while it was held. The flag is read again after
    /// the lock is free, so a wake that found the lock taken is never lost.
    fn release<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        loop {
            while self.woken.swap(false, Ordering::SeqCst) {
                self.resume(&mut state);
            }
            drop(state);
            if !self.woken.load(Ordering::SeqCst) {
                return;
            }
            match self.state.try_lock() {
                Some(again) => state = again,
                None => return,
            }
        }
    }

    /// Lets go of every stream that waits for the client, and finishes what is for later sessions.
    pub fn close(&self) {
        self.gates.lock().open_all();
        self.peers.close();
        self.keeper.finish(MOST_KEEPING);
    }

    fn park(&self, state: &mut State, parked: Parked, request: &Request<'_>) -> Result<(), ProtocolError> {
        state.parked_bytes += parked.payload.len() + size_of::<Parked>();
        if state.parked_bytes > MOST_PARKED {
            return Err(ProtocolError::TooMuchParked(state.parked_bytes));
        }
        state.blockers.add(parked.place, request, &state.kinds);
        state.parked.push_back(parked);
        Ok(())
    }

    /// Issues every parked command whose time has come, in order.
    fn resume(self: &Arc<Self>, state: &mut State) {
        for handle in self.made.lock().drain(..) {
            state.blockers.end_making(handle);
        }
        if state.parked.is_empty() {
            return;
        }
        state.blockers.forget_parked();
        state.parked_bytes = 0;
        for parked in core::mem::take(&mut state.parked) {
            let request = match Request::decode(parked.head.opcode, &parked.payload) {
                Ok(request) => request,
                Err(error) => {
                    // It was decoded before it was parked, so this cannot be; a reply is owed all the same.
                    tracing::error!("a parked command cannot be decoded: {error}");
                    self.answer(parked.head, Err(CUresult::CUDA_ERROR_UNKNOWN), &[]);
                    continue;
                }
            };
            if !state.blockers.holds_up(parked.place, &request, &state.kinds)
                && self.is_ready(state, parked.place, &request)
            {
                self.issue(state, parked.head, parked.place, &request, &parked.payload);
            } else {
                state.parked_bytes += parked.payload.len() + size_of::<Parked>();
                state.blockers.add(parked.place, &request, &state.kinds);
                state.parked.push_back(parked);
            }
        }
    }

    /// Whether a command that nothing holds up can be issued without blocking.
    fn is_ready(&self, state: &State, place: Place, request: &Request<'_>) -> bool {
        if let Some(Payload::Transfer { number, .. } | Payload::Image { number, .. }) = request.payload()
            && !self.incoming.is_settled(number)
        {
            return false;
        }
        if let Some(Payload::Lent { number, .. }) = request.payload()
            && self.incoming.knows(number)
            && !self.incoming.is_settled(number)
        {
            return false;
        }
        if let Request::client_memory_map(map) = request
            && !self.client_memory.has_arrived(map.number)
        {
            return false;
        }
        if matches!(request, Request::copy_from_device(_) | Request::copy_from_device_now(_))
            && !self.has_outgoing_credit()
        {
            return false;
        }
        match (self.gpu.queue_limit(), place) {
            (Some(limit), Place::InStream { stream, .. }) => {
                state.progress.get(&stream).is_none_or(|progress| {
                    progress.issued - progress.completed.load(Ordering::Acquire) < limit as u64
                })
            }
            _ => true,
        }
    }

    /// Carries out a command; what it answers goes out here, or later from a completion.
    fn issue(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        place: Place,
        request: &Request<'_>,
        arguments: &[u8],
    ) {
        let outcome = self
            .enter_context(head.context)
            .and_then(|()| self.pass_fences(state, head.context, place))
            .inspect_err(|_| self.let_go_of_lent(request.payload()))
            .and_then(|()| self.execute(state, head, request, arguments));
        tracing::trace!(command = head.opcode.name(), call = head.call, status = status(&outcome), "issued");
        if let Request::stream_destroy(destroy) = request {
            // Its staging has been asked back by `execute`.
            state.kinds.destroyed(destroy.stream);
            state.progress.remove(&destroy.stream.value());
        }
        if let Place::InStream { stream, .. } = place {
            self.count(state, stream);
        }
        match outcome {
            Ok(Answer::Now) => {
                let reply = core::mem::take(&mut state.reply);
                self.answer(head, Ok(()), &reply);
                state.reply = reply;
            }
            Ok(Answer::Later) => {}
            Err(error) => {
                if head.call == 0 {
                    request.makes(|handle| self.objects.fail(handle, error));
                }
                self.answer(head, Err(error), &[]);
            }
        }
    }

    /// Puts a command that goes into a stream behind the synchronous copies before it.
    fn pass_fences(&self, state: &mut State, context: Handle<Context>, place: Place) -> CuResult<()> {
        let (Place::InStream { stream, .. }, false) = (place, state.fences.is_empty()) else { return Ok(()) };
        let native = || self.objects.native(Handle::from_value(stream));
        state.fences.pass(&*self.gpu, context, stream, &state.kinds, native)
    }

    /// Counts a command of a stream, and asks for the stream's progress now and then.
    fn count(self: &Arc<Self>, state: &mut State, stream: u64) {
        if self.gpu.queue_limit().is_none() {
            return;
        }
        let progress = state.progress.entry(stream).or_default();
        progress.issued += 1;
        if progress.issued - progress.marked < COMMANDS_PER_MARK {
            return;
        }
        progress.marked = progress.issued;
        let (mark, completed) = (progress.issued, Arc::clone(&progress.completed));
        let Ok(native) = self.objects.native(Handle::from_value(stream)) else { return };
        let engine = Arc::clone(self);
        let asked = self.gpu.after_a_while(
            native,
            Box::new(move |_| {
                completed.store(mark, Ordering::Release);
                engine.wake();
            }),
        );
        if asked.is_err() {
            // The stream has failed; so will every command in it, and none of them will block.
            progress.completed.store(mark, Ordering::Release);
        }
    }

    /// Makes the context of a command current on this thread.
    pub(super) fn enter_context(&self, context: Handle<Context>) -> CuResult<()> {
        if context.is_null() {
            return Ok(());
        }
        self.gpu.make_current(self.objects.native(context)?)
    }

    /// Tells the client whether network cards reach the devices' memory.
    pub(super) fn tell_of_direct(&self) {
        let (is_on, text) = match &self.direct {
            Ok(direct) => {
                let text = direct.explain();
                tracing::info!("copies of this session: {text}");
                (true, text)
            }
            Err(why) => (false, why.clone()),
        };
        // A lost link is noticed by the receiving thread.
        let _ = self.link.append(|out| WorkerMessage::Direct { is_on, text: &text }.encode(out));
    }

    /// Answers a call, or reports the failure of a posted one.
    pub(super) fn answer(&self, head: Head, outcome: CuResult<()>, payload: &[u8]) {
        let status = status(&outcome);
        // A lost link is noticed by the receiving thread.
        let _ = match (head.call, outcome) {
            (0, Ok(())) => return,
            (0, Err(_)) => {
                tracing::debug!(command = head.opcode.name(), status, "a posted call failed");
                let opcode = head.opcode as u16;
                self.link.append(|out| WorkerMessage::Failed { opcode, status }.encode(out))
            }
            (call, _) => self.link.send(|out| {
                let open = begin_reply(out, call, status);
                out.extend_from_slice(payload);
                open.finish(out);
            }),
        };
    }

    /// Answers a call with success and what `encode` appends.
    pub(super) fn answer_with(&self, head: Head, encode: impl FnOnce(&mut Vec<u8>)) {
        let _ = self.link.send(|out| {
            let open = begin_reply(out, head.call, 0);
            encode(out);
            open.finish(out);
        });
    }
}

/// What the link tells the engine.
pub struct Events(pub Arc<Engine>);

impl LinkEvents for Events {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let engine = Arc::clone(&self.0);
        if transfer & HOST_DONE_TRANSFER != 0 {
            engine.host_done(transfer & !HOST_DONE_TRANSFER);
            return None;
        }
        self.0.incoming.open(&*self.0.gpu, transfer, total, move || engine.wake())
    }

    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        let Some(arena) = self.0.arena.as_ref().filter(|_| transfer & HOST_DONE_TRANSFER == 0) else {
            return Err(lease);
        };
        self.0.incoming.open_in_place(arena, transfer, lease)?;
        self.0.wake();
        Ok(())
    }

    fn descriptor(&self, number: u64, memory: Result<SealedMemory, DescriptorError>) {
        let memory = memory.inspect_err(|cause| tracing::warn!("memory of the client is not used: {cause}"));
        self.0.client_memory.arrive(number, memory.ok());
        self.0.wake();
    }

    fn lost(&self, cause: &LinkError) {
        tracing::debug!("link lost: {cause}");
    }
}
