//! Executable graphs: instantiation, launch and destruction.
//!
//! [`plan`] divides an executable graph into server segments and client steps; [`update`] changes it.
//!
//! A launch is one command for each segment of the graph, and between them what the client does itself:
//! copies from and to the program's memory, which is read or written at every launch, and host functions. All
//! of it goes into the stream of the launch, so that whoever waits for that stream or for an event after the
//! launch finds the bytes.

use crate::arguments;
use crate::locks::Mutex;
use crate::log::refuse_use;
use crate::model::address::heap;
use crate::model::context;
use crate::model::graph::order::{self, NodeOrder, Ordered, Phase};
use crate::model::graph::reservation::{self, Hold};
use crate::model::graph::work::Work;
use crate::model::graph::{GraphStore, graphs, memory};
use crate::model::handles::{self, RawHandle as _};
use crate::model::stream::StreamState;
use crate::submit::callbacks::Task;
use crate::submit::copy::{self, Mode};
use crate::submit::event::{self, EventState};
use crate::submit::graph::build::{self, Address};
use crate::submit::{capture, send, task};
use causeway_api::calls;
use causeway_api::handle::{Event, Graph, GraphExec, Handle};
use causeway_api::sys::{
    CUevent_flags, CUgraphExec, CUgraphInstantiate_flags, CUgraphInstantiateResult, CUresult,
};
use std::collections::HashMap;
use std::sync::Arc;

mod state;
mod update;

use state::{Facts, Node, Part, Refusal, Share, State, Step, destroy_parts};

pub use state::Executable;
pub use update::Mismatch;

/// The executable graph that the program passed.
pub fn resolve(raw: CUgraphExec) -> Result<Arc<Executable>, CUresult> {
    handles::get::<Executable>(Handle::from_raw(raw)).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Destroys an executable graph; launches under way go on, and what they need stays until they are over.
pub fn destroy(raw: CUgraphExec) -> Result<(), CUresult> {
    let executable =
        handles::remove::<Executable>(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    handles::drop_handle(executable.handle);
    reservation::trim();
    if !handles::is_valid(executable.owner) {
        return Ok(());
    }
    let outcome = destroy_parts(executable.owner, &executable.parts);
    let state = &mut *executable.state.lock();
    reservation::retire(core::mem::take(&mut state.memory), state.launched.take().as_ref());
    if let Some((stream, event)) = state.last.take() {
        let held = core::mem::take(&mut state.held);
        if let (false, Ok(stream)) = (held.is_empty(), context::stream(stream)) {
            // The destructors of user objects come after the launches.
            let task = Task::Then { run: Box::new(move || drop(held)), after: stream.pending_writes() };
            let _ = task::post(&stream, task);
        }
        event::destroy(event.raw())?;
    }
    outcome
}

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
    let order = NodeOrder::of(&graphs, graph)?;
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
    let shares = state::shares(&facts, graphs.graph(graph)?.on_server.as_ref()).map_err(Refusal::refuse)?;
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
fn facts(order: &NodeOrder, graph: Handle<Graph>) -> Result<Vec<Facts>, CUresult> {
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
    order: &NodeOrder,
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

impl Executable {
    /// Puts everything that it consists of into a stream.
    pub fn launch(&self, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        // As the driver has it, no captured stream takes a graph.
        capture::refuse_wait(stream)?;
        let mut state = self.state.lock();
        let state = &mut *state;
        let frees_itself = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
        for index in &state.concerned {
            match &state.nodes[*index].work {
                Work::Allocate(allocation) => {
                    allocation.allocate(self.flags & u64::from(frees_itself) != 0)?;
                }
                // In their order, as nodes may have the same memory one after the other.
                Work::Free(address) => {
                    // What somebody else has freed before is free.
                    let _ = memory::free(*address);
                }
                Work::Wait(event) => event_of(*event)?.delay(stream, 0)?,
                _ => {}
            }
        }
        let is_whole = matches!(state.steps[..], [] | [Step::Launch(_)]) && state.held.is_empty();
        if !is_whole
            && let Some((last, event)) = &state.last
            && *last != stream.handle
        {
            event.delay(stream, 0)?;
        }
        for step in &state.steps {
            match *step {
                Step::Launch(part) => {
                    let request = calls::graph_launch { exec: self.parts[part].exec, stream: stream.handle };
                    send::post_in(stream.context, &request)?;
                }
                Step::Client(index) => state.nodes[index].carry_out(stream)?,
            }
        }
        for index in &state.concerned {
            match &state.nodes[*index].work {
                Work::Record(event) => event_of(*event)?.note_record(stream),
                Work::Values(_) => stream.add_hazard(),
                _ => {}
            }
        }
        if !is_whole {
            self.note_launch(state, stream)?;
        }
        if !state.memory.is_empty() {
            state.launched = Some(heap::reuse_point(stream));
        }
        Ok(())
    }

    /// Remembers the end of a launch.
    fn note_launch(&self, state: &mut State, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        let event = match state.last.take() {
            Some((_, event)) => event,
            None => event::resolve(event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING.0)?.as_raw())?,
        };
        event.record(stream, 0)?;
        state.last = Some((stream.handle, event));
        Ok(())
    }

    /// Brings what it consists of to the server's GPU before the first launch.
    pub fn upload(&self, stream: &StreamState) -> Result<(), CUresult> {
        capture::refuse_wait(stream)?;
        self.parts.iter().try_for_each(|part| {
            send::post_in(stream.context, &calls::graph_upload { exec: part.exec, stream: stream.handle })
        })
    }
}

fn event_of(event: Handle<Event>) -> Result<Arc<EventState>, CUresult> {
    event::resolve(event.as_raw())
}

impl Node {
    /// Does the client's part of a launch.
    fn carry_out(&self, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        if !self.is_enabled {
            return Ok(());
        }
        match &self.work {
            Work::Copy(copying) => match copy::endpoints(&copying.parameters)? {
                // SAFETY: the program keeps the memory of the node valid for as long as it launches the
                // graph.
                Some((destination, source)) => unsafe {
                    copy::copy(destination, source, stream, Mode::InGraph)
                },
                None => Ok(()),
            },
            Work::Host(calling) => {
                let data = arguments::Address(calling.data);
                let task =
                    Task::Function { function: calling.function, data, after: stream.pending_writes() };
                task::post(stream, task)
            }
            _ => Ok(()),
        }
    }
}
