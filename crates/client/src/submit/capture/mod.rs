//! Stream capture: work that is put into a captured stream becomes nodes of a graph, here in the client.
//!
//! A command that reaches the session for a captured stream is turned into a node by [`take`], whoever sent
//! it; one that cannot be a node is refused. So the server never hears of a capture, and the threads of a
//! program are the only ones to which the modes of capture apply.

mod commands;
mod info;
mod nodes;
mod refusals;

pub use commands::{add_copy, refuse_called, take};
pub use info::{Info, info, place, update_dependencies};
pub use nodes::{add, join, record, wait_outside};
pub use refusals::{
    exchange_mode, refuse_context_wait, refuse_implicit, refuse_invalid, refuse_unsafe, refuse_wait,
    spoil_with,
};

use crate::locks::{Mutex, rank};
use crate::model::context;
use crate::model::graph::{Edge, World, world};
use crate::model::stream::{self, StreamState};
use crate::remote::session;
use causeway_api::handle::{Context, Event, Graph, Handle, Stream};
use causeway_api::sys::{CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureMode};
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;

/// The nodes that a stream's next one comes after as a program is told of them, and as many edges.
type Given = (Box<[CUgraphNode]>, Box<[CUgraphEdgeData]>);

struct Capture {
    origin: Handle<Stream>,
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    graph: Handle<Graph>,
    /// Whether the graph was there before and stays when the capture fails.
    keeps_graph: bool,
    /// What the next node of each stream comes after.
    tips: HashMap<Handle<Stream>, Vec<Edge>>,
    /// What a stream that waits for an event joins.
    events: HashMap<Handle<Event>, Vec<Edge>>,
    /// Dependencies as programs were given them, valid until they ask again.
    given: HashMap<Handle<Stream>, Given>,
    /// An operation that a capture cannot hold was tried.
    is_invalid: bool,
}

// SAFETY: the handles of nodes in it are names, not addresses.
unsafe impl Send for Capture {}

/// The stream captures of the process.
struct Captures {
    by_id: LazyLock<Mutex<rank::Captures, HashMap<u64, Capture>>>,
    /// How many captures there are, so that the common case of none costs one load.
    count: AtomicUsize,
    /// The next one's number.
    next: AtomicU64,
}

static CAPTURES: Captures =
    Captures { by_id: LazyLock::new(Mutex::default), count: AtomicUsize::new(0), next: AtomicU64::new(1) };

const INVALIDATED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

