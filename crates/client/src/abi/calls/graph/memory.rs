//! Nodes that allocate and free memory.

use super::described::{INVALID, allocation, free};
use super::nodes::work_of;
use super::structure::{add, edges};
use crate::abi::outcome::Outcome;
use crate::arguments::write_out;
use crate::model::graph::work::Work;
use causeway_api::sys::{CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr, CUgraph, CUgraphNode};

pub unsafe fn cuGraphAddMemAllocNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome {
    // SAFETY: what the program passes.
    unsafe {
        let parameters = nodeParams.as_mut().ok_or(INVALID)?;
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        let work = allocation(hGraph, &before, parameters);
        add(phGraphNode, hGraph, &before, |_| work)
    }
}

pub unsafe fn cuGraphMemAllocNodeGetParams(
    hNode: CUgraphNode,
    params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome {
    match work_of(hNode)? {
        // SAFETY: room for the result, or null.
        Work::Allocate(allocation) => unsafe { write_out(params_out, allocation.describe()) },
        _ => Err(INVALID),
    }
}

pub unsafe fn cuGraphAddMemFreeNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    dptr: CUdeviceptr,
) -> Outcome {
    // SAFETY: what the program passes.
    unsafe {
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        add(phGraphNode, hGraph, &before, |_| free(dptr))
    }
}

pub unsafe fn cuGraphMemFreeNodeGetParams(hNode: CUgraphNode, dptr_out: *mut CUdeviceptr) -> Outcome {
    match work_of(hNode)? {
        // SAFETY: room for the result, or null.
        Work::Free(address) => unsafe { write_out(dptr_out, address) },
        _ => Err(INVALID),
    }
}
