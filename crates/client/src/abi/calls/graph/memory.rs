//! Memory of graphs: nodes that allocate and free it, its attributes, and user objects.

use core::ffi::c_void;

use causeway_api::handle::Handle;
use causeway_api::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUgraph, CUgraphMem_attribute, CUgraphNode, CUhostFn,
    CUresult, CUuserObject, CUuserObject_flags, CUuserObjectRetain_flags,
};

use crate::abi::calls::graph::described::{INVALID, allocation, free};
use crate::abi::calls::graph::nodes::work_of;
use crate::abi::calls::graph::structure::{add, edges};
use crate::abi::entry::Outcome;
use crate::arguments::write_out;
use crate::model::device;
use crate::model::graph::work::Work;
use crate::model::graph::{self, graphs, memory, objects, reservation};
use crate::model::handles::RawHandle as _;
use crate::submit::callbacks;

pub unsafe fn cuGraphAddMemAllocNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome {
    // SAFETY: the program passes a list of `numDependencies` nodes, null or a description with its list of
    // access, and room for a node.
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
    // SAFETY: the program passes a list of `numDependencies` nodes, and room for a node.
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

pub unsafe fn cuUserObjectCreate(
    object_out: *mut CUuserObject,
    ptr: *mut c_void,
    destroy: CUhostFn,
    initialRefcount: u32,
    flags: u32,
) -> Outcome {
    // The flag says that the destructor may run on another thread at any time: it must be set.
    if object_out.is_null() || flags != CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // The destructor's, which cannot be refused one.
    callbacks::must_have_thread()?;
    // SAFETY: not null, so there is room for the result.
    unsafe {
        write_out(object_out, objects::create(ptr, destroy, initialRefcount, callbacks::run_later)?.as_raw())
    }
}

pub unsafe fn cuUserObjectRetain(object: CUuserObject, count: u32) -> Outcome {
    objects::retain(Handle::from_raw(object), count)
}

pub unsafe fn cuUserObjectRelease(object: CUuserObject, count: u32) -> Outcome {
    objects::release(Handle::from_raw(object), count)
}

pub unsafe fn cuGraphRetainUserObject(
    graph: CUgraph,
    object: CUuserObject,
    count: u32,
    flags: u32,
) -> Outcome {
    let moves = match CUuserObjectRetain_flags(flags) {
        CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE => true,
        CUuserObjectRetain_flags(0) => false,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    let mut graphs = graphs();
    let held = &mut graphs.graph_mut(graph::resolve(graph)?)?.held;
    if moves {
        objects::move_to(held, Handle::from_raw(object), count)
    } else {
        held.add(Handle::from_raw(object), count)
    }
}

pub unsafe fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) -> Outcome {
    // Dropped without the lock.
    let released = graphs().graph_mut(graph::resolve(graph)?)?.held.take(Handle::from_raw(object), count)?;
    drop(released);
    Ok(())
}

/// Memory of nodes is freed with their graphs and no sooner.
pub unsafe fn cuDeviceGraphMemTrim(device: CUdevice) -> Outcome {
    device::on_server(device)?;
    reservation::trim();
    Ok(())
}

pub unsafe fn cuDeviceGetGraphMemAttribute(
    device: CUdevice,
    attr: CUgraphMem_attribute,
    value: *mut c_void,
) -> Outcome {
    device::on_server(device)?;
    // SAFETY: room for the number that every attribute is, or null.
    unsafe { write_out(value.cast::<u64>(), memory::attribute(device, attr)?) }
}

pub unsafe fn cuDeviceSetGraphMemAttribute(
    device: CUdevice,
    attr: CUgraphMem_attribute,
    value: *mut c_void,
) -> Outcome {
    device::on_server(device)?;
    if value.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, and every attribute is a number of this size.
    memory::reset_attribute(device, attr, unsafe { value.cast::<u64>().read() })
}
