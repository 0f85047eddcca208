//! Graphs, their nodes and their edges.

use crate::abi::entry::Outcome;
use crate::arguments::{list, store, write_optional, write_out};
use crate::log::error;
use crate::model::graph::work::Work;
use crate::model::graph::{self, Edge, GraphStore, graphs};
use crate::model::handles::RawHandle as _;
use crate::submit::capture;
use crate::submit::graph::dot;
use causeway_api::handle::{GraphNode, Handle};
use causeway_api::sys::{CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType, CUresult};
use core::ffi::c_char;

/// The edges that lead to the nodes that the program passes.
///
/// # Safety
/// `nodes` and, unless it is null, `data` must have `count` entries.
pub(in crate::abi::calls) unsafe fn edges(
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<Vec<Edge>, CUresult> {
    // SAFETY: the program has `count` nodes there, by what the caller guarantees.
    let nodes = unsafe { list(nodes, count) }?;
    // SAFETY: not null, so that the program has data of `count` edges there.
    let data = if data.is_null() { &[] } else { unsafe { list(data, count) }? };
    let edge = |(index, node): (usize, &CUgraphNode)| {
        let data = data.get(index).copied().unwrap_or_default();
        let node = graph::resolve_node(*node).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(Edge { node, data })
    };
    nodes.iter().enumerate().map(edge).collect()
}

/// Adds a node to the program's graph and gives its handle.
///
/// # Safety
/// `out` must be null or have room for a handle.
pub(super) unsafe fn add(
    out: *mut CUgraphNode,
    hGraph: CUgraph,
    before: &[Edge],
    work: impl FnOnce(&mut GraphStore) -> Result<Work, CUresult>,
) -> Outcome {
    if out.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let graph = graph::resolve(hGraph)?;
    let mut graphs = graphs();
    let work = work(&mut graphs)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(out, graphs.add(graph, before, work)?.as_raw()) }
}

/// Gives a list as CUDA does: its length when there is no room for it, else as many entries as fit, null for
/// those that there are not.
///
/// # Safety
/// `out` must be null or have room for as many values as `count` says.
unsafe fn write_nodes(
    out: *mut CUgraphNode,
    count: *mut usize,
    nodes: impl ExactSizeIterator<Item = Handle<GraphNode>>,
) -> Outcome {
    if count.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let found = nodes.len();
    // SAFETY: `count` is not null, and the caller has room for as many values at `out` as it says, or passes
    // null.
    unsafe {
        if !out.is_null() {
            let capacity = count.read();
            let nodes = nodes.map(|node| node.as_raw()).chain(core::iter::repeat(core::ptr::null_mut()));
            nodes.take(capacity).enumerate().for_each(|(index, node)| out.add(index).write(node));
        }
        let capacity = if out.is_null() { found } else { count.read().min(found) };
        count.write(capacity);
    }
    Ok(())
}

/// Gives edges, as [`write_nodes`] gives nodes. Edges that say more than order are not for callers that cannot
/// see it.
///
/// # Safety
/// The lists that are not null must have room for as many values as `count` says.
unsafe fn write_edges(
    lists: [*mut CUgraphNode; 2],
    data: *mut CUgraphEdgeData,
    count: *mut usize,
    edges: &[(Handle<GraphNode>, Handle<GraphNode>, CUgraphEdgeData)],
    sees_data: bool,
) -> Outcome {
    let is_plain = |data: &CUgraphEdgeData| *data == CUgraphEdgeData::default();
    let needs_any = lists.iter().any(|list| !list.is_null());
    if needs_any && (!sees_data || data.is_null()) && !edges.iter().all(|(_, _, data)| is_plain(data)) {
        return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
    }
    if count.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: `count` is not null, and the caller's lists have room for as many values as it says, or are
    // null.
    unsafe {
        let capacity = count.read();
        if !data.is_null() {
            let values: Vec<_> = edges.iter().map(|(_, _, data)| *data).collect();
            store(data, capacity, &values)?;
        }
        let mut length = capacity;
        write_nodes(lists[0], &mut length, edges.iter().map(|(from, ..)| *from))?;
        if !lists[1].is_null() {
            length = capacity;
            write_nodes(lists[1], &mut length, edges.iter().map(|(_, to, _)| *to))?;
        }
        count.write(length);
    }
    Ok(())
}

pub unsafe fn cuGraphCreate(phGraph: *mut CUgraph, flags: u32) -> Outcome {
    if phGraph.is_null() || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    crate::remote::session::with(0)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phGraph, graphs().create(None).as_raw()) }
}

pub unsafe fn cuGraphDestroy(hGraph: CUgraph) -> Outcome {
    let graph = graph::resolve(hGraph)?;
    capture::refuse_to_remove(graph)?;
    let removed = graphs().remove_graph(graph)?;
    removed.finish()
}

