//! Begin, end and invalidation of a stream capture, what the program asks about one
//! (`cuStreamGetCaptureInfo`), and updates of its dependencies.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use causeway_api::handle::{Context, Graph, Handle};
use causeway_api::sys::{CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use causeway_sync::threads;

use crate::model::context;
use crate::model::graph::{Edge, graphs};
use crate::model::handles::RawHandle as _;
use crate::model::stream::StreamState;
use crate::remote::session;
use crate::submit::capture::table::{
    CAPTURES, Capture, INVALIDATED, any, blocks_legacy, change, forget, is_plain, join_tips, of,
    refuse_implicit, require_nodes,
};

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
        require_nodes(&graphs(), *graph, tips)?;
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
    let (graph, dependencies) = existing.unwrap_or_else(|| (graphs().create(None), Vec::new()));
    let mut tips = Vec::with_capacity(dependencies.len());
    join_tips(&mut tips, &dependencies);
    captures.insert(
        id,
        Capture {
            origin: state.handle,
            mode,
            thread: threads::number(),
            graph,
            keeps_graph,
            tips: HashMap::from([(state.handle, tips)]),
            last: HashSet::new(),
            events: HashMap::new(),
            arrays: HashMap::new(),
            is_invalid: false,
        },
    );
    CAPTURES.count.fetch_add(1, Ordering::AcqRel);
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
    let mut graphs = graphs();
    let refusal = if capture.is_invalid {
        INVALIDATED
    } else if !capture.is_joined(&graphs) {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    } else if !is_relaxed && capture.thread != threads::number() {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
    } else {
        return Ok(capture.graph);
    };
    // A graph that the program had before goes, too, as with the driver (580).
    let removed = graphs.remove_graph(capture.graph);
    drop(graphs);
    removed?.finish()?;
    Err(refusal)
}

/// A stream is destroyed. A capture that began with it is over; one that it joined goes on, and needs its
/// work to be joined as before.
pub fn stream_ends(state: &StreamState) {
    let id = of(state);
    if id == 0 {
        return;
    }
    let is_origin = CAPTURES.by_id.lock().get(&id).is_some_and(|capture| capture.origin == state.handle);
    if is_origin && let Some(capture) = forget(id) {
        capture.abandon();
    }
}

/// Refuses to take a graph or a node of it away while a capture adds to that graph.
pub fn refuse_to_remove(graph: Handle<Graph>) -> Result<(), CUresult> {
    if any() && CAPTURES.by_id.lock().values().any(|capture| capture.graph == graph) {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    Ok(())
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

/// What a program may know of a capture.
pub struct Info {
    /// Whether the stream is being captured.
    pub status: CUstreamCaptureStatus,
    /// The capture's number, 0 when there is none.
    pub id: u64,
    /// The graph so far.
    pub graph: Handle<Graph>,
    /// The nodes that the stream's next one comes after, and what the edges say.
    pub nodes: *const CUgraphNode,
    /// As many edges as nodes.
    pub edges: *const CUgraphEdgeData,
    /// How many there are.
    pub count: usize,
    has_data: bool,
}

impl Info {
    /// Whether some edge says more than that one node comes before another.
    pub fn has_data(&self) -> bool {
        self.has_data
    }
}

/// What a program may know of the capture that a stream takes part in.
pub fn info(state: &StreamState) -> Result<Info, CUresult> {
    if state.is_legacy() && blocks_legacy(state.context) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    let id = of(state);
    let mut captures = CAPTURES.by_id.lock();
    let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (nodes, edges) = (core::ptr::null(), core::ptr::null());
    let mut info = Info { status: none, id, graph: Handle::NULL, nodes, edges, count: 0, has_data: false };
    let Some(capture) = captures.get_mut(&id) else { return Ok(info) };
    if capture.is_invalid {
        info.status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        return Ok(info);
    }
    info.status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
    info.graph = capture.graph;
    let tips = capture.tips.get(&state.handle).cloned().unwrap_or_default();
    let arrays = (
        tips.iter().map(|tip| tip.node.as_raw()).collect::<Box<[_]>>(),
        tips.iter().map(|tip| tip.data).collect::<Box<[_]>>(),
    );
    (info.nodes, info.edges, info.count) = (arrays.0.as_ptr(), arrays.1.as_ptr(), tips.len());
    info.has_data = !tips.iter().all(is_plain);
    capture.arrays.insert(state.handle, arrays);
    Ok(info)
}

/// The graph of the capture that a stream takes part in, and what the stream's next node comes after.
pub fn capture_point(state: &StreamState) -> Result<(Handle<Graph>, Vec<Edge>), CUresult> {
    change(state, |capture, _| {
        let tips = capture.tips.get(&state.handle).cloned().unwrap_or_default();
        Ok((capture.graph, tips))
    })
}

/// Changes what a stream's next node comes after.
pub fn update_dependencies(state: &StreamState, tips: Vec<Edge>, adds: bool) -> Result<(), CUresult> {
    change(state, |capture, graphs| {
        require_nodes(graphs, capture.graph, &tips)?;
        let own = capture.tips.entry(state.handle).or_default();
        if !adds {
            for tip in own.drain(..) {
                capture.last.remove(&tip.node);
            }
        }
        join_tips(own, &tips);
        Ok(())
    })
}
