//! Stream capture: work that is put into a captured stream becomes nodes of a graph, here in the client.
//!
//! A command that reaches the session for a captured stream is turned into a node by [`take`], whoever sent it; one
//! that cannot be a node is refused. So the server never hears of a capture, and the threads of a program are the only
//! ones to which the modes of capture apply.

mod commands;

pub use commands::{add_copy, refuse_called, take};

use crate::context;
use crate::graph::work::{Kernel, Work, is_node_attribute};
use crate::graph::{Edge, World, world};
use crate::session;
use crate::stream::{self, StreamState};
use causeway_api::handle::{Context, Event, Graph, GraphNode, Handle, Stream};
use causeway_api::sys::{
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CUgraphDependencyType, CUgraphEdgeData, CUgraphNode,
    CUgraphNodeType, CUlaunchAttributeID, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use causeway_api::types::LaunchAttribute;
use core::cell::Cell;
use parking_lot::Mutex;
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

static CAPTURES: LazyLock<Mutex<HashMap<u64, Capture>>> = LazyLock::new(Mutex::default);
/// How many captures there are, so that the common case of none costs one load.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicU64 = AtomicU64::new(1);

const INVALIDATED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Replaces the calling thread's mode and gives the old one.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

/// Starts capturing a stream, into a new graph or, after some of its nodes, into one that is there.
pub fn begin(
    state: &StreamState,
    mode: CUstreamCaptureMode,
    existing: Option<(Handle<Graph>, Vec<Edge>)>,
) -> Result<(), CUresult> {
    if state.is_legacy() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if mode.0 > CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    session::of(state.context)?.faults().check()?;
    if let Some((graph, tips)) = &existing {
        require_nodes(&world(), *graph, tips)?;
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut captures = CAPTURES.lock();
    if state.capture.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let keeps_graph = existing.is_some();
    let (graph, tips) = existing.unwrap_or_else(|| (world().create(None), Vec::new()));
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
    COUNT.fetch_add(1, Ordering::AcqRel);
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

/// Ends the capture that began with a stream and gives the graph.
pub fn end(state: &StreamState) -> Result<Handle<Graph>, CUresult> {
    let id = state.capture.load(Ordering::Acquire);
    {
        let captures = CAPTURES.lock();
        let capture = captures.get(&id).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != state.handle {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let is_relaxed = capture.mode == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        if !is_relaxed && capture.thread != std::thread::current().id() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
    }
    let capture = forget(id).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    let mut world = world();
    let refusal = if capture.is_invalid {
        INVALIDATED
    } else if !capture.is_joined(&world) {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    } else {
        return Ok(capture.graph);
    };
    if !capture.keeps_graph {
        let removed = world.remove_graph(capture.graph);
        drop(world);
        removed?.finish()?;
    }
    Err(refusal)
}

impl Capture {
    /// Whether the work of every stream that took part comes before the end of the one where it began.
    fn is_joined(&self, world: &World) -> bool {
        let joined = world.ancestors(self.tips.get(&self.origin).map_or(&[][..], |tips| tips));
        self.tips.values().flatten().all(|tip| joined.contains(&tip.node))
    }
}

fn forget(id: u64) -> Option<Capture> {
    let capture = CAPTURES.lock().remove(&id)?;
    COUNT.fetch_sub(1, Ordering::AcqRel);
    for stream in stream::in_capture(id) {
        stream.capture.store(0, Ordering::Release);
    }
    Some(capture)
}

/// The capture that a stream takes part in, 0 when there is none.
pub fn of(state: &StreamState) -> u64 {
    state.capture.load(Ordering::Acquire)
}

/// A stream is destroyed: what it was captured into cannot end.
pub fn stream_ends(state: &StreamState) {
    let id = of(state);
    if id == 0 {
        return;
    }
    spoil(id);
    let began_here = CAPTURES.lock().get(&id).is_some_and(|capture| capture.origin == state.handle);
    if began_here
        && let Some(capture) = forget(id)
        && !capture.keeps_graph
    {
        let removed = world().remove_graph(capture.graph);
        // There is nobody left to hear of an error.
        let _ = removed.and_then(|removed| removed.finish());
    }
}

/// What a program may know of the capture that a stream takes part in.
pub fn info(state: &StreamState) -> Result<Info, CUresult> {
    if state.is_legacy() && blocks_legacy(state.context) {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    let id = of(state);
    let mut captures = CAPTURES.lock();
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
    let given = (
        tips.iter().map(|tip| tip.node.as_raw()).collect::<Box<[_]>>(),
        tips.iter().map(|tip| tip.data).collect::<Box<[_]>>(),
    );
    (info.nodes, info.edges, info.count) = (given.0.as_ptr(), given.1.as_ptr(), tips.len());
    info.has_data = !tips.iter().all(is_plain);
    capture.given.insert(state.handle, given);
    Ok(info)
}

// SAFETY: the handles of nodes in it are names, not addresses.
unsafe impl Send for Capture {}

/// Changes what a stream's next node comes after.
pub fn update_dependencies(state: &StreamState, tips: Vec<Edge>, adds: bool) -> Result<(), CUresult> {
    change(state, |capture, world| {
        require_nodes(world, capture.graph, &tips)?;
        let own = capture.tips.entry(state.handle).or_default();
        if !adds {
            own.clear();
        }
        join_tips(own, &tips);
        Ok(())
    })
}

fn join_tips(own: &mut Vec<Edge>, tips: &[Edge]) {
    for tip in tips {
        if !own.iter().any(|other| other.node == tip.node) {
            own.push(*tip);
        }
    }
}

/// Does `work` with the capture that a stream takes part in, if it can still succeed.
fn change<T>(
    state: &StreamState,
    work: impl FnOnce(&mut Capture, &mut World) -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    let mut captures = CAPTURES.lock();
    let capture = captures.get_mut(&of(state)).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.is_invalid {
        return Err(INVALIDATED);
    }
    work(capture, &mut world())
}

/// Makes work of a captured stream a node.
pub fn add(state: &StreamState, work: Work) -> Result<(), CUresult> {
    add_with(state, |_| Ok(work))
}

/// Makes work of a captured stream a node; the work may need a graph of its own.
pub fn add_with(
    state: &StreamState,
    work: impl FnOnce(&mut World) -> Result<Work, CUresult>,
) -> Result<(), CUresult> {
    change(state, |capture, world| {
        let work = work(world)?;
        capture.append(world, state.handle, work).map(|_| ())
    })
}

impl Capture {
    fn append(
        &mut self,
        world: &mut World,
        stream: Handle<Stream>,
        mut work: Work,
    ) -> Result<Handle<GraphNode>, CUresult> {
        let tips = self.tips.entry(stream).or_default();
        if let Work::Kernel(kernel) = &work
            && !kernel.attributes.is_empty()
        {
            let (node, overlaps) = as_node(kernel)?;
            for tip in tips.iter_mut().filter(|_| overlaps) {
                let is_kernel =
                    world.node(tip.node)?.work.kind() == CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
                if is_kernel && is_plain(tip) {
                    tip.data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8;
                    tip.data.type_ = CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0 as u8;
                }
            }
            work = node;
        }
        let node = world.add(self.graph, tips, work)?;
        *tips = vec![Edge::plain(node)];
        Ok(node)
    }
}

fn is_plain(tip: &Edge) -> bool {
    tip.data == CUgraphEdgeData::default()
}

/// The kernel of a launch as a node has it, and whether it may overlap with what is before it (programmatic stream
/// serialization), which edges say in a graph. Attributes of streams that a launch may have mean nothing to a node.
fn as_node(kernel: &Kernel) -> Result<(Work, bool), CUresult> {
    let serialization = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.0;
    let overlaps = |attribute: &LaunchAttribute| attribute.id == serialization && attribute.value[0] != 0;
    let of_node = kernel.attributes.iter().filter(|attribute| is_node_attribute(attribute.id));
    let node = kernel.with_attributes(of_node.copied().collect())?;
    Ok((Work::Kernel(node.into()), kernel.attributes.iter().any(overlaps)))
}

/// An event is recorded in a captured stream: it names the point, and nothing is recorded. `external` asks for a
/// node that records it at every launch.
pub fn record(state: &StreamState, event: Handle<Event>, external: bool) -> Result<(), CUresult> {
    change(state, |capture, world| {
        if external {
            return capture.append(world, state.handle, Work::Record(event)).map(|_| ());
        }
        let tips = capture.tips.get(&state.handle).cloned().unwrap_or_default();
        capture.events.insert(event, tips);
        Ok(())
    })
}

/// A stream waits for an event that was recorded in the capture `id`, and with that takes part in it.
pub fn join(state: &StreamState, id: u64, event: Handle<Event>) -> Result<(), CUresult> {
    let mut captures = CAPTURES.lock();
    let own = of(state);
    if !captures.contains_key(&id) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let refusal = match own {
        _ if state.is_legacy() => Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
        0 => None,
        own if own == id => None,
        _ => Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE),
    };
    if let Some(refusal) = refusal {
        for id in [id, own] {
            if let Some(capture) = captures.get_mut(&id) {
                capture.is_invalid = true;
            }
        }
        return Err(refusal);
    }
    let Some(capture) = captures.get_mut(&id) else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    if capture.is_invalid {
        return Err(INVALIDATED);
    }
    let joined = capture.events.get(&event).cloned().unwrap_or_default();
    state.capture.store(id, Ordering::Release);
    join_tips(capture.tips.entry(state.handle).or_default(), &joined);
    Ok(())
}

/// A captured stream waits for an event that was recorded outside: with `external` at every launch, else the order of
/// the capture would depend on what is not in it.
pub fn wait_outside(state: &StreamState, event: Handle<Event>, external: bool) -> Result<(), CUresult> {
    if external {
        return add(state, Work::Wait(event));
    }
    spoil(of(state));
    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
}

/// Whether commands may be for captured streams.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Refuses to wait for a stream that is being captured; the attempt spoils the capture, as CUDA has it.
pub fn refuse_wait(state: &StreamState) -> Result<(), CUresult> {
    let id = of(state);
    if id == 0 {
        return Ok(());
    }
    spoil(id);
    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// Makes a capture end without a graph.
pub fn spoil(id: u64) {
    if let Some(capture) = CAPTURES.lock().get_mut(&id) {
        capture.is_invalid = true;
    }
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
    let thread = std::thread::current().id();
    let mut captures = CAPTURES.lock();
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
        stream::state(*stream).is_ok_and(|state| state.context == context && state.is_blocking())
    };
    capture.tips.keys().any(is_blocking)
}

/// Whether a stream is being captured for which the legacy default stream of a context would have to wait.
fn blocks_legacy(context: Handle<Context>) -> bool {
    any() && CAPTURES.lock().values().any(|capture| is_blocked_by(context, capture))
}

/// Refuses work in the legacy default stream that would have to wait for a stream that is being captured.
pub fn refuse_implicit() -> Result<(), CUresult> {
    if !any() {
        return Ok(());
    }
    let context = context::current()?;
    let blocked = CAPTURES.lock().values_mut().fold(false, |blocked, capture| {
        let blocks = is_blocked_by(context, capture);
        capture.is_invalid |= blocks;
        blocked | blocks
    });
    if blocked { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}

/// The captures of a context end with it.
pub fn context_ends(context: Handle<Context>) {
    if !any() {
        return;
    }
    let of_context =
        |capture: &Capture| stream::state(capture.origin).map_or(true, |state| state.context == context);
    let ended: Vec<_> =
        CAPTURES.lock().iter().filter(|(_, capture)| of_context(capture)).map(|(id, _)| *id).collect();
    for capture in ended.into_iter().filter_map(forget).filter(|capture| !capture.keeps_graph) {
        let removed = world().remove_graph(capture.graph);
        // There is nobody left to hear of an error.
        let _ = removed.and_then(|removed| removed.finish());
    }
}
