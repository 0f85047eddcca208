//! Nodes of any kind, described by one structure.

use super::structure::{add, edges};
use super::{described, nodes};
use crate::abi::entry::Outcome;
use crate::log::refuse_use;
use crate::model::graph::work::Work;
use crate::model::graph::{self, GraphStore};
use crate::model::handles::RawHandle as _;
use crate::submit::graph::{build, executable};
use causeway_api::sys::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS, CUgraph, CUgraphChildGraphNodeOwnership, CUgraphConditionalNodeType,
    CUgraphEdgeData, CUgraphExec, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUresult,
};

type Type = CUgraphNodeType;

/// What a description asks for, except for nodes that need their graph to be made, and those that allocate
/// memory.
///
/// # Safety
/// The description must have the form that its type says.
unsafe fn plain_work(parameters: &mut CUgraphNodeParams) -> Result<Work, CUresult> {
    let of = &mut parameters.__bindgen_anon_1;
    // SAFETY: the caller gives a description of the form that its type says, and each branch reads that
    // type's member alone.
    unsafe {
        match parameters.type_ {
            Type::CU_GRAPH_NODE_TYPE_KERNEL => {
                let params = of.kernel;
                described::kernel(&CUDA_KERNEL_NODE_PARAMS {
                    func: params.func,
                    gridDimX: params.gridDimX,
                    gridDimY: params.gridDimY,
                    gridDimZ: params.gridDimZ,
                    blockDimX: params.blockDimX,
                    blockDimY: params.blockDimY,
                    blockDimZ: params.blockDimZ,
                    sharedMemBytes: params.sharedMemBytes,
                    kernelParams: params.kernelParams,
                    extra: params.extra,
                    kern: params.kern,
                    ctx: params.ctx,
                })
            }
            Type::CU_GRAPH_NODE_TYPE_MEMCPY => described::copy(&of.memcpy.copyParams, of.memcpy.copyCtx),
            Type::CU_GRAPH_NODE_TYPE_MEMSET => {
                let params = of.memset;
                let parameters = CUDA_MEMSET_NODE_PARAMS {
                    dst: params.dst,
                    pitch: params.pitch,
                    value: params.value,
                    elementSize: params.elementSize,
                    width: params.width,
                    height: params.height,
                };
                described::fill(&parameters, params.ctx)
            }
            Type::CU_GRAPH_NODE_TYPE_HOST => {
                let params = of.host;
                described::host(&CUDA_HOST_NODE_PARAMS { fn_: params.fn_, userData: params.userData })
            }
            Type::CU_GRAPH_NODE_TYPE_EMPTY => Ok(Work::Empty),
            Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT => described::wait(of.eventWait.event),
            Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD => described::record(of.eventRecord.event),
            Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => {
                let params = of.memOp;
                described::values(&causeway_api::sys::CUDA_BATCH_MEM_OP_NODE_PARAMS {
                    ctx: params.ctx,
                    count: params.count,
                    paramArray: params.paramArray,
                    flags: params.flags,
                })
            }
            Type::CU_GRAPH_NODE_TYPE_MEM_FREE => described::free(of.free.dptr),
            Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL | Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => {
                Err(refuse_use!("external semaphores in graphs: they belong to this machine"))
            }
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// The work of a child node. With ownership moved, the program's graph itself becomes the node's.
fn child(
    graphs: &mut GraphStore,
    graph: CUgraph,
    ownership: CUgraphChildGraphNodeOwnership,
) -> Result<Work, CUresult> {
    let child = graph::resolve(graph)?;
    match ownership {
        CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE => {
            if graphs.graph(child)?.owner.is_some() || graphs.graph(child)?.on_server.is_some() {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            Ok(Work::Child(child))
        }
        CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE => {
            graphs.clone_graph(child).map(Work::Child)
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

fn conditional(
    graphs: &mut GraphStore,
    hGraph: CUgraph,
    params: &mut CUDA_CONDITIONAL_NODE_PARAMS,
) -> Result<Work, CUresult> {
    /// More bodies of one node than any program has.
    const MAX_BODIES: u32 = 1 << 12;
    type Kind = CUgraphConditionalNodeType;
    let fits = match params.type_ {
        Kind::CU_GRAPH_COND_TYPE_IF => matches!(params.size, 1 | 2),
        Kind::CU_GRAPH_COND_TYPE_WHILE => params.size == 1,
        Kind::CU_GRAPH_COND_TYPE_SWITCH => (1..=MAX_BODIES).contains(&params.size),
        _ => false,
    };
    if !fits {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = if params.ctx.is_null() {
        crate::model::context::current()?
    } else {
        crate::model::context::resolve(params.ctx)?.handle
    };
    let graph = graph::resolve(hGraph)?;
    let conditional = build::conditional(graphs, graph, params.handle, params.type_, params.size, context)?;
    params.phGraph_out = conditional.raw_bodies.as_ptr().cast_mut();
    Ok(Work::Conditional(conditional.into()))
}

pub unsafe fn cuGraphAddNode(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
) -> Outcome {
    let data = core::ptr::null();
    // SAFETY: the program passes a list of `numDependencies` nodes, a description, and room for a node;
    // `data` is null.
    unsafe { cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, data, numDependencies, nodeParams) }
}

pub unsafe fn cuGraphAddNode_v2(
    phGraphNode: *mut CUgraphNode,
    hGraph: CUgraph,
    dependencies: *const CUgraphNode,
    dependencyData: *const CUgraphEdgeData,
    numDependencies: usize,
    nodeParams: *mut CUgraphNodeParams,
) -> Outcome {
    // SAFETY: the program passes lists of `numDependencies` entries and a description of the form that its
    // type says.
    unsafe {
        let parameters = nodeParams.as_mut().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let before = edges(dependencies, dependencyData, numDependencies)?;
        match parameters.type_ {
            Type::CU_GRAPH_NODE_TYPE_GRAPH => {
                let params = parameters.__bindgen_anon_1.graph;
                add(phGraphNode, hGraph, &before, |graphs| child(graphs, params.graph, params.ownership))?;
                if params.ownership == CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE
                    && let Work::Child(clone) = nodes::work_of(phGraphNode.read())?
                {
                    parameters.__bindgen_anon_1.graph.graph = clone.as_raw();
                }
                Ok(())
            }
            Type::CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                let params = &mut parameters.__bindgen_anon_1.conditional;
                add(phGraphNode, hGraph, &before, |graphs| conditional(graphs, hGraph, params))
            }
            Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                let alloc = &mut parameters.__bindgen_anon_1.alloc;
                let mut params = CUDA_MEM_ALLOC_NODE_PARAMS {
                    poolProps: alloc.poolProps,
                    accessDescs: alloc.accessDescs,
                    accessDescCount: alloc.accessDescCount,
                    bytesize: alloc.bytesize,
                    dptr: 0,
                };
                let work = described::allocation(hGraph, &before, &mut params);
                alloc.dptr = params.dptr;
                add(phGraphNode, hGraph, &before, |_| work)
            }
            _ => {
                let work = plain_work(parameters);
                add(phGraphNode, hGraph, &before, |_| work)
            }
        }
    }
}

pub unsafe fn cuGraphNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUgraphNodeParams) -> Outcome {
    // SAFETY: the program passes null or a description of the form that its type says.
    unsafe {
        let mut parameters = changeable(nodeParams)?;
        nodes::set(hNode, nodes::keep_attributes(hNode, plain_work(&mut parameters)?)?)
    }
}

pub unsafe fn cuGraphExecNodeSetParams(
    hGraphExec: CUgraphExec,
    hNode: CUgraphNode,
    nodeParams: *const CUgraphNodeParams,
) -> Outcome {
    // SAFETY: the program passes null or a description of the form that its type says.
    unsafe {
        let mut parameters = changeable(nodeParams)?;
        let (executable, node) = (executable::resolve(hGraphExec)?, graph::resolve_node(hNode)?);
        if parameters.type_ == Type::CU_GRAPH_NODE_TYPE_GRAPH {
            return executable.set_child(node, graph::resolve(parameters.__bindgen_anon_1.graph.graph)?);
        }
        executable.set(node, nodes::keep_attributes(hNode, plain_work(&mut parameters)?)?)
    }
}

/// A description of what a node is to do from now on; memory nodes are what they are.
///
/// # Safety
/// `parameters` must be null or a description.
unsafe fn changeable(parameters: *const CUgraphNodeParams) -> Result<CUgraphNodeParams, CUresult> {
    // SAFETY: the caller passes null or a description.
    let parameters = unsafe { parameters.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    match parameters.type_ {
        Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC | Type::CU_GRAPH_NODE_TYPE_MEM_FREE => {
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
        _ => Ok(*parameters),
    }
}
