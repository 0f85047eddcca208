//! How an executable graph is made: which parts of it the server gets.

use super::{EXECUTABLES, Executable, Node, Part, State, Step, destroy_parts};
use crate::context;
use crate::entry::refuse_use;
use crate::graph::build::{self, Address};
use crate::graph::order::{self, Order, Turn};
use crate::graph::work::Work;
use crate::graph::{World, world};
use crate::handles;
use crate::session;
use causeway_api::calls;
use causeway_api::handle::{Graph, GraphExec, Handle};
use causeway_api::sys::{CUgraphInstantiate_flags, CUgraphInstantiateResult, CUresult};
use parking_lot::Mutex;
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
    let home = context::current()?;
    let mut world = world();
    let order = Order::of(&world, graph)?;
    let mut held = world.graph(graph)?.held.clone();
    for child in order.nodes.iter().filter_map(|node| match node.work {
        Work::Child(child) => Some(child),
        _ => None,
    }) {
        held.join(&world.graph(child)?.held);
    }
    let in_client =
        order.nodes.iter().map(|node| build::is_clients(&node.work)).collect::<Result<Vec<_>, _>>()?;
    let before: Vec<Vec<usize>> =
        order.nodes.iter().map(|node| node.before.iter().map(|(place, _)| *place).collect()).collect();
    let turns = order::turns(&in_client, &before);
    let mut parts = Vec::new();
    let built = build_parts(&mut world, graph, &order, &turns, flags, &mut parts);
    drop(world);
    let (steps, addresses) = match built {
        Ok(built) => built,
        Err(status) => {
            // What was made of it is of no use; the reason why it was not made is what counts.
            let _ = destroy_parts(home, &parts);
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
    let places = nodes.iter().enumerate().map(|(place, node)| (node.node, place)).collect();
    let concerned = (0..nodes.len()).filter(|place| nodes[*place].work.concerns_launch()).collect();
    let state = Mutex::new(State { nodes, concerned, steps, held, last: None });
    let executable = Executable { handle, home, flags, children: order.children, places, parts, state };
    EXECUTABLES.insert(handle, Arc::new(executable));
    Ok(handle)
}

/// Sends the segments of a graph; gives the steps of a launch, and where each node is on the server.
fn build_parts(
    world: &mut World,
    graph: Handle<Graph>,
    order: &Order,
    turns: &[Turn],
    flags: u64,
    parts: &mut Vec<Part>,
) -> Result<(Vec<Step>, Vec<Option<Address>>), CUresult> {
    let flags = flags & u64::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0);
    let mut steps = Vec::new();
    let mut addresses = vec![None; turns.len()];
    let last = turns.iter().map(|turn| match turn {
        Turn::Client(segment) | Turn::Segment(segment) => *segment,
    });
    for segment in 0..=last.max().unwrap_or(0) {
        let of = |wanted: Turn| (0..turns.len()).filter(move |place| turns[*place] == wanted);
        steps.extend(of(Turn::Client(segment)).map(Step::Client));
        if of(Turn::Segment(segment)).all(|place| build::is_idle(&order.nodes[place].work)) {
            continue;
        }
        let existing = world.graph(graph)?.on_server;
        let mut on_server = match existing {
            Some(on_server) if on_server.is_complete => {
                return Err(refuse_use!(
                    "conditional nodes in a graph that is instantiated twice, or that copies and host functions divide"
                ));
            }
            Some(on_server) => on_server,
            None => build::create()?,
        };
        if existing.is_none() {
            parts.push(Part { exec: Handle::NULL, graph: Some(on_server) });
        }
        let mut numbers = HashMap::new();
        let nodes = of(Turn::Segment(segment)).map(|place| (place, &order.nodes[place]));
        if nodes.clone().any(|(_, node)| matches!(node.work, Work::Conditional(_)) && node.graph != graph) {
            return Err(refuse_use!("conditional nodes in child graphs"));
        }
        build::send(world, &mut on_server, nodes, &mut numbers)?;
        if existing.is_some() {
            world.graph_mut(graph)?.on_server = Some(on_server);
        }
        let exec = handles::create();
        let request =
            calls::graph_instantiate { exec, graph: on_server.graph, nodes: on_server.nodes, flags };
        session::call_in(on_server.context, &request).inspect_err(|_| {
            handles::drop_handle(exec);
        })?;
        match (existing, parts.last_mut()) {
            (None, Some(part)) => part.exec = exec,
            _ => parts.push(Part { exec, graph: None }),
        }
        for (place, number) in numbers {
            addresses[place] = Some(Address { exec, graph: on_server.graph, number });
        }
        steps.push(Step::Launch(parts.len() - 1));
    }
    Ok((steps, addresses))
}
