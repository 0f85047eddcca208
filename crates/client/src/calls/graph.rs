//! Graphs: captured ones are instantiated and launched here.

use super::Outcome;
use crate::entry::{DefaultStream, give, refuse_use};
use crate::{handles, session};
use causeway_api::calls;
use causeway_api::handle::{Graph, GraphExec, Handle};
use causeway_api::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphExec, CUgraphInstantiateResult, CUgraphNode, CUresult,
    CUstream,
};
use core::ffi::c_void;

/// The number of nodes is known; their handles are not made yet.
pub unsafe fn cuGraphGetNodes(hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize) -> Outcome {
    let graph = handles::given::<Graph>(hGraph)?;
    if !nodes.is_null() {
        return Err(refuse_use!("handles of graph nodes"));
    }
    // SAFETY: room for the result, or null.
    unsafe { give(numNodes, session::call(&calls::graph_node_count { graph })?) }
}

fn instantiate(graph: CUgraph, flags: u64) -> Result<Handle<GraphExec>, CUresult> {
    let graph = handles::given::<Graph>(graph)?;
    let exec = handles::create::<GraphExec>();
    session::call(&calls::graph_instantiate { exec, graph, flags })
        .inspect_err(|_| {
            handles::suspend(exec);
        })
        .map(|()| exec)
}

pub unsafe fn cuGraphInstantiateWithFlags(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    flags: u64,
) -> Outcome {
    if phGraphExec.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { give(phGraphExec, instantiate(hGraph, flags)?.as_raw()) }
}

pub unsafe fn cuGraphInstantiate_v2(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    phErrorNode: *mut CUgraphNode,
    logBuffer: *mut c_void,
    bufferSize: usize,
) -> Outcome {
    // SAFETY: null, or room for a handle, and for `bufferSize` bytes of text.
    unsafe {
        crate::entry::offer(phErrorNode, core::ptr::null_mut());
        if bufferSize > 0 {
            crate::entry::offer(logBuffer.cast::<u8>(), 0);
        }
        cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0)
    }
}

pub unsafe fn cuGraphInstantiateWithParams(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    default_stream: DefaultStream,
) -> Outcome {
    /// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`: upload to the stream that the parameters name.
    const UPLOAD: u64 = 2;
    // SAFETY: parameters, or null.
    let params = unsafe { instantiateParams.as_mut() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    params.hErrNode_out = core::ptr::null_mut();
    params.result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
    // SAFETY: the same arguments.
    unsafe { cuGraphInstantiateWithFlags(phGraphExec, hGraph, params.flags & !UPLOAD) }?;
    params.result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS;
    if params.flags & UPLOAD == 0 {
        return Ok(());
    }
    let hStream = handles::stream(params.hUploadStream, default_stream)?;
    // SAFETY: the call above has stored a handle.
    let hGraph = handles::given::<GraphExec>(unsafe { phGraphExec.read() })?;
    session::post(&calls::cuGraphUpload { hGraph, hStream })
}

pub unsafe fn cuGraphLaunch(
    hGraph: CUgraphExec,
    hStream: CUstream,
    default_stream: DefaultStream,
) -> Outcome {
    let exec = handles::given::<GraphExec>(hGraph)?;
    let stream = handles::stream(hStream, default_stream)?;
    session::post(&calls::graph_launch { exec, stream })
}
