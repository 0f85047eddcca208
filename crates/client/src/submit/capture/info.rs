//! Capture information (`cuStreamGetCaptureInfo`), and updates of a stream's capture dependencies.

use super::refusals::blocks_legacy;
use super::table::{CAPTURES, change, is_plain, join_tips, of, require_nodes};
use crate::model::graph::Edge;
use crate::model::handles::RawHandle as _;
use crate::model::stream::StreamState;
use causeway_api::handle::{Graph, Handle};
use causeway_api::sys::{CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureStatus};

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
