//! Streams as the client knows them: what their work may still write to or read from the program's memory.

use crate::capture;
use crate::completion::{self, Watermark};
use crate::context::{self, ContextState};
use crate::handles::{self, Registry};
use crate::session;
use crate::session::transfers::{self, Transfer};
use causeway_api::calls;
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};
use core::cell::RefCell;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// What the client keeps of a stream.
pub struct StreamState {
    /// Its handle; null for a legacy default stream.
    pub handle: Handle<Stream>,
    /// The context it belongs to.
    pub context: Handle<Context>,
    /// `CUstream_flags`.
    pub flags: u32,
    priority: AtomicI32,
    /// A number that no other stream of the process has or had.
    pub id: u64,
    /// The capture that it takes part in, 0 when there is none.
    pub(crate) capture: AtomicU64,
    /// Transfers that its copies began, and those that other streams had begun before what it waits for.
    transfers: Mutex<Transfers>,
    /// For a legacy default stream: those of streams that were destroyed.
    left_behind: LeftBehind,
    /// How far its work is known to be done.
    watermark: Arc<Watermark>,
    /// The ticket of the newest command that lets the program's own code run, or waits for it; 0 when there was none.
    hazard: AtomicU64,
}

/// What streams of a context held when they were destroyed.
#[derive(Default)]
struct LeftBehind {
    /// Blocking ones, which the legacy default stream is in order with.
    in_order: Mutex<Transfers>,
    /// Non-blocking ones.
    apart: Mutex<Transfers>,
}

/// Unfinished transfers of a stream, each with a ticket that no command behind it has and none before it exceeds.
#[derive(Default)]
struct Transfers {
    entries: Vec<(u64, Arc<Transfer>)>,
    /// For a legacy default stream: up to which ticket it has taken over those of blocking streams.
    taken_over: u64,
}

impl Transfers {
    fn add(&mut self, ticket: u64, transfer: Arc<Transfer>) {
        // Looked through each time that the list has no room, and so not for every transfer.
        if self.entries.len() == self.entries.capacity() {
            self.entries.retain(|(_, transfer)| !transfer.is_done());
        }
        self.entries.push((ticket, transfer));
    }

    fn unfinished(&self) -> impl Iterator<Item = &(u64, Arc<Transfer>)> {
        self.entries.iter().filter(|(_, transfer)| !transfer.is_done())
    }
}

/// What lies before a point of a stream, as far as the program's memory is concerned.
#[derive(Clone, Default)]
pub struct Ahead {
    /// Copies from the device whose bytes are not there yet.
    pub transfers: Vec<Arc<Transfer>>,
    /// Whether the program's own code may run before the point is reached: a host function, or whatever another
    /// thread does before it lets a wait-value end.
    pub hazard: bool,
}

impl Ahead {
    fn take_in(&mut self, held: &Mutex<Transfers>) {
        self.transfers.extend(held.lock().unfinished().map(|(_, transfer)| transfer.clone()));
    }

    /// Waits until the bytes of every copy are there.
    pub fn wait(&self) -> Result<(), CUresult> {
        self.transfers.iter().try_for_each(|transfer| transfer.wait())
    }

    /// Whether the bytes of every copy are there.
    pub fn is_done(&self) -> bool {
        self.transfers.iter().all(|transfer| transfer.is_done())
    }

    /// Whether memory of the program may still change before the point is reached.
    pub fn is_unsettled(&self) -> bool {
        self.hazard || !self.is_done()
    }
}

static STREAMS: Registry<Stream, StreamState> = Registry::new();
/// Whether any stream ever had a hazard, so that programs without pay one load.
static ANY_HAZARD: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OF_THREAD: RefCell<ThreadStreams> = const { RefCell::new(ThreadStreams(Vec::new())) };
}

/// The per-thread default streams of one thread, one a context.
struct ThreadStreams(Vec<(Handle<Context>, Handle<Stream>)>);

