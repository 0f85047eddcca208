//! Capture table: the state of each stream capture, and the calls that a capture forbids, by mode and thread.

use core::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use causeway_api::handle::{Context, Event, Graph, GraphNode, Handle, Stream};
use causeway_api::sys::{CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureMode};
use causeway_sync::threads;

use crate::locks::{Mutex, rank};
use crate::model::context;
use crate::model::graph::{Edge, GraphStore, graphs};
use crate::model::stream::{self, StreamState};

/// The dependencies of a stream's next node as the program gets them: nodes, and as many edges.
pub(super) type StoredArrays = (Box<[CUgraphNode]>, Box<[CUgraphEdgeData]>);

/// A capture that is under way.
pub(super) struct Capture {
    pub(super) origin: Handle<Stream>,
    pub(super) mode: CUstreamCaptureMode,
    pub(super) thread: u64,
    pub(super) graph: Handle<Graph>,
    /// Whether the graph was there before and stays when the capture fails.
    pub(super) keeps_graph: bool,
    /// What the next node of each stream comes after.
    pub(super) tips: HashMap<Handle<Stream>, Vec<Edge>>,
    /// Captured nodes that no captured node comes after: the end of the stream where the capture began must
    /// come after each of them. One that `cuStreamUpdateCaptureDependencies` takes away from what a stream
    /// comes after is not among them any more, and nodes that the program adds by hand never are (tried on an
    /// H100, driver 580; `tests/cuda/capture_dependencies.cu`).
    pub(super) last: HashSet<Handle<GraphNode>>,
    /// What a stream that waits for an event joins.
    pub(super) events: HashMap<Handle<Event>, Vec<Edge>>,
    /// Dependencies as programs were given them, valid until they ask again.
    pub(super) arrays: HashMap<Handle<Stream>, StoredArrays>,
    /// An operation that a capture cannot hold was tried.
    pub(super) is_invalid: bool,
}

// SAFETY: the handles of nodes in it are names, not addresses.
unsafe impl Send for Capture {}

/// The stream captures of the process.
pub(super) struct Captures {
    pub(super) by_id: LazyLock<Mutex<rank::Captures, HashMap<u64, Capture>>>,
    /// How many captures there are, so that the common case of none costs one load.
    pub(super) count: AtomicUsize,
    /// The next one's number.
    pub(super) next: AtomicU64,
}

pub(super) static CAPTURES: Captures =
    Captures { by_id: LazyLock::new(Mutex::default), count: AtomicUsize::new(0), next: AtomicU64::new(1) };

/// What a capture gets that cannot end with a graph any more.
pub(super) const INVALIDATED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

