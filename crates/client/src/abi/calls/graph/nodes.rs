//! Graph node calls: add, get and set parameters, in graphs and in executable graphs.
//!
//! Attributes of kernel nodes.

use std::sync::Arc;

use causeway_api::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph,
    CUgraphConditionalHandle, CUgraphExec, CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue,
    CUlaunchAttributeID, CUresult,
};
use causeway_api::types::LaunchAttribute;

use crate::abi::calls::graph::described::{
    INVALID, context_of, copy, fill, host, kernel, of_functions, record, required, values, wait,
    without_context,
};
use crate::abi::calls::graph::structure::{add, edges};
use crate::abi::entry::Outcome;
use crate::arguments::write_out;
use crate::model::graph::work::{Kernel, Work, is_node_attribute};
use crate::model::graph::{self, graphs};
use crate::model::handles::RawHandle as _;
use crate::submit::graph::{build, executable};
use crate::submit::send;

/// What a node does.
pub(super) fn work_of(hNode: CUgraphNode) -> Result<Work, CUresult> {
    Ok(graphs().node(graph::resolve_node(hNode)?)?.work.clone())
}

/// Gives a node other work of the same kind.
pub(super) fn set(hNode: CUgraphNode, work: Work) -> Outcome {
    let replaced = {
        let mut graphs = graphs();
        let node = graphs.node_mut(graph::resolve_node(hNode)?)?;
        if node.work.kind() != work.kind() {
            return Err(INVALID);
        }
        core::mem::replace(&mut node.work, work)
    };
    // Dropped without the lock.
    drop(replaced);
    Ok(())
}

/// The four calls that every kind of node has, for parameters that are read as they are.
macro_rules! node_calls {
    ($($add:ident, $get:ident, $set:ident, $change:ident: $type:ty {
        $params:ident => $make:expr, $pattern:pat => $describe:expr
    })*) => {$(
        pub unsafe fn $add(
            phGraphNode: *mut CUgraphNode,
            hGraph: CUgraph,
            dependencies: *const CUgraphNode,
            numDependencies: usize,
            nodeParams: *const $type,
        ) -> Outcome {
            // SAFETY: the program passes a list of `numDependencies` nodes, null or a description of this
            // type, and room for a node.
            unsafe {
                let $params = required(nodeParams)?;
                let before = edges(dependencies, core::ptr::null(), numDependencies)?;
                let work = $make;
                add(phGraphNode, hGraph, &before, |_| work)
            }
        }

        pub unsafe fn $get(hNode: CUgraphNode, nodeParams: *mut $type) -> Outcome {
            match &work_of(hNode)? {
                // SAFETY: room for the result, or null. What it leads to belongs to the node.
                $pattern => unsafe { write_out(nodeParams, $describe) },
                _ => Err(INVALID),
            }
        }

        pub unsafe fn $set(hNode: CUgraphNode, nodeParams: *const $type) -> Outcome {
            // SAFETY: the program passes null or a description of this type.
            unsafe {
                let $params = required(nodeParams)?;
                let work = $make?;
                set(hNode, keep_attributes(hNode, work)?)
            }
        }

        pub unsafe fn $change(
            hGraphExec: CUgraphExec,
            hNode: CUgraphNode,
            nodeParams: *const $type,
        ) -> Outcome {
            // SAFETY: the program passes null or a description of this type.
            unsafe {
                let $params = required(nodeParams)?;
                let work = $make?;
                let work = keep_attributes(hNode, work)?;
                executable::resolve(hGraphExec)?.set(graph::resolve_node(hNode)?, work)
            }
        }
    )*};
}

node_calls! {
    cuGraphAddKernelNode_v2, cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetParams_v2,
    cuGraphExecKernelNodeSetParams_v2: CUDA_KERNEL_NODE_PARAMS {
        parameters => kernel(parameters), Work::Kernel(kernel) => kernel.describe()
    }
    cuGraphAddKernelNode, cuGraphKernelNodeGetParams, cuGraphKernelNodeSetParams,
    cuGraphExecKernelNodeSetParams: CUDA_KERNEL_NODE_PARAMS_v1 {
        parameters => kernel(&without_context(parameters)),
        Work::Kernel(kernel) => of_functions(&kernel.describe())
    }
    cuGraphAddHostNode, cuGraphHostNodeGetParams, cuGraphHostNodeSetParams,
    cuGraphExecHostNodeSetParams: CUDA_HOST_NODE_PARAMS {
        parameters => host(parameters),
        Work::Host(calling) => CUDA_HOST_NODE_PARAMS { fn_: Some(calling.function), userData: calling.data }
    }
    cuGraphAddBatchMemOpNode, cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeSetParams,
    cuGraphExecBatchMemOpNodeSetParams: CUDA_BATCH_MEM_OP_NODE_PARAMS {
        parameters => values(parameters), Work::Values(values) => values.describe()
    }
}