/// Starts capturing a stream, into a new graph or, after some of its nodes, into one that is there.
pub fn begin(
    state: &StreamState,
    mode: CUstreamCaptureMode,
    existing: Option<(Handle<Graph>, Vec<Edge>)>,
) -> Result<(), CUresult> {
    if state.is_legacy() {
        refuse_implicit()?;
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if mode.0 > CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    session::of(state.context)?.faults().check()?;
    if let Some((graph, tips)) = &existing {
        require_nodes(&world(), *graph, tips)?;
    }
    let id = CAPTURES.next.fetch_add(1, Ordering::Relaxed);
    let mut captures = CAPTURES.by_id.lock();
    let is_taken = |graph: Handle<Graph>| captures.values().any(|capture| capture.graph == graph);
    if existing.as_ref().is_some_and(|(graph, _)| is_taken(*graph)) {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    if state.capture.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let keeps_graph = existing.is_some();
    let (graph, given) = existing.unwrap_or_else(|| (world().create(None), Vec::new()));
    let mut tips = Vec::with_capacity(given.len());
    join_tips(&mut tips, &given);
    captures.insert(
        id,
        Capture {
            origin: state.handle,
            mode,
            thread: std::thread::current().id(),
            graph,
            keeps_graph,
            tips: HashMap::from([(state.handle, tips)]),
            events: HashMap::new(),
            given: HashMap::new(),
            is_invalid: false,
        },
    );
    CAPTURES.count.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

fn require_nodes(world: &World, graph: Handle<Graph>, tips: &[Edge]) -> Result<(), CUresult> {
    world.graph(graph)?;
    for tip in tips {
        if world.node(tip.node)?.graph != graph {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
    }
    Ok(())
}

/// Ends the capture that began with a stream and gives the graph. The capture is over even if that fails,
/// unless it began with another stream.
pub fn end(state: &StreamState) -> Result<Handle<Graph>, CUresult> {
    if state.is_legacy() {
        refuse_implicit()?;
    }
    let id = state.capture.load(Ordering::Acquire);
    {
        let mut captures = CAPTURES.by_id.lock();
        let capture = captures.get_mut(&id).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != state.handle {
            capture.is_invalid = true;
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
    }
    let capture = forget(id).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    let is_relaxed = capture.mode == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let mut world = world();
    let refusal = if capture.is_invalid {
        INVALIDATED
    } else if !capture.is_joined(&world) {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    } else if !is_relaxed && capture.thread != std::thread::current().id() {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
    } else {
        return Ok(capture.graph);
    };
    // A graph that the program had before goes, too, as with the driver (580).
    let removed = world.remove_graph(capture.graph);
    drop(world);
    removed?.finish()?;
    Err(refusal)
}

impl Capture {
    /// Whether the work of every stream that took part comes before the end of the one where it began.
    fn is_joined(&self, world: &World) -> bool {
        let joined = world.ancestors(self.tips.get(&self.origin).map_or(&[][..], |tips| tips));
        self.tips.values().flatten().all(|tip| joined.contains(&tip.node))
    }

    /// Removes the graph of a capture that cannot end any more.
    fn abandon(self) {
        if !self.keeps_graph {
            let removed = world().remove_graph(self.graph);
            // There is nobody left to hear of an error.
            let _ = removed.and_then(|removed| removed.finish());
        }
    }
}

fn forget(id: u64) -> Option<Capture> {
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

/// A stream is destroyed. A capture that began with it is over; one that it joined goes on, and needs its
/// work to be joined as before.
pub fn stream_ends(state: &StreamState) {
    let id = of(state);
    if id == 0 {
        return;
    }
    let began_here = CAPTURES.by_id.lock().get(&id).is_some_and(|capture| capture.origin == state.handle);
    if began_here && let Some(capture) = forget(id) {
        capture.abandon();
    }
}

/// Adds to what a stream's next node comes after.
fn join_tips(own: &mut Vec<Edge>, tips: &[Edge]) {
    for tip in tips {
        if !own.iter().any(|other| other.node == tip.node) {
            own.push(*tip);
        }
    }
}

/// Whether an edge only says that one node comes before another.
fn is_plain(tip: &Edge) -> bool {
    tip.data == CUgraphEdgeData::default()
}

/// Does `work` with the capture that a stream takes part in, if it can still succeed.
fn change<T>(
    state: &StreamState,
    work: impl FnOnce(&mut Capture, &mut World) -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    let mut captures = CAPTURES.by_id.lock();
    let capture = captures.get_mut(&of(state)).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.is_invalid {
        return Err(INVALIDATED);
    }
    work(capture, &mut world())
}

/// Whether commands may be for captured streams.
#[inline]
pub fn any() -> bool {
    CAPTURES.count.load(Ordering::Acquire) != 0
}

/// Makes a capture end without a graph.
pub fn spoil(id: u64) {
    if let Some(capture) = CAPTURES.by_id.lock().get_mut(&id) {
        capture.is_invalid = true;
    }
}

/// Refuses to take a graph or a node of it away while a capture adds to that graph.
pub fn refuse_to_remove(graph: Handle<Graph>) -> Result<(), CUresult> {
    if any() && CAPTURES.by_id.lock().values().any(|capture| capture.graph == graph) {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    Ok(())
}

/// Whether a capture can still end with a graph.
pub fn is_good(id: u64) -> bool {
    CAPTURES.by_id.lock().get(&id).is_some_and(|capture| !capture.is_invalid)
}

/// The captures of a context end with it.
pub fn context_ends(context: Handle<Context>) {
    if !any() {
        return;
    }
    let of_context =
        |capture: &Capture| context::stream(capture.origin).map_or(true, |state| state.context == context);
    let ended: Vec<_> =
        CAPTURES.by_id.lock().iter().filter(|(_, capture)| of_context(capture)).map(|(id, _)| *id).collect();
    ended.into_iter().filter_map(forget).for_each(Capture::abandon);
}