/// Refuses nodes that are not of the graph.
pub(super) fn require_nodes(
    graphs: &GraphStore,
    graph: Handle<Graph>,
    tips: &[Edge],
) -> Result<(), CUresult> {
    graphs.graph(graph)?;
    for tip in tips {
        if graphs.node(tip.node)?.graph != graph {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
    }
    Ok(())
}

impl Capture {
    /// Whether the work of every stream that took part comes before the end of the one where it began.
    pub(super) fn is_joined(&self, graphs: &GraphStore) -> bool {
        let joined = graphs.ancestors(self.tips.get(&self.origin).map_or(&[][..], |tips| tips));
        self.last.iter().all(|node| joined.contains(node))
    }

    /// Removes the graph of a capture that cannot end any more.
    pub(super) fn abandon(self) {
        if !self.keeps_graph {
            let removed = graphs().remove_graph(self.graph);
            // There is nobody left to hear of an error.
            let _ = removed.and_then(|removed| removed.finish());
        }
    }
}

/// Takes a capture out, whose streams take part in none then.
pub(super) fn forget(id: u64) -> Option<Capture> {
    let capture = CAPTURES.by_id.lock().remove(&id)?;
    CAPTURES.count.fetch_sub(1, Ordering::AcqRel);
    for stream in stream::in_capture(id) {
        stream.capture.store(0, Ordering::Release);
    }
    Some(capture)
}

/// The capture that a stream takes part in, 0 when there is none.
pub fn of(state: &StreamState) -> u64 {
    state.capture.load(Ordering::Acquire)
}

/// Adds to what a stream's next node comes after.
pub(super) fn join_tips(own: &mut Vec<Edge>, tips: &[Edge]) {
    for tip in tips {
        if !own.iter().any(|other| other.node == tip.node) {
            own.push(*tip);
        }
    }
}

/// Whether an edge only says that one node comes before another.
pub(super) fn is_plain(tip: &Edge) -> bool {
    tip.data == CUgraphEdgeData::default()
}

/// Does `work` with the capture that a stream takes part in, if it can still succeed.
pub(super) fn change<T>(
    state: &StreamState,
    work: impl FnOnce(&mut Capture, &mut GraphStore) -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    let mut captures = CAPTURES.by_id.lock();
    let capture = captures.get_mut(&of(state)).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.is_invalid {
        return Err(INVALIDATED);
    }
    work(capture, &mut graphs())
}

/// Whether commands may be for captured streams.
#[inline]
pub fn any() -> bool {
    CAPTURES.count.load(Ordering::Acquire) != 0
}

/// Makes a capture end without a graph.
pub fn invalidate(id: u64) {
    if let Some(capture) = CAPTURES.by_id.lock().get_mut(&id) {
        capture.is_invalid = true;
    }
}

/// Whether a capture can still end with a graph.
pub fn is_good(id: u64) -> bool {
    CAPTURES.by_id.lock().get(&id).is_some_and(|capture| !capture.is_invalid)
}

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Replaces the calling thread's mode and gives the old one.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

/// Refuses to wait for a stream that is being captured; the attempt spoils the capture, as CUDA has it.
pub fn refuse_wait(state: &StreamState) -> Result<(), CUresult> {
    let id = of(state);
    if id == 0 {
        return Ok(());
    }
    invalidate(id);
    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses whatever is put into a stream whose capture cannot end with a graph any more.
pub fn refuse_invalid(state: &StreamState) -> Result<(), CUresult> {
    match of(state) {
        0 => Ok(()),
        id if CAPTURES.by_id.lock().get(&id).is_some_and(|capture| capture.is_invalid) => Err(INVALIDATED),
        _ => Ok(()),
    }
}

/// Passes on the error of a command that was refused before it came to its stream; it spoils a capture of the
/// stream, and what spoiled that before counts more.
pub fn invalidate_if_error(stream: Handle<Stream>, outcome: Result<(), CUresult>) -> Result<(), CUresult> {
    if outcome.is_err() && any() && !stream.is_null() {
        let state = context::stream(stream)?;
        refuse_invalid(&state)?;
        invalidate(of(&state));
    }
    outcome
}

/// Refuses to wait for a context of which a stream is being captured, whatever the modes of the capture and
/// of the thread, and whichever thread captures (580, H100).
pub fn refuse_context_wait(context: Handle<Context>) -> Result<(), CUresult> {
    if !any() {
        return Ok(());
    }
    let is_in_it =
        |stream: &Handle<Stream>| context::stream(*stream).is_ok_and(|state| state.context == context);
    let mut refused = false;
    for capture in CAPTURES.by_id.lock().values_mut() {
        let forbids = capture.tips.keys().any(is_in_it);
        capture.is_invalid |= forbids;
        refused |= forbids;
    }
    if refused { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses a call that may wait for the device while a capture forbids that to the calling thread.
pub fn refuse_unsafe() -> Result<(), CUresult> {
    if !any() {
        return Ok(());
    }
    let own = MODE.get();
    if own == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let thread = threads::number();
    let mut captures = CAPTURES.by_id.lock();
    let mut refused = false;
    for capture in captures.values_mut() {
        let forbids = match capture.mode {
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED => false,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => capture.thread == thread,
            _ => capture.thread == thread || own == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        };
        capture.is_invalid |= forbids;
        refused |= forbids;
    }
    if refused { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

fn is_blocked_by(context: Handle<Context>, capture: &Capture) -> bool {
    let is_blocking = |stream: &Handle<Stream>| {
        context::stream(*stream).is_ok_and(|state| state.context == context && state.is_blocking())
    };
    capture.tips.keys().any(is_blocking)
}

/// Whether a stream is being captured for which the legacy default stream of a context would have to wait.
pub(super) fn blocks_legacy(context: Handle<Context>) -> bool {
    any() && CAPTURES.by_id.lock().values().any(|capture| is_blocked_by(context, capture))
}

/// Refuses work in the legacy default stream that would have to wait for a stream that is being captured.
pub fn refuse_implicit() -> Result<(), CUresult> {
    if !any() {
        return Ok(());
    }
    let context = context::current()?;
    let blocked = CAPTURES.by_id.lock().values_mut().fold(false, |blocked, capture| {
        let blocks = is_blocked_by(context, capture);
        capture.is_invalid |= blocks;
        blocked | blocks
    });
    if blocked { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}