pub unsafe fn cuGraphClone(phGraphClone: *mut CUgraph, originalGraph: CUgraph) -> Outcome {
    if phGraphClone.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let clone = graphs().clone_graph(graph::resolve(originalGraph)?)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phGraphClone, clone.as_raw()) }
}

pub unsafe fn cuGraphNodeFindInClone(
    phNode: *mut CUgraphNode,
    hOriginalNode: CUgraphNode,
    hClonedGraph: CUgraph,
) -> Outcome {
    let (original, clone) = (graph::resolve_node(hOriginalNode)?, graph::resolve(hClonedGraph)?);
    // SAFETY: room for the result, or null.
    unsafe { write_out(phNode, graphs().find_in_clone(original, clone)?.as_raw()) }
}

pub unsafe fn cuGraphNodeGetType(hNode: CUgraphNode, kind: *mut CUgraphNodeType) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(kind, graphs().node(graph::resolve_node(hNode)?)?.work.kind()) }
}

pub unsafe fn cuGraphGetNodes(hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize) -> Outcome {
    let graphs = graphs();
    let found = &graphs.graph(graph::resolve(hGraph)?)?.nodes;
    // SAFETY: the program's lists are null or have room for as many values as the number says.
    unsafe { write_nodes(nodes, numNodes, found.iter().copied()) }
}

pub unsafe fn cuGraphGetRootNodes(
    hGraph: CUgraph,
    rootNodes: *mut CUgraphNode,
    numRootNodes: *mut usize,
) -> Outcome {
    let graphs = graphs();
    let is_root = |node: &&Handle<GraphNode>| graphs.node(**node).is_ok_and(|state| state.before.is_empty());
    let nodes = &graphs.graph(graph::resolve(hGraph)?)?.nodes;
    let roots: Vec<_> = nodes.iter().filter(is_root).copied().collect();
    // SAFETY: the program's lists are null or have room for as many values as the number says.
    unsafe { write_nodes(rootNodes, numRootNodes, roots.into_iter()) }
}

/// # Safety
/// The lists that are not null must have room for as many values as `count` says.
unsafe fn edges_of_graph(
    hGraph: CUgraph,
    lists: [*mut CUgraphNode; 2],
    data: *mut CUgraphEdgeData,
    count: *mut usize,
    sees_data: bool,
) -> Outcome {
    if lists[0].is_null() != lists[1].is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let graphs = graphs();
    let mut found = Vec::new();
    for from in &graphs.graph(graph::resolve(hGraph)?)?.nodes {
        found.extend(graphs.node(*from)?.after.iter().map(|edge| (*from, edge.node, edge.data)));
    }
    // SAFETY: the caller's lists are null or have room for as many values as `count` says.
    unsafe { write_edges(lists, data, count, &found, sees_data) }
}

pub unsafe fn cuGraphGetEdges(
    hGraph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    numEdges: *mut usize,
) -> Outcome {
    // SAFETY: the program's lists are null or have room for as many values as the number says.
    unsafe { edges_of_graph(hGraph, [from, to], core::ptr::null_mut(), numEdges, false) }
}

pub unsafe fn cuGraphGetEdges_v2(
    hGraph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    edgeData: *mut CUgraphEdgeData,
    numEdges: *mut usize,
) -> Outcome {
    // SAFETY: the program's lists are null or have room for as many values as the number says.
    unsafe { edges_of_graph(hGraph, [from, to], edgeData, numEdges, true) }
}

/// # Safety
/// The lists that are not null must have room for as many values as `count` says.
unsafe fn edges_of_node(
    hNode: CUgraphNode,
    needs_predecessors: bool,
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
    sees_data: bool,
) -> Outcome {
    let graphs = graphs();
    let node = graph::resolve_node(hNode)?;
    let state = graphs.node(node)?;
    let edges = if needs_predecessors { &state.before } else { &state.after };
    let found: Vec<_> = edges.iter().map(|edge| (edge.node, node, edge.data)).collect();
    // SAFETY: the caller's lists are null or have room for as many values as `count` says.
    unsafe { write_edges([nodes, core::ptr::null_mut()], data, count, &found, sees_data) }
}

pub unsafe fn cuGraphNodeGetDependencies(
    hNode: CUgraphNode,
    dependencies: *mut CUgraphNode,
    numDependencies: *mut usize,
) -> Outcome {
    let data = core::ptr::null_mut();
    // SAFETY: the program's lists are null or have room for as many values as the number says.
    unsafe { edges_of_node(hNode, true, dependencies, data, numDependencies, false) }
}

