//! User objects, and the memory of graphs.

use crate::abi::outcome::Outcome;
use crate::arguments::write_out;
use crate::model::device;
use crate::model::graph::{self, graphs, memory, objects, reservation};
use crate::model::handles::RawHandle as _;
use crate::submit::callbacks;
use causeway_api::handle::Handle;
use causeway_api::sys::{
    CUdevice, CUgraph, CUgraphMem_attribute, CUhostFn, CUresult, CUuserObject, CUuserObject_flags,
    CUuserObjectRetain_flags,
};
use core::ffi::c_void;

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
