//! Capture table: the state of each stream capture.

use crate::locks::{Mutex, rank};
use crate::model::graph::{Edge, GraphStore, graphs};
use crate::model::stream::{self, StreamState};
use causeway_api::handle::{Event, Graph, GraphNode, Handle, Stream};
use causeway_api::sys::{CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureMode};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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