pub unsafe fn cuGraphNodeGetDependencies_v2(
    hNode: CUgraphNode,
    dependencies: *mut CUgraphNode,
    edgeData: *mut CUgraphEdgeData,
    numDependencies: *mut usize,
) -> Outcome {
    // SAFETY: the program's lists are null or have room for as many values as the number says.
    unsafe { edges_of_node(hNode, true, dependencies, edgeData, numDependencies, true) }
}

pub unsafe fn cuGraphNodeGetDependentNodes(
    hNode: CUgraphNode,
    dependentNodes: *mut CUgraphNode,
    numDependentNodes: *mut usize,
) -> Outcome {
    let data = core::ptr::null_mut();
    // SAFETY: the program's lists are null or have room for as many values as the number says.
    unsafe { edges_of_node(hNode, false, dependentNodes, data, numDependentNodes, false) }
}

pub unsafe fn cuGraphNodeGetDependentNodes_v2(
    hNode: CUgraphNode,
    dependentNodes: *mut CUgraphNode,
    edgeData: *mut CUgraphEdgeData,
    numDependentNodes: *mut usize,
) -> Outcome {
    // SAFETY: the program's lists are null or have room for as many values as the number says.
    unsafe { edges_of_node(hNode, false, dependentNodes, edgeData, numDependentNodes, true) }
}

pub unsafe fn cuGraphAddDependencies(
    hGraph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    numDependencies: usize,
) -> Outcome {
    // SAFETY: the program's lists have `numDependencies` entries or are null.
    unsafe { cuGraphAddDependencies_v2(hGraph, from, to, core::ptr::null(), numDependencies) }
}

pub unsafe fn cuGraphAddDependencies_v2(
    hGraph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edgeData: *const CUgraphEdgeData,
    numDependencies: usize,
) -> Outcome {
    let graph = graph::resolve(hGraph)?;
    // SAFETY: the program's lists have `numDependencies` entries or are null.
    let (from, to) = unsafe { (edges(from, edgeData, numDependencies)?, list(to, numDependencies)?) };
    let mut graphs = graphs();
    for (from, to) in from.iter().zip(to) {
        graphs.connect(graph, from.node, graph::resolve_node(*to)?, from.data)?;
    }
    Ok(())
}

pub unsafe fn cuGraphRemoveDependencies(
    hGraph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    numDependencies: usize,
) -> Outcome {
    // SAFETY: the program's lists have `numDependencies` entries or are null.
    unsafe { cuGraphRemoveDependencies_v2(hGraph, from, to, core::ptr::null(), numDependencies) }
}

pub unsafe fn cuGraphRemoveDependencies_v2(
    hGraph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    edgeData: *const CUgraphEdgeData,
    numDependencies: usize,
) -> Outcome {
    let graph = graph::resolve(hGraph)?;
    // SAFETY: the program's lists have `numDependencies` entries or are null.
    let (from, to) = unsafe { (edges(from, edgeData, numDependencies)?, list(to, numDependencies)?) };
    let mut graphs = graphs();
    if graphs
        .graph(graph)?
        .nodes
        .iter()
        .any(|node| graphs.node(*node).is_ok_and(|state| state.work.binds_memory()))
    {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    for (from, to) in from.iter().zip(to) {
        let data = (!edgeData.is_null()).then_some(from.data);
        graphs.disconnect(from.node, graph::resolve_node(*to)?, data)?;
    }
    Ok(())
}

pub unsafe fn cuGraphDestroyNode(hNode: CUgraphNode) -> Outcome {
    let node = graph::resolve_node(hNode)?;
    let graph = graphs().node(node)?.graph;
    capture::refuse_to_remove(graph)?;
    let removed = graphs().remove_node(node)?;
    removed.finish()
}

pub unsafe fn cuGraphDebugDotPrint(hGraph: CUgraph, path: *const c_char, flags: u32) -> Outcome {
    // SAFETY: the program passes null or NUL-terminated text, which stays until the call returns.
    let path = unsafe { crate::arguments::text(path) }?;
    let text = dot::print(&graphs(), graph::resolve(hGraph)?, flags)?;
    std::fs::write(path, text).map_err(|cause| {
        error!("cannot write the graph to {path}: {cause}");
        CUresult::CUDA_ERROR_OPERATING_SYSTEM
    })
}

/// The graph that a child node carries out.
pub unsafe fn cuGraphChildGraphNodeGetGraph(hNode: CUgraphNode, phGraph: *mut CUgraph) -> Outcome {
    let graphs = graphs();
    match &graphs.node(graph::resolve_node(hNode)?)?.work {
        // SAFETY: room for the result, or null.
        Work::Child(graph) => unsafe { write_out(phGraph, graph.as_raw()) },
        _ => {
            // SAFETY: room for the result, or null.
            unsafe { write_optional(phGraph, core::ptr::null_mut()) };
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    }
}
