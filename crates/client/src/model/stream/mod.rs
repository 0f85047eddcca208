//! Streams as the client knows them.
//!
//! | Module  | Question it answers |
//! |---------|---|
//! | `ahead` | What lies before a point of a stream, as far as the program's memory is concerned? |

mod ahead;

pub use ahead::{Ahead, ahead_of_all};

use crate::locks::{Mutex, rank};
use crate::model::completion::Watermark;
use crate::model::context::{self, ContextState};
use crate::model::handles::{self, Registry};
use ahead::{LeftBehind, Transfers};
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

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
    transfers: Mutex<rank::StreamTransfers, Transfers>,
    /// For a legacy default stream: those of streams that were destroyed.
    left_behind: LeftBehind,
    /// How far its work is known to be done.
    pub(crate) watermark: Arc<Watermark>,
    /// The ticket of the newest command that lets the program's own code run, or waits for it; 0 when there was none.
    hazard: AtomicU64,
}

static STREAMS: Registry<Stream, StreamState> = Registry::new();

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

    /// Everything in it up to `ticket` is done.
    pub fn reach(&self, ticket: u64) {
        self.watermark.reach(ticket);
    }
}

/// Keeps a stream that was made in a context.
pub fn keep(context: &ContextState, handle: Handle<Stream>, flags: u32, priority: i32) {
    STREAMS.insert(handle, StreamState::new(handle, context.handle, flags, priority));
}

/// Forgets a stream that is to be destroyed; what it was.
pub fn forget(handle: Handle<Stream>) -> Result<Arc<StreamState>, CUresult> {
    let state = STREAMS.get(handle)?;
    // Before the stream is out of sight, so that whoever asks for the context finds one of both.
    state.leave_behind()?;
    let state = STREAMS.remove(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(handle);
    Ok(state)
}

/// What is kept of a stream; null means the legacy default stream of the current context.
pub fn state(handle: Handle<Stream>) -> Result<Arc<StreamState>, CUresult> {
    if handle.is_null() { Ok(context::current_state()?.legacy_stream.clone()) } else { STREAMS.get(handle) }
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
