//! What nodes do: added, asked for, changed in a graph and in executable graphs.

use super::Outcome;
use super::structure::{add, edges};
use crate::context;
use crate::entry::{give, list};
use crate::event;
use crate::graph::executable;
use crate::graph::memory::Allocation;
use crate::graph::work::{Calling, Copying, Filling, Kernel, Values, Work};
use crate::graph::{self, build, world};
use crate::launch::Arguments;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphConditionalHandle, CUgraphExec, CUgraphNode,
    CUresult,
};
use causeway_api::types::LaunchShape;

pub(super) const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The context that a node is given, the current one when it is null.
fn context_of(raw: CUcontext) -> Result<Handle<Context>, CUresult> {
    if raw.is_null() { context::current() } else { Ok(context::given(raw)?.handle) }
}

/// # Safety
/// `parameters` must be what `cuGraphAddKernelNode` demands.
pub(super) unsafe fn kernel(parameters: &CUDA_KERNEL_NODE_PARAMS) -> Result<Work, CUresult> {
    let context = context_of(parameters.ctx)?;
    let function = if parameters.func.is_null() { parameters.kern as CUfunction } else { parameters.func };
    let shape = LaunchShape {
        grid: [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ],
        block: [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ],
        shared_bytes: parameters.sharedMemBytes,
    };
    let arguments = Arguments { addresses: parameters.kernelParams.cast(), extra: parameters.extra.cast() };
    // SAFETY: as this function demands.
    let kernel = unsafe { Kernel::new(function, context, shape, Vec::new(), arguments) }?;
    Ok(Work::Kernel(kernel.into()))
}

/// The form before CUDA 12, which knows functions only.
fn without_context(parameters: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: parameters.func,
        gridDimX: parameters.gridDimX,
        gridDimY: parameters.gridDimY,
        gridDimZ: parameters.gridDimZ,
        blockDimX: parameters.blockDimX,
        blockDimY: parameters.blockDimY,
        blockDimZ: parameters.blockDimZ,
        sharedMemBytes: parameters.sharedMemBytes,
        kernelParams: parameters.kernelParams,
        extra: parameters.extra,
        ..CUDA_KERNEL_NODE_PARAMS::default()
    }
}

pub(super) fn copy(parameters: &CUDA_MEMCPY3D, context: CUcontext) -> Result<Work, CUresult> {
    let copying = Copying { parameters: *parameters, context: context_of(context)? };
    crate::calls::places(&copying.parameters)?;
    Ok(Work::Copy(copying))
}

