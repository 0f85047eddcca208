//! Commands for captured streams: each becomes a node, or is refused.

use super::nodes::add;
use super::table::{any, invalidate, of};
use crate::log::refuse_use;
use crate::model::context;
use crate::model::graph::work::{Copying, Filling, Kernel, Values, Work};
use crate::model::handles::RawHandle as _;
use crate::model::region::Endpoint;
use crate::model::stream::StreamState;
use causeway_api::calls::{Call, NodeRequest, Request};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUDA_MEMSET_NODE_PARAMS, CUresult, CUstreamBatchMemOpType};
use causeway_api::types::ValueOperation;

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