/// New parameters leave a kernel node's attributes as they are.
pub(super) fn keep_attributes(hNode: CUgraphNode, work: Work) -> Result<Work, CUresult> {
    match (&work, work_of(hNode)?) {
        (Work::Kernel(new), Work::Kernel(old)) if !old.attributes.is_empty() => {
            Ok(Work::Kernel(new.with_attributes(old.attributes.clone())?.into()))
        }
        _ => Ok(work),
    }
}

pub unsafe fn cuGraphAddMemcpyNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    copyParams: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> Outcome {
    // SAFETY: the program passes a list of `numDependencies` nodes, null or a description of a copy, and room
    // for a node.
    unsafe {
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        let work = copy(required(copyParams)?, ctx);
        add(phGraphNode, hGraph, &before, |_| work)
    }
}

pub unsafe fn cuGraphMemcpyNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D) -> Outcome {
    match work_of(hNode)? {
        // SAFETY: room for the result, or null.
        Work::Copy(copying) => unsafe { write_out(nodeParams, copying.parameters) },
        _ => Err(INVALID),
    }
}

pub unsafe fn cuGraphMemcpyNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D) -> Outcome {
    // SAFETY: the program passes null or a description of a copy.
    set(hNode, copy(unsafe { required(nodeParams) }?, core::ptr::null_mut())?)
}

pub unsafe fn cuGraphExecMemcpyNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    copyParams: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> Outcome {
    // SAFETY: the program passes null or a description of a copy.
    let work = copy(unsafe { required(copyParams) }?, ctx)?;
    executable::resolve(hGraphExec)?.set(graph::resolve_node(hNode)?, work)
}

pub unsafe fn cuGraphAddMemsetNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Outcome {
    // SAFETY: the program passes a list of `numDependencies` nodes, null or a description of a fill, and room
    // for a node.
    unsafe {
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        let work = fill(required(memsetParams)?, ctx);
        add(phGraphNode, hGraph, &before, |_| work)
    }
}

pub unsafe fn cuGraphMemsetNodeGetParams(
    hNode: CUgraphNode,
    nodeParams: *mut CUDA_MEMSET_NODE_PARAMS,
) -> Outcome {
    match work_of(hNode)? {
        // SAFETY: room for the result, or null.
        Work::Fill(filling) => unsafe { write_out(nodeParams, filling.parameters) },
        _ => Err(INVALID),
    }
}

pub unsafe fn cuGraphMemsetNodeSetParams(
    hNode: CUgraphNode,
    nodeParams: *const CUDA_MEMSET_NODE_PARAMS,
) -> Outcome {
    // SAFETY: the program passes null or a description of a fill.
    set(hNode, fill(unsafe { required(nodeParams) }?, core::ptr::null_mut())?)
}

pub unsafe fn cuGraphExecMemsetNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Outcome {
    // SAFETY: the program passes null or a description of a fill.
    let work = fill(unsafe { required(memsetParams) }?, ctx)?;
    executable::resolve(hGraphExec)?.set(graph::resolve_node(hNode)?, work)
}

pub unsafe fn cuGraphAddChildGraphNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    childGraph: CUgraph,
) -> Outcome {
    let child = graph::resolve(childGraph)?;
    // SAFETY: the program passes a list of `numDependencies` nodes, and room for a node.
    unsafe {
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        add(phGraphNode, hGraph, &before, |graphs| graphs.clone_graph(child).map(Work::Child))
    }
}

pub unsafe fn cuGraphExecChildGraphNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    childGraph: CUgraph,
) -> Outcome {
    let (node, child) = (graph::resolve_node(hNode)?, graph::resolve(childGraph)?);
    executable::resolve(hGraphExec)?.set_child(node, child)
}

pub unsafe fn cuGraphAddEmptyNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
) -> Outcome {
    // SAFETY: the program passes a list of `numDependencies` nodes, and room for a node.
    unsafe {
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        add(phGraphNode, hGraph, &before, |_| Ok(Work::Empty))
    }
}

