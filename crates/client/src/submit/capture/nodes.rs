//! Captured work as graph nodes, and events that carry a capture from stream to stream.

use super::table::{CAPTURES, Capture, change, invalidate, is_plain, join_tips, of};
use crate::model::graph::work::{Kernel, Work, is_node_attribute};
use crate::model::graph::{Edge, GraphStore};
use crate::model::stream::StreamState;
use causeway_api::handle::{Event, GraphNode, Handle, Stream};
use causeway_api::sys::{
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CUgraphDependencyType, CUgraphNodeType, CUlaunchAttributeID,
    CUresult,
};
use causeway_api::types::LaunchAttribute;
use std::sync::atomic::Ordering;

/// Makes work of a captured stream a node.
pub fn add(state: &StreamState, work: Work) -> Result<(), CUresult> {
    change(state, |capture, graphs| capture.append(graphs, state.handle, work).map(|_| ()))
}

impl Capture {
    fn append(
        &mut self,
        graphs: &mut GraphStore,
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
                    graphs.node(tip.node)?.work.kind() == CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
                if is_kernel && is_plain(tip) {
                    tip.data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8;
                    tip.data.type_ = CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0 as u8;
                }
            }
            work = node;
        }
        let node = graphs.add(self.graph, tips, work)?;
        for tip in tips.iter() {
            self.last.remove(&tip.node);
        }
        self.last.insert(node);
        *tips = vec![Edge::plain(node)];
        Ok(node)
    }
}

/// The kernel of a launch as a node has it, and whether it may overlap with what is before it (programmatic
/// stream serialization), which edges say in a graph. Attributes of streams that a launch may have mean
/// nothing to a node.
fn as_node(kernel: &Kernel) -> Result<(Work, bool), CUresult> {
    let serialization = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.0;
    let overlaps = |attribute: &LaunchAttribute| attribute.id == serialization && attribute.value[0] != 0;
    let of_node = kernel.attributes.iter().filter(|attribute| is_node_attribute(attribute.id));
    let node = kernel.with_attributes(of_node.copied().collect())?;
    Ok((Work::Kernel(node.into()), kernel.attributes.iter().any(overlaps)))
}

/// An event is recorded in a captured stream: it names the point, and nothing is recorded. `external` asks
/// for a node that records it at every launch.
pub fn record(state: &StreamState, event: Handle<Event>, external: bool) -> Result<(), CUresult> {
    change(state, |capture, graphs| {
        if external {
            return capture.append(graphs, state.handle, Work::Record(event)).map(|_| ());
        }
        let tips = capture.tips.get(&state.handle).cloned().unwrap_or_default();
        capture.events.insert(event, tips);
        Ok(())
    })
}

/// A stream waits for an event that was recorded in the capture `id`, and with that takes part in it.
pub fn join(state: &StreamState, id: u64, event: Handle<Event>) -> Result<(), CUresult> {
    let mut captures = CAPTURES.by_id.lock();
    let own = of(state);
    if captures.get(&id).is_none_or(|capture| capture.is_invalid) {
        if let Some(capture) = captures.get_mut(&own) {
            capture.is_invalid = true;
        }
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
    let joined = capture.events.get(&event).cloned().unwrap_or_default();
    state.capture.store(id, Ordering::Release);
    join_tips(capture.tips.entry(state.handle).or_default(), &joined);
    Ok(())
}

/// A captured stream waits for an event that was recorded outside: with `external` at every launch, else the
/// order of the capture would depend on what is not in it.
pub fn wait_outside(state: &StreamState, event: Handle<Event>, external: bool) -> Result<(), CUresult> {
    if external {
        return add(state, Work::Wait(event));
    }
    invalidate(of(state));
    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
}
