//! Executable graphs.

use crate::abi::entry::Outcome;
use crate::arguments::{write_optional, write_out};
use crate::model::handles::RawHandle as _;
use crate::model::{context, graph};
use crate::submit::graph::executable::{self, Mismatch};
use crate::submit::streams;
use crate::submit::streams::DefaultStream;
use causeway_api::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphInstantiate_flags, CUgraphInstantiateResult, CUgraphNode, CUresult,
    CUstream,
};
use core::ffi::c_void;

pub unsafe fn cuGraphInstantiateWithFlags(
    phGraphExec: *mut CUgraphExec,
    hGraph: CUgraph,
    flags: u64,
) -> Outcome {
    if phGraphExec.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let exec = executable::instantiate(graph::resolve(hGraph)?, flags).map_err(|(status, _)| status)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phGraphExec, exec.as_raw()) }
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
        write_optional(phErrorNode, core::ptr::null_mut());
        if bufferSize > 0 {
            write_optional(logBuffer.cast::<u8>(), 0);
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
    // SAFETY: parameters, or null.
    let params = unsafe { instantiateParams.as_mut() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    params.hErrNode_out = core::ptr::null_mut();
    params.result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
    if phGraphExec.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let exec =
        executable::instantiate(graph::resolve(hGraph)?, params.flags).map_err(|(status, result)| {
            params.result_out = result;
            status
        })?;
    params.result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phGraphExec, exec.as_raw()) }?;
    let upload = u64::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0);
    if params.flags & upload == 0 {
        return Ok(());
    }
    // SAFETY: the handles are numbers, which are looked up and never followed.
    unsafe { cuGraphUpload(exec.as_raw(), params.hUploadStream, default_stream) }
}

pub unsafe fn cuGraphUpload(hGraph: CUgraphExec, hStream: CUstream, ds: DefaultStream) -> Outcome {
    let executable = executable::resolve(hGraph)?;
    executable.upload(&*context::stream(streams::resolve(hStream, ds)?)?)
}

pub unsafe fn cuGraphLaunch(hGraph: CUgraphExec, hStream: CUstream, ds: DefaultStream) -> Outcome {
    let executable = executable::resolve(hGraph)?;
    executable.launch(&context::stream(streams::resolve(hStream, ds)?)?)
}

pub unsafe fn cuGraphExecDestroy(hGraphExec: CUgraphExec) -> Outcome {
    executable::destroy(hGraphExec)
}

pub unsafe fn cuGraphExecGetFlags(hGraphExec: CUgraphExec, flags: *mut u64) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(flags, executable::resolve(hGraphExec)?.flags) }
}

fn update(hGraphExec: CUgraphExec, hGraph: CUgraph) -> Result<Result<(), Mismatch>, CUresult> {
    Ok(executable::resolve(hGraphExec)?.update(graph::resolve(hGraph)?))
}

pub unsafe fn cuGraphExecUpdate_v2(
    hGraphExec: CUgraphExec,
    hGraph: CUgraph,
    resultInfo: *mut CUgraphExecUpdateResultInfo,
) -> Outcome {
    let outcome = update(hGraphExec, hGraph)?;
    let mut info = CUgraphExecUpdateResultInfo::default();
    if let Err(mismatch) = outcome {
        info.result = mismatch.result;
        info.errorNode = mismatch.node.map_or(core::ptr::null_mut(), |node| node.as_raw());
    }
    // SAFETY: room for the result, or null.
    unsafe { write_out(resultInfo, info) }?;
    outcome.map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
}

pub unsafe fn cuGraphExecUpdate(
    hGraphExec: CUgraphExec,
    hGraph: CUgraph,
    hErrorNode_out: *mut CUgraphNode,
    updateResult_out: *mut CUgraphExecUpdateResult,
) -> Outcome {
    let outcome = update(hGraphExec, hGraph)?;
    let (result, node) = match outcome {
        Ok(()) => (CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS, None),
        Err(mismatch) => (mismatch.result, mismatch.node),
    };
    // SAFETY: room for the results, or null.
    unsafe {
        write_optional(hErrorNode_out, node.map_or(core::ptr::null_mut(), |node| node.as_raw()));
        write_out(updateResult_out, result)?;
    }
    outcome.map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
}

pub unsafe fn cuGraphNodeSetEnabled(hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: u32) -> Outcome {
    executable::resolve(hGraphExec)?.enable(graph::resolve_node(hNode)?, isEnabled != 0)
}

pub unsafe fn cuGraphNodeGetEnabled(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    isEnabled: *mut u32,
) -> Outcome {
    let is_enabled = executable::resolve(hGraphExec)?.is_enabled(graph::resolve_node(hNode)?)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(isEnabled, is_enabled.into()) }
}