/// The four calls of nodes that have to do with an event.
macro_rules! event_calls {
    ($($add:ident, $get:ident, $set:ident, $change:ident: $make:ident, $work:path;)*) => {$(
        pub unsafe fn $add(
            phGraphNode: *mut CUgraphNode,
            hGraph: CUgraph,
            dependencies: *const CUgraphNode,
            numDependencies: usize,
            event: CUevent,
        ) -> Outcome {
            // SAFETY: the program passes a list of `numDependencies` nodes, and room for a node.
            unsafe {
                let before = edges(dependencies, core::ptr::null(), numDependencies)?;
                add(phGraphNode, hGraph, &before, |_| $make(event))
            }
        }

        pub unsafe fn $get(hNode: CUgraphNode, event_out: *mut CUevent) -> Outcome {
            match work_of(hNode)? {
                // SAFETY: room for the result, or null.
                $work(event) => unsafe { write_out(event_out, event.as_raw()) },
                _ => Err(INVALID),
            }
        }

        pub unsafe fn $set(hNode: CUgraphNode, event: CUevent) -> Outcome {
            set(hNode, $make(event)?)
        }

        pub unsafe fn $change(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent) -> Outcome {
            executable::resolve(hGraphExec)?.set(graph::resolve_node(hNode)?, $make(event)?)
        }
    )*};
}

event_calls! {
    cuGraphAddEventRecordNode, cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent,
    cuGraphExecEventRecordNodeSetEvent: record, Work::Record;
    cuGraphAddEventWaitNode, cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent,
    cuGraphExecEventWaitNodeSetEvent: wait, Work::Wait;
}

pub unsafe fn cuGraphConditionalHandleCreate(
    pHandle_out: *mut CUgraphConditionalHandle,
    hGraph: CUgraph,
    ctx: CUcontext,
    defaultLaunchValue: u32,
    flags: u32,
) -> Outcome {
    if pHandle_out.is_null() || flags > 1 {
        return Err(INVALID);
    }
    let (graph, context) = (graph::resolve(hGraph)?, context_of(ctx)?);
    let on_server = build::ensure_on_server(&mut graphs(), graph)?;
    let request = causeway_api::calls::graph_conditional_handle {
        graph: on_server.graph,
        initial: defaultLaunchValue,
        flags,
    };
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pHandle_out, send::call_in(context, &request)?) }
}

/// The kernel of a node.
fn kernel_of(hNode: CUgraphNode) -> Result<Arc<Kernel>, CUresult> {
    match work_of(hNode)? {
        Work::Kernel(kernel) => Ok(kernel),
        _ => Err(INVALID),
    }
}

pub unsafe fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode) -> Outcome {
    let attributes = kernel_of(src)?.attributes.clone();
    set(dst, Work::Kernel(kernel_of(dst)?.with_attributes(attributes)?.into()))
}

pub unsafe fn cuGraphKernelNodeGetAttribute(
    hNode: CUgraphNode,
    attr: CUkernelNodeAttrID,
    value_out: *mut CUkernelNodeAttrValue,
) -> Outcome {
    require_known(attr)?;
    let kernel = kernel_of(hNode)?;
    let mut value = CUkernelNodeAttrValue::default();
    if let Some(found) = kernel.attributes.iter().find(|attribute| attribute.id == attr.0) {
        value.pad = found.value.map(|byte| byte as core::ffi::c_char);
    }
    // SAFETY: room for the result, or null.
    unsafe { write_out(value_out, value) }
}

pub unsafe fn cuGraphKernelNodeSetAttribute(
    hNode: CUgraphNode,
    attr: CUkernelNodeAttrID,
    value: *const CUkernelNodeAttrValue,
) -> Outcome {
    require_known(attr)?;
    // SAFETY: a value, or null. Every byte of the union belongs to its `pad`.
    let value = unsafe { required(value)?.pad }.map(|byte| byte as u8);
    let kernel = kernel_of(hNode)?;
    let mut attributes = kernel.attributes.clone();
    attributes.retain(|attribute| attribute.id != attr.0);
    attributes.push(LaunchAttribute { id: attr.0, value });
    set(hNode, Work::Kernel(kernel.with_attributes(attributes)?.into()))
}

/// Refuses values that are not attributes of a kernel node, or hold a handle.
fn require_known(attribute: CUkernelNodeAttrID) -> Outcome {
    if attribute == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
        return Err(crate::log::refuse_use!("kernel nodes that kernels change"));
    }
    if is_node_attribute(attribute.0) { Ok(()) } else { Err(INVALID) }
}