pub(super) fn fill(parameters: &CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Result<Work, CUresult> {
    let context = context_of(context)?;
    let filling = Filling::new(*parameters, context)?;
    let fill = filling.fill();
    let row = fill.width.saturating_mul(fill.element.into());
    let rest = fill.pitch.saturating_mul(fill.height.saturating_sub(1));
    crate::memory::check_range(fill.address, rest.saturating_add(row))?;
    Ok(Work::Fill(filling))
}

pub(super) fn host(parameters: &CUDA_HOST_NODE_PARAMS) -> Result<Work, CUresult> {
    let function = parameters.fn_.ok_or(INVALID)?;
    Ok(Work::Host(Calling { function, data: parameters.userData }))
}

pub(super) fn record(event: CUevent) -> Result<Work, CUresult> {
    Ok(Work::Record(event::named(event)?))
}

pub(super) fn wait(event: CUevent) -> Result<Work, CUresult> {
    Ok(Work::Wait(event::named(event)?))
}

/// # Safety
/// The list of operations must be as long as it says, each of the form that its kind says.
pub(super) unsafe fn values(parameters: &CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Result<Work, CUresult> {
    let context = context_of(parameters.ctx)?;
    // SAFETY: as this function demands.
    let values = unsafe {
        let operations = list(parameters.paramArray.cast_const(), parameters.count as usize)?;
        Values::new(operations, parameters.flags, context)?
    };
    Ok(Work::Values(values.into()))
}

/// # Safety
/// The list of access descriptions must be as long as it says.
pub(super) unsafe fn allocation(parameters: &mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Result<Work, CUresult> {
    // SAFETY: as this function demands.
    let allocation = unsafe { Allocation::new(parameters) }?;
    parameters.dptr = allocation.address;
    Ok(Work::Allocate(allocation))
}

pub(super) fn free(address: CUdeviceptr) -> Result<Work, CUresult> {
    // Graphs may free only what graphs allocate.
    if graph::memory::is_ours(address) { Ok(Work::Free(address)) } else { Err(INVALID) }
}

/// What a node does.
pub(super) fn work_of(hNode: CUgraphNode) -> Result<Work, CUresult> {
    Ok(world().node(graph::given_node(hNode)?)?.work.clone())
}

/// Gives a node other work of the same kind.
pub(super) fn set(hNode: CUgraphNode, work: Work) -> Outcome {
    let replaced = {
        let mut world = world();
        let node = world.node_mut(graph::given_node(hNode)?)?;
        if node.work.kind() != work.kind() {
            return Err(INVALID);
        }
        core::mem::replace(&mut node.work, work)
    };
    // Dropped without the lock.
    drop(replaced);
    Ok(())
}

/// A parameter structure that the program passes.
///
/// # Safety
/// `pointer` must be null or valid.
pub(super) unsafe fn given<'a, T>(pointer: *const T) -> Result<&'a T, CUresult> {
    // SAFETY: as this function demands.
    unsafe { pointer.as_ref() }.ok_or(INVALID)
}

/// The four calls that every kind of node has, for parameters that are read as they are.
macro_rules! node_calls {
    ($($add:ident, $get:ident, $set:ident, $change:ident: $type:ty {
        $given:ident => $make:expr, $kept:pat => $describe:expr
    })*) => {$(
        pub unsafe fn $add(
            phGraphNode: *mut CUgraphNode,
            hGraph: CUgraph,
            dependencies: *const CUgraphNode,
            numDependencies: usize,
            nodeParams: *const $type,
        ) -> Outcome {
            // SAFETY: what the program passes.
            unsafe {
                let $given = given(nodeParams)?;
                let before = edges(dependencies, core::ptr::null(), numDependencies)?;
                let work = $make;
                add(phGraphNode, hGraph, &before, |_| work)
            }
        }

        pub unsafe fn $get(hNode: CUgraphNode, nodeParams: *mut $type) -> Outcome {
            match &work_of(hNode)? {
                // SAFETY: room for the result, or null. What it leads to belongs to the node.
                $kept => unsafe { give(nodeParams, $describe) },
                _ => Err(INVALID),
            }
        }

        pub unsafe fn $set(hNode: CUgraphNode, nodeParams: *const $type) -> Outcome {
            // SAFETY: what the program passes.
            unsafe {
                let $given = given(nodeParams)?;
                let work = $make?;
                set(hNode, keep_attributes(hNode, work)?)
            }
        }

        pub unsafe fn $change(
            hGraphExec: CUgraphExec,
            hNode: CUgraphNode,
            nodeParams: *const $type,
        ) -> Outcome {
            // SAFETY: what the program passes.
            unsafe {
                let $given = given(nodeParams)?;
                let work = $make?;
                let work = keep_attributes(hNode, work)?;
                executable::given(hGraphExec)?.set(graph::given_node(hNode)?, work)
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
        Work::Kernel(kernel) => {
            let described = kernel.describe();
            CUDA_KERNEL_NODE_PARAMS_v1 {
                func: described.func,
                gridDimX: described.gridDimX,
                gridDimY: described.gridDimY,
                gridDimZ: described.gridDimZ,
                blockDimX: described.blockDimX,
                blockDimY: described.blockDimY,
                blockDimZ: described.blockDimZ,
                sharedMemBytes: described.sharedMemBytes,
                kernelParams: described.kernelParams,
                extra: described.extra,
            }
        }
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
    // SAFETY: what the program passes.
    unsafe {
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        let work = copy(given(copyParams)?, ctx);
        add(phGraphNode, hGraph, &before, |_| work)
    }
}

pub unsafe fn cuGraphMemcpyNodeGetParams(hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D) -> Outcome {
    match work_of(hNode)? {
        // SAFETY: room for the result, or null.
        Work::Copy(copying) => unsafe { give(nodeParams, copying.parameters) },
        _ => Err(INVALID),
    }
}

pub unsafe fn cuGraphMemcpyNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D) -> Outcome {
    // SAFETY: what the program passes.
    set(hNode, copy(unsafe { given(nodeParams) }?, core::ptr::null_mut())?)
}

pub unsafe fn cuGraphExecMemcpyNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    copyParams: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> Outcome {
    // SAFETY: what the program passes.
    let work = copy(unsafe { given(copyParams) }?, ctx)?;
    executable::given(hGraphExec)?.set(graph::given_node(hNode)?, work)
}

pub unsafe fn cuGraphAddMemsetNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Outcome {
    // SAFETY: what the program passes.
    unsafe {
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        let work = fill(given(memsetParams)?, ctx);
        add(phGraphNode, hGraph, &before, |_| work)
    }
}

pub unsafe fn cuGraphMemsetNodeGetParams(
    hNode: CUgraphNode,
    nodeParams: *mut CUDA_MEMSET_NODE_PARAMS,
) -> Outcome {
    match work_of(hNode)? {
        // SAFETY: room for the result, or null.
        Work::Fill(filling) => unsafe { give(nodeParams, filling.parameters) },
        _ => Err(INVALID),
    }
}

pub unsafe fn cuGraphMemsetNodeSetParams(
    hNode: CUgraphNode,
    nodeParams: *const CUDA_MEMSET_NODE_PARAMS,
) -> Outcome {
    // SAFETY: what the program passes.
    set(hNode, fill(unsafe { given(nodeParams) }?, core::ptr::null_mut())?)
}

pub unsafe fn cuGraphExecMemsetNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Outcome {
    // SAFETY: what the program passes.
    let work = fill(unsafe { given(memsetParams) }?, ctx)?;
    executable::given(hGraphExec)?.set(graph::given_node(hNode)?, work)
}

pub unsafe fn cuGraphAddChildGraphNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    childGraph: CUgraph,
) -> Outcome {
    let child = graph::given(childGraph)?;
    // SAFETY: what the program passes.
    unsafe {
        let before = edges(dependencies, core::ptr::null(), numDependencies)?;
        add(phGraphNode, hGraph, &before, |world| world.clone_graph(child).map(Work::Child))
    }
}

pub unsafe fn cuGraphExecChildGraphNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    childGraph: CUgraph,
) -> Outcome {
    let (node, child) = (graph::given_node(hNode)?, graph::given(childGraph)?);
    executable::given(hGraphExec)?.set_child(node, child)
}

pub unsafe fn cuGraphAddEmptyNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
) -> Outcome {
    // SAFETY: what the program passes.
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
            // SAFETY: what the program passes.
            unsafe {
                let before = edges(dependencies, core::ptr::null(), numDependencies)?;
                add(phGraphNode, hGraph, &before, |_| $make(event))
            }
        }

        pub unsafe fn $get(hNode: CUgraphNode, event_out: *mut CUevent) -> Outcome {
            match work_of(hNode)? {
                // SAFETY: room for the result, or null.
                $work(event) => unsafe { give(event_out, event.as_raw()) },
                _ => Err(INVALID),
            }
        }

        pub unsafe fn $set(hNode: CUgraphNode, event: CUevent) -> Outcome {
            set(hNode, $make(event)?)
        }

        pub unsafe fn $change(hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent) -> Outcome {
            executable::given(hGraphExec)?.set(graph::given_node(hNode)?, $make(event)?)
        }
    )*};
}

event_calls! {
    cuGraphAddEventRecordNode, cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeSetEvent,
    cuGraphExecEventRecordNodeSetEvent: record, Work::Record;
    cuGraphAddEventWaitNode, cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeSetEvent,
    cuGraphExecEventWaitNodeSetEvent: wait, Work::Wait;
}

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
        let work = allocation(parameters);
        add(phGraphNode, hGraph, &before, |_| work)
    }
}

pub unsafe fn cuGraphMemAllocNodeGetParams(
    hNode: CUgraphNode,
    params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome {
    match work_of(hNode)? {
        // SAFETY: room for the result, or null.
        Work::Allocate(allocation) => unsafe { give(params_out, allocation.describe()) },
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
        Work::Free(address) => unsafe { give(dptr_out, address) },
        _ => Err(INVALID),
    }
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
    let (graph, context) = (graph::given(hGraph)?, context_of(ctx)?);
    let on_server = build::ensure_on_server(&mut world(), graph)?;
    let request = causeway_api::calls::graph_conditional_handle {
        graph: on_server.graph,
        initial: defaultLaunchValue,
        flags,
    };
    // SAFETY: not null, so there is room for the result.
    unsafe { give(pHandle_out, crate::session::call_in(context, &request)?) }
}
