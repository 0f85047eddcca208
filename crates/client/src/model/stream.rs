//! Streams as the client knows them, and their transfers whose bytes have not arrived yet.
//!
//! What lies before a point of a stream is a question to its context: [`crate::model::context`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};

use crate::locks::{Mutex, rank};
use crate::model::completion::Watermark;
use crate::model::transfers::{Table, Transfer};
use crate::model::{device, handles};

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
    pub(crate) transfers: Mutex<rank::StreamTransfers, Transfers>,
    /// For a legacy default stream: those of streams that were destroyed.
    pub(crate) left_behind: OrphanedWrites,
    /// How far its work is known to be done.
    pub(crate) watermark: Arc<Watermark>,
    /// The sequence number of the newest command that lets the program's own code run, or waits for it; 0
    /// when there was none.
    pub(crate) hazard: AtomicU64,
}

impl handles::Object for StreamState {
    type Kind = Stream;
}

impl StreamState {
    fn new(handle: Handle<Stream>, context: Handle<Context>, flags: u32, priority: i32) -> Arc<Self> {
        Arc::new(Self {
            handle,
            context,
            flags,
            priority: AtomicI32::new(priority),
            id: device::of_stream(),
            capture: AtomicU64::new(0),
            transfers: Mutex::default(),
            left_behind: OrphanedWrites::default(),
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

    /// Whether the stream is a legacy default stream.
    pub fn is_legacy(&self) -> bool {
        self.handle.is_null()
    }

    /// Whether the stream and the legacy default stream wait for each other.
    pub fn is_blocking(&self) -> bool {
        self.flags & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0
    }

    /// The sequence number of its newest command. The legacy default stream is in order with others of its
    /// context, so that every command of the context may be work for it.
    pub fn newest(&self) -> u64 {
        if self.is_legacy() { handles::sequence(self.context) } else { handles::sequence(self.handle) }
    }

    /// Everything in it up to `sequence` is done.
    pub fn advance(&self, sequence: u64) {
        self.watermark.advance(sequence);
    }
}

/// Keeps a stream that was made in a context.
pub fn keep(context: Handle<Context>, handle: Handle<Stream>, flags: u32, priority: i32) {
    handles::insert(handle, StreamState::new(handle, context, flags, priority));
}

/// Takes out a stream that is to be destroyed; its handle stays.
pub fn take(handle: Handle<Stream>) -> Result<Arc<StreamState>, CUresult> {
    handles::remove::<StreamState>(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// What is kept of a stream that is no default stream.
pub fn get(handle: Handle<Stream>) -> Result<Arc<StreamState>, CUresult> {
    handles::get::<StreamState>(handle)
}

/// The streams of which `predicate` says so, legacy default streams aside.
pub fn select(predicate: impl Fn(&StreamState) -> bool) -> Vec<(Handle<Stream>, Arc<StreamState>)> {
    handles::select::<StreamState>(predicate)
}

/// Every stream that takes part in a capture.
pub fn in_capture(id: u64) -> Vec<Arc<StreamState>> {
    let taking_part = handles::select::<StreamState>(|stream| stream.capture.load(Ordering::Acquire) == id);
    taking_part.into_iter().map(|(_, stream)| stream).collect()
}

/// Forgets the streams of a context that ends.
pub fn context_ends(context: Handle<Context>) {
    for (handle, _) in handles::select::<StreamState>(|stream| stream.context == context) {
        handles::remove::<StreamState>(handle);
        handles::drop_handle(handle);
    }
}

/// What streams of a context held when they were destroyed.
#[derive(Default)]
pub struct OrphanedWrites {
    /// Blocking ones, which the legacy default stream is in order with.
    pub in_order: Mutex<rank::StreamTransfers, Transfers>,
    /// Non-blocking ones.
    pub apart: Mutex<rank::StreamTransfers, Transfers>,
}

/// Unfinished transfers of a stream.
#[derive(Default)]
pub struct Transfers {
    entries: Vec<Entry>,
    /// Those for which the newest barrier does not stand.
    newest: Vec<Arc<Transfer>>,
    /// The newest barrier.
    barrier: Option<Barrier>,
    /// For a legacy default stream: up to which sequence number it has taken over those of blocking streams.
    pub taken_over: u64,
}

/// What stands for all transfers that lie before a copy.
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    /// Its number in the table.
    pub number: u64,
    /// The flow of the newest of them.
    pub flow: u64,
    /// The number of that one.
    newest: u64,
}

/// A transfer, as a stream holds it.
#[derive(Clone)]
pub struct Entry {
    /// The transfer.
    pub transfer: Arc<Transfer>,
    /// For a transfer of another stream: a sequence number that is newer than what makes it lie before this
    /// one's work.
    pub inherited: Option<u64>,
}

impl Entry {
    /// Whether the command lies before the command with this sequence number.
    pub fn is_before(&self, sequence: u64) -> bool {
        self.sequence() <= sequence
    }

    /// The newest sequence number of what makes it lie before the stream's work.
    pub fn sequence(&self) -> u64 {
        self.inherited.unwrap_or_else(|| self.transfer.sequence())
    }
}

impl Transfers {
    /// Notes one.
    pub fn add(&mut self, entry: Entry) {
        // Looked through each time that a list has no room, and so not for every transfer.
        if self.newest.len() == self.newest.capacity() {
            self.newest.retain(|transfer| !transfer.is_done());
        }
        self.newest.push(entry.transfer.clone());
        if self.entries.len() == self.entries.capacity() {
            self.entries.retain(|entry| !entry.transfer.is_done());
        }
        self.entries.push(entry);
    }

    /// Those that lie before what is posted from now on.
    pub fn pending_writes(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.transfer.is_ahead())
    }

    /// A barrier that stands for all that lie before what is posted from now on, and for what `others` stand
    /// for; nothing if that has finished.
    pub fn barrier(&mut self, table: &mut Table, others: &[Barrier]) -> Option<Barrier> {
        let before = self.barrier.filter(|barrier| table.has_barrier(barrier.number));
        let mut behind = Vec::new();
        self.newest.retain(|transfer| {
            if transfer.is_ahead() {
                behind.push(transfer.clone());
                return false;
            }
            // One that is not posted yet lies before what is posted behind it.
            !transfer.is_done()
        });
        let newest = behind.iter().map(|transfer| (transfer.number(), transfer.flow()));
        let barriers = before.iter().chain(others);
        let newest = newest.chain(barriers.clone().map(|barrier| (barrier.newest, barrier.flow))).max();
        self.barrier = match newest {
            Some((newest, flow)) if !(behind.is_empty() && others.is_empty()) => {
                let number = device::fresh();
                let writes = behind.iter().map(|transfer| transfer.key());
                let is_needed = table.add_barrier(number, writes, barriers.map(|barrier| barrier.number));
                is_needed.then_some(Barrier { number, flow, newest })
            }
            _ => before,
        };
        self.barrier
    }
}
