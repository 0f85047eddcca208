//! Stream capture.

use super::graph::structure::edges;
use crate::abi::entry::Outcome;
use crate::arguments::{write_optional, write_out};
use crate::model::handles::RawHandle as _;
use crate::model::stream::StreamState;
use crate::model::{context, graph};
use crate::submit::capture::{self, Info};
use crate::submit::streams;
use crate::submit::streams::DefaultStream;
use causeway_api::sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUstreamUpdateCaptureDependencies_flags,
};
use core::ffi::c_void;
use std::sync::Arc;

/// The stream that the program asks about.
fn named(raw: CUstream, default_stream: DefaultStream) -> Result<Arc<StreamState>, CUresult> {
    context::stream(streams::named(raw, default_stream)?)
}

pub unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> Outcome {
    // SAFETY: a mode, or null.
    let mode = unsafe { mode.as_mut() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // The driver takes any number.
    *mode = capture::exchange_mode(*mode);
    Ok(())
}

/// The form before CUDA 10.1, which had no modes.
pub unsafe fn cuStreamBeginCapture(hStream: CUstream, ds: DefaultStream) -> Outcome {
    capture::begin(&*named(hStream, ds)?, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL, None)
}

pub unsafe fn cuStreamBeginCapture_v2(
    hStream: CUstream,
    mode: CUstreamCaptureMode,
    ds: DefaultStream,
) -> Outcome {
    capture::begin(&*named(hStream, ds)?, mode, None)
}

pub unsafe fn cuStreamBeginCaptureToGraph(
    hStream: CUstream,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    mode: CUstreamCaptureMode,
    ds: DefaultStream,
) -> Outcome {
    let invalid = |_| CUresult::CUDA_ERROR_INVALID_VALUE;
    let graph = graph::resolve(hGraph).map_err(invalid)?;
    // SAFETY: the program's lists have `numDependencies` entries or are null.
    let tips = unsafe { edges(dependencies, dependencyData, numDependencies) }.map_err(invalid)?;
    capture::begin(&*named(hStream, ds)?, mode, Some((graph, tips)))
}

pub unsafe fn cuStreamEndCapture(hStream: CUstream, phGraph: *mut CUgraph, ds: DefaultStream) -> Outcome {
    let stream = named(hStream, ds)?;
    let ended = capture::end(&stream);
    let graph = ended.as_ref().map_or(core::ptr::null_mut(), |graph| graph.as_raw());
    // SAFETY: room for the result, or null: a program that captures into a graph has it already.
    unsafe { write_optional(phGraph, graph) };
    ended.map(|_| ())
}

pub unsafe fn cuStreamIsCapturing(
    hStream: CUstream,
    captureStatus: *mut CUstreamCaptureStatus,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(captureStatus, capture::info(&*named(hStream, ds)?)?.status) }
}

pub unsafe fn cuStreamGetCaptureInfo(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
    ds: DefaultStream,
) -> Outcome {
    let info = capture::info(&*named(hStream, ds)?)?;
    // SAFETY: room for both results, or null.
    unsafe {
        write_out(captureStatus_out, info.status)?;
        write_optional(id_out, info.id);
    }
    Ok(())
}

/// # Safety
/// Each address must be null or have room for its result.
unsafe fn write_info(
    info: &Info,
    status_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
    graph_out: *mut CUgraph,
    nodes_out: *mut c_void,
    edges_out: *mut c_void,
    count_out: *mut usize,
) -> Outcome {
    // SAFETY: each address is null or has room for its result, which the caller ensures.
    unsafe {
        write_out(status_out, info.status)?;
        if info.status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            write_optional(id_out, info.id);
            write_optional(graph_out, info.graph.as_raw());
            write_optional(nodes_out.cast::<*const CUgraphNode>(), info.nodes);
            write_optional(edges_out.cast::<*const CUgraphEdgeData>(), info.edges);
            write_optional(count_out, info.count);
        }
    }
    Ok(())
}

pub unsafe fn cuStreamGetCaptureInfo_v2(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
    graph_out: *mut CUgraph,
    dependencies_out: *mut c_void,
    numDependencies_out: *mut usize,
    ds: DefaultStream,
) -> Outcome {
    let info = capture::info(&*named(hStream, ds)?)?;
    if !dependencies_out.is_null() && info.has_data() {
        return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
    }
    let (nodes, none, count) = (dependencies_out, core::ptr::null_mut(), numDependencies_out);
    // SAFETY: the program passes addresses that are null or have room for their results.
    unsafe { write_info(&info, captureStatus_out, id_out, graph_out, nodes, none, count) }
}

pub unsafe fn cuStreamGetCaptureInfo_v3(
    hStream: CUstream,
    captureStatus_out: *mut CUstreamCaptureStatus,
    id_out: *mut u64,
    graph_out: *mut CUgraph,
    dependencies_out: *mut c_void,
    edgeData_out: *mut c_void,
    numDependencies_out: *mut usize,
    ds: DefaultStream,
) -> Outcome {
    let info = capture::info(&*named(hStream, ds)?)?;
    if !dependencies_out.is_null() && edgeData_out.is_null() && info.has_data() {
        return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
    }
    let (nodes, edges, count) = (dependencies_out, edgeData_out, numDependencies_out);
    // SAFETY: the program passes addresses that are null or have room for their results.
    unsafe { write_info(&info, captureStatus_out, id_out, graph_out, nodes, edges, count) }
}

pub unsafe fn cuStreamUpdateCaptureDependencies(
    hStream: CUstream,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    flags: u32,
    ds: DefaultStream,
) -> Outcome {
    let data = core::ptr::null();
    // SAFETY: the program's list has `numDependencies` entries or is null, and `data` is null.
    unsafe { cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, data, numDependencies, flags, ds) }
}

pub unsafe fn cuStreamUpdateCaptureDependencies_v2(
    hStream: CUstream,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    flags: u32,
    ds: DefaultStream,
) -> Outcome {
    type Flags = CUstreamUpdateCaptureDependencies_flags;
    let adds = match CUstreamUpdateCaptureDependencies_flags(flags) {
        Flags::CU_STREAM_ADD_CAPTURE_DEPENDENCIES => true,
        Flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES => false,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: the program's lists have `numDependencies` entries or are null.
    let tips = unsafe { edges(dependencies, dependencyData, numDependencies) }?;
    capture::update_dependencies(&*named(hStream, ds)?, tips, adds)
}