impl Drop for ThreadStreams {
    fn drop(&mut self) {
        if !crate::process::is_ready() {
            return;
        }
        for (context, stream) in self.0.drain(..) {
            if handles::is_valid(context) {
                // Nobody is left to hear of an error; the context frees the stream at the latest.
                let _ = destroy(stream);
            }
        }
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl StreamState {
    fn new(handle: Handle<Stream>, context: Handle<Context>, flags: u32, priority: i32) -> Arc<Self> {
        Arc::new(Self {
            handle,
            context,
            flags,
            priority: AtomicI32::new(priority),
            id: next_id(),
            capture: AtomicU64::new(0),
            transfers: Mutex::default(),
            left_behind: LeftBehind::default(),
            watermark: Arc::default(),
            hazard: AtomicU64::new(0),
        })
    }

    /// The legacy default stream of a context.
    pub fn legacy(context: Handle<Context>) -> Arc<Self> {
        Self::new(Handle::NULL, context, 0, 0)
    }

    /// Its priority; the smaller number goes first.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Notes a priority that the program has set.
    pub fn set_priority(&self, priority: i32) {
        self.priority.store(priority, Ordering::Relaxed);
    }

    /// Whether it is a legacy default stream.
    pub fn is_legacy(&self) -> bool {
        self.handle.is_null()
    }

    /// Whether it and the legacy default stream wait for each other.
    pub fn is_blocking(&self) -> bool {
        self.flags & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0
    }

    /// Notes a copy from the device whose command is about to be posted.
    pub fn add_transfer(&self, transfer: Arc<Transfer>) {
        self.add_transfers(core::iter::once(transfer));
    }

    fn add_transfers(&self, added: impl Iterator<Item = Arc<Transfer>>) {
        let mut transfers = self.transfers.lock();
        // Read under the lock: what is added behind a look by `take_over_blocking` has a newer ticket than that looked for.
        let ticket = session::of(self.context).map_or(0, |session| session.tickets.newest()) + 1;
        added.for_each(|transfer| transfers.add(ticket, transfer));
    }

    /// Notes that the calling thread's newest command, which is in this stream, lets the program's own code run before later work.
    pub fn add_hazard(&self) {
        ANY_HAZARD.store(true, Ordering::Release);
        self.hazard.fetch_max(completion::of_thread(), Ordering::AcqRel);
    }

    /// Whether the program's own code may have to run before the stream's end is reached.
    fn has_hazard(&self) -> bool {
        let newest = self.hazard.load(Ordering::Acquire);
        newest != 0 && !self.has_done(newest)
    }

    /// Makes what lies before an event, for which the calling thread's newest command waits, lie before this stream's later work too.
    pub fn inherit(&self, ahead: &Ahead) {
        if !ahead.is_done() {
            self.add_transfers(ahead.transfers.iter().filter(|transfer| !transfer.is_done()).cloned());
        }
        if ahead.hazard {
            self.add_hazard();
        }
    }

    /// What lies before the stream's end now. For a blocking stream that includes the legacy default stream and what lay before its
    /// newest command, and for that one all blocking streams.
    pub fn ahead(&self) -> Ahead {
        let mut ahead = Ahead::default();
        if !transfers::any_pending() && !ANY_HAZARD.load(Ordering::Acquire) {
            return ahead;
        }
        if self.is_legacy() {
            // In this order: a stream that is destroyed meanwhile leaves behind what it holds before it is out of sight.
            self.others_in_order().iter().for_each(|(_, stream)| stream.add_own(&mut ahead));
            ahead.take_in(&self.left_behind.in_order);
        } else if self.is_blocking()
            && let Ok(context) = context::state(self.context)
        {
            context.legacy_stream.take_over_blocking();
            context.legacy_stream.add_own(&mut ahead);
        }
        self.add_own(&mut ahead);
        ahead
    }

    /// For a legacy default stream: the streams that it is in order with.
    fn others_in_order(&self) -> Vec<(Handle<Stream>, Arc<Self>)> {
        STREAMS.select(|stream| stream.context == self.context && stream.is_blocking())
    }

    /// For a legacy default stream: what blocking streams held when its newest command came lies before all that blocking streams get
    /// afterwards.
    fn take_over_blocking(&self) {
        let newest = handles::legacy_ticket(self.context);
        if newest <= self.transfers.lock().taken_over {
            return;
        }
        for (_, stream) in self.others_in_order() {
            self.take_over(&stream.transfers, newest);
            if stream.has_hazard() {
                self.hazard.fetch_max(stream.hazard.load(Ordering::Acquire), Ordering::AcqRel);
            }
        }
        self.take_over(&self.left_behind.in_order, newest);
        let mut transfers = self.transfers.lock();
        transfers.taken_over = transfers.taken_over.max(newest);
    }

    /// Takes over what a stream holds up to a ticket, unless that was done before.
    fn take_over(&self, held: &Mutex<Transfers>, newest: u64) {
        // One lock at a time: what two threads take over at once is there twice, which does no harm.
        let held: Vec<_> =
            held.lock().unfinished().filter(|(ticket, _)| *ticket <= newest).cloned().collect();
        let mut transfers = self.transfers.lock();
        for (ticket, transfer) in held {
            if ticket > transfers.taken_over {
                transfers.add(ticket, transfer);
            }
        }
    }

    /// The stream is about to be destroyed. What it holds stays in order with the legacy default stream, if it is.
    fn leave_behind(&self) -> Result<(), CUresult> {
        let newest = self.newest();
        if self.has_done(newest) && !transfers::any_pending() {
            return Ok(());
        }
        let context = context::state(self.context)?;
        let legacy = &context.legacy_stream;
        let left_behind = if self.is_blocking() {
            &legacy.left_behind.in_order
        } else {
            context.leave_behind(newest);
            &legacy.left_behind.apart
        };
        let held: Vec<_> = self.transfers.lock().unfinished().cloned().collect();
        let mut left_behind = left_behind.lock();
        held.into_iter().for_each(|(ticket, transfer)| left_behind.add(ticket, transfer));
        drop(left_behind);
        if self.is_blocking() && self.has_hazard() {
            legacy.hazard.fetch_max(self.hazard.load(Ordering::Acquire), Ordering::AcqRel);
        }
        Ok(())
    }

    fn add_own(&self, ahead: &mut Ahead) {
        ahead.take_in(&self.transfers);
        ahead.hazard |= self.has_hazard();
    }

    /// Waits until everything in the stream is done and its bytes are in the program's memory.
    pub fn synchronize(&self) -> Result<(), CUresult> {
        capture::refuse_wait(self)?;
        let ahead = self.ahead();
        let newest = self.newest();
        if self.has_done(newest) {
            session::of(self.context)?.faults().take()?;
        } else {
            session::call_in(self.context, &calls::stream_synchronize { stream: self.handle })?;
            self.watermark.reach(newest);
        }
        ahead.wait()?;
        self.fetch(newest)
    }

    /// Whether everything in the stream is done and its bytes are there; "not ready" is an error.
    pub fn query(&self) -> Result<(), CUresult> {
        capture::refuse_wait(self)?;
        let ahead = self.ahead();
        let newest = self.newest();
        if self.has_published(newest) {
            return self.synchronize();
        }
        self.require_done(newest, |token| {
            session::call_in(self.context, &calls::stream_query { stream: self.handle, token })
        })?;
        if !ahead.is_done() {
            return Err(CUresult::CUDA_ERROR_NOT_READY);
        }
        ahead.wait()?;
        self.fetch(newest)
    }

    /// The ticket of its newest command. The legacy default stream is in order with others of its context, so
    /// that every command of the context may be work for it.
    pub fn newest(&self) -> u64 {
        if self.is_legacy() { handles::ticket(self.context) } else { handles::ticket(self.handle) }
    }

    /// Whether everything up to a ticket is known to be done.
    pub fn has_done(&self, ticket: u64) -> bool {
        self.watermark.done() >= ticket
            || context::state(self.context).is_ok_and(|context| context.watermark.done() >= ticket)
    }

    /// Whether everything up to a ticket is done or belongs to published copies, and some of it is not known to be done.
    pub fn has_published(&self, ticket: u64) -> bool {
        !self.has_done(ticket)
            && context::state(self.context).is_ok_and(|context| context.has_published(ticket))
    }

    /// How many commands may be before the stream's end and not be known to be done, those of other streams among them.
    pub fn unfinished(&self) -> u64 {
        let context = context::state(self.context).map_or(0, |context| context.watermark.done());
        self.newest().saturating_sub(self.watermark.done().max(context))
    }

    /// Gets what kernels wrote to memory of the program up to `ticket`, which must be done.
    pub fn fetch(&self, ticket: u64) -> Result<(), CUresult> {
        self.watermark.fetch(self.context.server(), ticket)
    }

    /// Everything in it up to `ticket` is done.
    pub fn reach(&self, ticket: u64) {
        self.watermark.reach(ticket);
    }

    /// Succeeds when everything up to `ticket` is done, fails with "not ready" when it is not. `query` asks the
    /// server, which is done only when nothing is known and nothing is being watched.
    pub fn require_done(
        &self,
        ticket: u64,
        query: impl FnOnce(u64) -> Result<bool, CUresult>,
    ) -> Result<(), CUresult> {
        session::of(self.context)?.faults().take()?;
        if self.has_done(ticket) {
            return Ok(());
        }
        if !self.watermark.is_watched(ticket) && self.watermark.ask(self.context.server(), ticket, query)? {
            return Ok(());
        }
        Err(CUresult::CUDA_ERROR_NOT_READY)
    }
}

/// Creates a stream in the current context.
pub fn create(flags: u32, priority: i32) -> Result<Handle<Stream>, CUresult> {
    let context = context::current_state()?;
    create_in(&context, flags, priority, |stream, priority| {
        session::post_in(context.handle, &calls::stream_create { stream, flags, priority })
    })
}

/// Creates a stream in a context; `send` has the server make it, with a priority that the device has.
pub fn create_in(
    context: &ContextState,
    flags: u32,
    priority: i32,
    send: impl FnOnce(Handle<Stream>, i32) -> Result<(), CUresult>,
) -> Result<Handle<Stream>, CUresult> {
    let (lowest, highest) = context.device()?.info.stream_priorities;
    let priority = priority.clamp(highest.min(lowest), lowest.max(highest));
    let handle = handles::create::<Stream>();
    handles::or_drop(handle, send(handle, priority))?;
    STREAMS.insert(handle, StreamState::new(handle, context.handle, flags, priority));
    Ok(handle)
}

/// Destroys a stream; what is in it is still carried out.
pub fn destroy(handle: Handle<Stream>) -> Result<(), CUresult> {
    let state = STREAMS.get(handle)?;
    // Before the stream is out of sight, so that whoever asks for the context finds one of both.
    state.leave_behind()?;
    let state = STREAMS.remove(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    capture::stream_ends(&state);
    handles::drop_handle(handle);
    session::post_in(state.context, &calls::stream_destroy { stream: handle })
}

/// What is kept of a stream; null means the legacy default stream of the current context.
pub fn state(handle: Handle<Stream>) -> Result<Arc<StreamState>, CUresult> {
    if handle.is_null() { Ok(context::current_state()?.legacy_stream.clone()) } else { STREAMS.get(handle) }
}

/// The calling thread's default stream in the current context, created at its first use.
pub fn of_thread() -> Result<Handle<Stream>, CUresult> {
    let context = context::current()?;
    let known = OF_THREAD.try_with(|streams| {
        streams.borrow().0.iter().find(|(owner, _)| *owner == context).map(|(_, stream)| *stream)
    });
    match known {
        Ok(Some(stream)) if handles::is_valid(stream) => Ok(stream),
        Ok(_) => {
            let stream = create(0, 0)?;
            OF_THREAD.with_borrow_mut(|streams| {
                streams.0.retain(|(owner, _)| *owner != context);
                streams.0.push((context, stream));
            });
            Ok(stream)
        }
        // The thread is ending, its streams with it.
        Err(_) => Err(CUresult::CUDA_ERROR_DEINITIALIZED),
    }
}

/// The copies that lie before the end of any stream of a context and whose bytes are not there yet, those of other contexts among
/// them that its streams wait for.
pub fn ahead_of_all(context: &ContextState) -> Ahead {
    let mut ahead = Ahead::default();
    if transfers::any_pending() {
        let streams = STREAMS.select(|stream| stream.context == context.handle);
        streams.iter().for_each(|(_, stream)| ahead.take_in(&stream.transfers));
        let legacy = &context.legacy_stream;
        for held in [&legacy.transfers, &legacy.left_behind.in_order, &legacy.left_behind.apart] {
            ahead.take_in(held);
        }
    }
    ahead
}

/// Whether all streams of a context that its legacy default stream does not wait for are known to have done their work.
pub fn non_blocking_are_done(context: Handle<Context>) -> bool {
    let is_at_work = |stream: &StreamState| {
        stream.context == context && !stream.is_blocking() && !stream.has_done(stream.newest())
    };
    STREAMS.select(is_at_work).is_empty()
}

/// Every stream that takes part in a capture.
pub fn in_capture(id: u64) -> Vec<Arc<StreamState>> {
    let taking_part = STREAMS.select(|stream| stream.capture.load(Ordering::Acquire) == id);
    taking_part.into_iter().map(|(_, stream)| stream).collect()
}

/// Forgets the streams of a context that ends.
pub fn context_ends(context: Handle<Context>) {
    for (handle, _) in STREAMS.select(|stream| stream.context == context) {
        STREAMS.remove(handle);
        handles::drop_handle(handle);
    }
}
