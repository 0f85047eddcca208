//! Work of captured streams: each command becomes a node or is refused; events carry a capture from stream to
//! stream.

use std::sync::atomic::Ordering;

use causeway_api::calls::{Call, NodeRequest, Request};
use causeway_api::handle::{Context, Event, GraphNode, Handle, Stream};
use causeway_api::sys::{
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, CUDA_MEMSET_NODE_PARAMS, CUgraphDependencyType, CUgraphNodeType,
    CUlaunchAttributeID, CUresult, CUstreamBatchMemOpType,
};
use causeway_api::types::{LaunchAttribute, ValueOperation};

use crate::log::refuse_use;
use crate::model::context;
use crate::model::graph::work::{Copying, Filling, Kernel, Values, Work, is_node_attribute};
use crate::model::graph::{Edge, GraphStore};
use crate::model::handles::RawHandle as _;
use crate::model::region::Endpoint;
use crate::model::stream::StreamState;
use crate::submit::capture::table::{CAPTURES, Capture, any, change, invalidate, is_plain, join_tips, of};

/// Makes a copy of a captured stream a node.
pub fn add_copy(destination: &Endpoint, source: &Endpoint, state: &StreamState) -> Result<(), CUresult> {
    match Copying::between(destination, source, state.context) {
        Some(copying) => add(state, Work::Copy(copying)),
        None => Err(refuse_command(state, "a copy of this shape")),
    }
}

/// Takes a posted command for a captured stream as a node; false when its stream is not captured.
#[inline]
pub fn take<C: Call>(context: Handle<Context>, request: &C) -> Result<bool, CUresult> {
    match captured(request) {
        Some(state) => take_for(&state, context, request).map(|()| true),
        None => Ok(false),
    }
}

/// Refuses a command with results for a captured stream.
#[inline]
pub fn refuse_called<C: Call>(request: &C) -> Result<(), CUresult> {
    match captured(request) {
        Some(state) => Err(refuse_command(&state, C::OPCODE.name())),
        None => Ok(()),
    }
}

/// The captured stream of a command that concerns the capture.
#[inline]
fn captured<C: Call>(request: &C) -> Option<std::sync::Arc<StreamState>> {
    if !C::OPCODE.concerns_captures() || !any() {
        return None;
    }
    let stream = request.stream()?;
    if stream.is_null() {
        return None;
    }
    context::stream(stream).ok().filter(|state| of(state) != 0)
}

fn refuse_command(state: &StreamState, name: &str) -> CUresult {
    invalidate(of(state));
    let _status = refuse_use!("{name} in a stream that is being captured");
    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
}

#[cold]
fn take_for<C: Call>(state: &StreamState, context: Handle<Context>, request: &C) -> Result<(), CUresult> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    let Ok(request) = Request::decode(C::OPCODE, &bytes) else {
        return Err(CUresult::CUDA_ERROR_UNKNOWN);
    };
    let work = match request.as_node() {
        Some(request) => work_of(context, request)?,
        None => None,
    };
    match work {
        Some(work) => add(state, work),
        None => Err(refuse_command(state, C::OPCODE.name())),
    }
}

/// The node that does what a command asks for; nothing where no node can, as for a copy of some shapes.
fn work_of(context: Handle<Context>, request: NodeRequest<'_, '_>) -> Result<Option<Work>, CUresult> {
    type Operation = CUstreamBatchMemOpType;
    let fill = |dst, pitch, value, element, width, height| {
        let parameters = CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, elementSize: element, width, height };
        Filling::new(parameters, context).map(|filling| Some(Work::Fill(filling)))
    };
    let values = |kind: CUstreamBatchMemOpType, address, value, flags| {
        let operation = ValueOperation { kind: kind.0, address, value, flags };
        Ok(Some(Work::Values(Values::single(operation, context).into())))
    };
    match request {
        NodeRequest::launch(launch) => {
            let function = launch.function.as_raw();
            let attributes = launch.attributes.clone();
            let kernel = Kernel::with_buffer(function, context, launch.shape, attributes, launch.params)?;
            Ok(Some(Work::Kernel(kernel.into())))
        }
        NodeRequest::copy_within_device(copy) => {
            let (destination, source) = (Endpoint::Device(copy.destination), Endpoint::Device(copy.source));
            Ok(Copying::between(&destination, &source, context).map(Work::Copy))
        }
        NodeRequest::cuMemsetD8Async(set) => fill(set.dstDevice, set.N, set.uc.into(), 1, set.N, 1),
        NodeRequest::cuMemsetD16Async(set) => fill(set.dstDevice, set.N * 2, set.us.into(), 2, set.N, 1),
        NodeRequest::cuMemsetD32Async(set) => fill(set.dstDevice, set.N * 4, set.ui, 4, set.N, 1),
        NodeRequest::cuMemsetD2D8Async(set) => {
            fill(set.dstDevice, set.dstPitch, set.uc.into(), 1, set.Width, set.Height)
        }
        NodeRequest::cuMemsetD2D16Async(set) => {
            fill(set.dstDevice, set.dstPitch, set.us.into(), 2, set.Width, set.Height)
        }
        NodeRequest::cuMemsetD2D32Async(set) => {
            fill(set.dstDevice, set.dstPitch, set.ui, 4, set.Width, set.Height)
        }
        NodeRequest::cuStreamWriteValue32_v2(write) => {
            let kind = Operation::CU_STREAM_MEM_OP_WRITE_VALUE_32;
            values(kind, write.addr, write.value.into(), write.flags)
        }
        NodeRequest::cuStreamWriteValue64_v2(write) => {
            let kind = Operation::CU_STREAM_MEM_OP_WRITE_VALUE_64;
            values(kind, write.addr, write.value, write.flags)
        }
        NodeRequest::cuStreamWaitValue32_v2(wait) => {
            let kind = Operation::CU_STREAM_MEM_OP_WAIT_VALUE_32;
            values(kind, wait.addr, wait.value.into(), wait.flags)
        }
        NodeRequest::cuStreamWaitValue64_v2(wait) => {
            let kind = Operation::CU_STREAM_MEM_OP_WAIT_VALUE_64;
            values(kind, wait.addr, wait.value, wait.flags)
        }
        NodeRequest::stream_memory_barrier(barrier) => {
            values(CUstreamBatchMemOpType(barrier.operation), 0, 0, barrier.flags)
        }
    }
}

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
