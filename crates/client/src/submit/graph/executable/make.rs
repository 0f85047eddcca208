//! Instantiation of an executable graph: its parts are sent as planned.

use super::plan::{self, Facts, Refusal, Share};
use super::state::{Executable, Node, Part, State, Step, destroy_parts};
use crate::locks::Mutex;
use crate::log::refuse_use;
use crate::model::context;
use crate::model::graph::order::{self, Order, Ordered, Phase};
use crate::model::graph::reservation::{self, Hold};
use crate::model::graph::work::Work;
use crate::model::graph::{GraphStore, graphs};
use crate::model::handles;
use crate::submit::capture;
use crate::submit::graph::build::{self, Address};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Graph, GraphExec, Handle};
use causeway_api::sys::{CUgraphInstantiate_flags, CUgraphInstantiateResult, CUresult};
use std::collections::HashMap;
use std::sync::Arc;

/// Makes an executable graph.
pub fn instantiate(
    graph: Handle<Graph>,
    flags: u64,
) -> Result<Handle<GraphExec>, (CUresult, CUgraphInstantiateResult)> {
    type Result = CUgraphInstantiateResult;
    try_instantiate(graph, flags).map_err(|status| {
        let result = match status {
            CUresult::CUDA_ERROR_NOT_SUPPORTED => Result::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED,
            CUresult::CUDA_ERROR_INVALID_VALUE => Result::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
            _ => Result::CUDA_GRAPH_INSTANTIATE_ERROR,
        };
        (status, result)
    })
}

fn try_instantiate(graph: Handle<Graph>, flags: u64) -> Result<Handle<GraphExec>, CUresult> {
    type Flags = CUgraphInstantiate_flags;
    let known = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0
        | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0
        | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
    if flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0) != 0 {
        return Err(refuse_use!("graphs that kernels launch"));
    }
    if flags & !u64::from(known) != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let owner = context::current()?;
    capture::refuse_unsafe()?;
    let mut graphs = graphs();
    let order = Order::of(&graphs, graph)?;
    let mut held = graphs.graph(graph)?.held.clone();
    for child in order.nodes.iter().filter_map(|node| match node.work {
        Work::Child(child) => Some(child),
        _ => None,
    }) {
        held.join(&graphs.graph(child)?.held);
    }
    let is_sole = order.nodes.iter().any(|node| node.work.binds_memory());
    if is_sole && !handles::select::<Executable>(|executable| executable.sole_of == Some(graph)).is_empty() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let sole_of = is_sole.then_some(graph);
    let facts = facts(&order, graph)?;
    let shares = plan::shares(&facts, graphs.graph(graph)?.on_server.as_ref()).map_err(Refusal::refuse)?;
    reservation::trim();
    // Before anything is sent: the driver looks at addresses of copies and fills.
    let memory = hold(&graphs, graph)?;
    let mut parts = Vec::new();
    let built = make_parts(&mut graphs, graph, &order, &shares, flags, &mut parts);
    drop(graphs);
    let (steps, addresses) = match built {
        Ok(built) => built,
        Err(status) => {
            // What was made of it is of no use; the reason why it was not made is what counts.
            let _ = destroy_parts(owner, &parts);
            reservation::retire(memory, None);
            return Err(status);
        }
    };
    let handle = handles::create();
    let nodes: Vec<_> = order
        .nodes
        .into_iter()
        .zip(addresses)
        .map(|(node, on_server)| {
            let (node, work, before) = (node.node, node.work, node.before);
            Node { node, work, before, on_server, is_enabled: true }
        })
        .collect();
    let indices = nodes.iter().enumerate().map(|(index, node)| (node.node, index)).collect();
    let concerned = (0..nodes.len()).filter(|index| nodes[*index].work.concerns_launch()).collect();
    let state = State { nodes, concerned, steps, held, memory, launched: None, last: None };
    let state = Mutex::new(state);
    let children = order.children;
    let executable = Executable { handle, owner, flags, sole_of, children, indices, parts, state };
    handles::insert(handle, Arc::new(executable));
    Ok(handle)
}

/// Sees to it that there is memory for the allocation nodes of a graph.
fn hold(graphs: &GraphStore, graph: Handle<Graph>) -> Result<Vec<Hold>, CUresult> {
    let mut holds = Vec::new();
    for allocation in graphs.allocations(graph)? {
        match allocation.hold() {
            Ok(hold) => holds.push(hold),
            Err(status) => {
                reservation::retire(holds, None);
                return Err(status);
            }
        }
    }
    Ok(holds)
}

/// What counts of the nodes when the graph is divided.
fn facts(order: &Order, graph: Handle<Graph>) -> Result<Vec<Facts>, CUresult> {
    let nodes = &order.nodes;
    let in_client = nodes.iter().map(|node| build::is_clients(&node.work)).collect::<Result<Vec<_>, _>>()?;
    let before: Vec<Vec<usize>> =
        nodes.iter().map(|node| node.before.iter().map(|(index, _)| *index).collect()).collect();
    let fact = |(node, phase): (&Ordered, Phase)| Facts {
        phase,
        is_idle: build::is_idle(&node.work),
        is_conditional_in_child: matches!(node.work, Work::Conditional(_)) && node.graph != graph,
    };
    Ok(nodes.iter().zip(order::phases(&in_client, &before)).map(fact).collect())
}

/// Makes the parts of an executable graph; gives the steps of a launch, and where each node is on the server.
fn make_parts(
    graphs: &mut GraphStore,
    graph: Handle<Graph>,
    order: &Order,
    shares: &[Share],
    flags: u64,
    parts: &mut Vec<Part>,
) -> Result<(Vec<Step>, Vec<Option<Address>>), CUresult> {
    let flags = flags & u64::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0);
    let mut steps = Vec::with_capacity(shares.len());
    let mut addresses = vec![None; order.nodes.len()];
    for share in shares {
        match share {
            Share::Client(index) => steps.push(Step::Client(*index)),
            Share::Segment(indices) => {
                steps.push(Step::Launch(parts.len()));
                let nodes = indices.iter().map(|index| (*index, &order.nodes[*index]));
                for (index, address) in make_part(graphs, graph, nodes, flags, parts)? {
                    addresses[index] = Some(address);
                }
            }
        }
    }
    Ok((steps, addresses))
}

/// Sends a segment of a graph and has it made executable. Of what there is when that fails `parts` knows.
fn make_part<'a>(
    graphs: &mut GraphStore,
    graph: Handle<Graph>,
    nodes: impl Iterator<Item = (usize, &'a Ordered)>,
    flags: u64,
    parts: &mut Vec<Part>,
) -> Result<impl Iterator<Item = (usize, Address)>, CUresult> {
    let existing = graphs.graph(graph)?.on_server;
    let mut on_server = existing.map_or_else(build::create, Ok)?;
    let part = parts.push_mut(Part { exec: Handle::NULL, graph: existing.is_none().then_some(on_server) });
    let mut numbers = HashMap::new();
    build::send(graphs, &mut on_server, nodes, &mut numbers)?;
    if existing.is_some() {
        graphs.graph_mut(graph)?.on_server = Some(on_server);
    }
    let exec = handles::create();
    let request = calls::graph_instantiate { exec, graph: on_server.graph, nodes: on_server.nodes, flags };
    send::call_in(on_server.context, &request).inspect_err(|_| {
        handles::drop_handle(exec);
    })?;
    part.exec = exec;
    let graph = on_server.graph;
    Ok(numbers.into_iter().map(move |(index, number)| (index, Address { exec, graph, number })))
}
