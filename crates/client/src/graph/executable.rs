//! Executable graphs: made, changed, launched.
//!
//! A launch is one command for each segment of the graph, and between them what the client does itself: copies from
//! and to the program's memory, which is read or written at every launch, and host functions. All of it goes into the
//! stream of the launch, so that whoever waits for that stream or for an event after the launch finds the bytes.

use super::build::{self, Address};
use super::changes::{difference, is_same};
use super::objects::Held;
use super::order::{self, Order, Turn};
use super::work::Work;
use super::{Edge, OnServer, World, world};
use crate::calls as entry_points;
use crate::capture;
use crate::copy::{self, Mode};
use crate::entry::refuse_use;
use crate::event::{self, EventState};
use crate::handles::{self, Registry};
use crate::session;
use crate::session::callbacks::{self, Task};
use crate::stream::StreamState;
use causeway_api::calls;
use causeway_api::handle::{Context, Event, Graph, GraphExec, GraphNode, Handle, Stream};
use causeway_api::sys::{
    CUevent_flags, CUgraphEdgeData, CUgraphExec, CUgraphExecUpdateResult, CUgraphInstantiate_flags,
    CUgraphInstantiateResult, CUresult,
};
use core::ops::Range;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// An executable graph.
pub struct Executable {
    /// Its handle.
    handle: Handle<GraphExec>,
    /// The context that was current when it was made.
    home: Handle<Context>,
    /// The flags that it was made with.
    pub flags: u64,
    children: HashMap<Handle<GraphNode>, Range<usize>>,
    places: HashMap<Handle<GraphNode>, usize>,
    parts: Vec<Part>,
    state: Mutex<State>,
}

struct State {
    nodes: Vec<Node>,
    /// The places of nodes for which something has to be done at each launch besides the steps.
    concerned: Vec<usize>,
    steps: Vec<Step>,
    /// User objects that it keeps.
    held: Held,
    /// Where it was launched last, for a graph of several steps: one launch comes after the other.
    last: Option<(Handle<Stream>, Arc<EventState>)>,
}

struct Node {
    node: Handle<GraphNode>,
    work: Work,
    before: Vec<(usize, CUgraphEdgeData)>,
    /// Where it is on the server, if it is there.
    on_server: Option<Address>,
    is_enabled: bool,
}

/// What a launch does next.
#[derive(Clone, Copy)]
enum Step {
    /// Launches a part.
    Launch(usize),
    /// Carries out the node at this place.
    Client(usize),
}

/// A segment of the graph, on the server.
struct Part {
    exec: Handle<GraphExec>,
    /// The graph that it was made from, if nobody else needs that.
    graph: Option<OnServer>,
}

static EXECUTABLES: Registry<GraphExec, Executable> = Registry::new();

/// The executable graph that the program passed.
pub fn given(raw: CUgraphExec) -> Result<Arc<Executable>, CUresult> {
    EXECUTABLES.get(Handle::from_raw(raw))
}

/// Why an executable graph was not changed.
#[derive(Clone, Copy, Debug)]
pub struct Mismatch {
    /// What CUDA calls the reason.
    pub result: CUgraphExecUpdateResult,
    /// The node of the new graph where it was found.
    pub node: Option<Handle<GraphNode>>,
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
    let home = crate::context::current()?;
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

fn destroy_parts(home: Handle<Context>, parts: &[Part]) -> Result<(), CUresult> {
    let mut outcome = Ok(());
    for part in parts {
        if !part.exec.is_null() {
            handles::drop_handle(part.exec);
            outcome = outcome.and(session::post_in(home, &calls::graph_exec_destroy { exec: part.exec }));
        }
        outcome = outcome.and(part.graph.map_or(Ok(()), build::destroy));
    }
    outcome
}

/// Destroys an executable graph; launches under way go on, and what they need stays until they are over.
pub fn destroy(raw: CUgraphExec) -> Result<(), CUresult> {
    let executable = EXECUTABLES.remove(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(executable.handle);
    if !handles::is_valid(executable.home) {
        return Ok(());
    }
    let outcome = destroy_parts(executable.home, &executable.parts);
    let state = &mut *executable.state.lock();
    if let Some((stream, event)) = state.last.take() {
        let held = core::mem::take(&mut state.held);
        if let (false, Ok(stream)) = (held.is_empty(), crate::stream::state(stream)) {
            // The destructors of user objects come after the launches.
            let task = Task::Then { run: Box::new(move || drop(held)), after: stream.ahead() };
            let _ = entry_points::post_task(&stream, task);
        }
        event::destroy(event.raw())?;
    }
    outcome
}

impl Executable {
    /// Puts everything that it consists of into a stream.
    pub fn launch(&self, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        if capture::of(stream) != 0 {
            return capture::add_with(stream, |world| self.as_child(world));
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let frees_itself = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
        for place in &state.concerned {
            match &state.nodes[*place].work {
                Work::Allocate(allocation) => {
                    allocation.allocate(self.flags & u64::from(frees_itself) != 0)?;
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
                    session::post_in(stream.context, &request)?;
                }
                Step::Client(place) => state.nodes[place].carry_out(stream)?,
            }
        }
        for place in &state.concerned {
            match &state.nodes[*place].work {
                Work::Record(event) => event_of(*event)?.note_record(stream),
                Work::Free(address) => {
                    super::memory::free(*address);
                }
                Work::Values(_) => stream.add_hazard(),
                _ => {}
            }
        }
        if !is_whole {
            self.note_launch(state, stream)?;
        }
        Ok(())
    }

    /// Remembers the end of a launch.
    fn note_launch(&self, state: &mut State, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        let event = match state.last.take() {
            Some((_, event)) => event,
            None => event::given(event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING.0)?.as_raw())?,
        };
        event.record(stream, 0)?;
        state.last = Some((stream.handle, event));
        Ok(())
    }

    /// Brings what it consists of to the server's GPU before the first launch.
    pub fn upload(&self, stream: &StreamState) -> Result<(), CUresult> {
        self.parts.iter().try_for_each(|part| {
            session::post_in(stream.context, &calls::graph_upload { exec: part.exec, stream: stream.handle })
        })
    }

    /// Gives a node other work of the same kind, for the launches to come.
    pub fn set(&self, node: Handle<GraphNode>, work: Work) -> Result<(), CUresult> {
        let place = *self.places.get(&node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.state.lock().nodes[place].change(self.home, work)
    }

    /// Gives the nodes of a child node the work of another graph's nodes.
    pub fn set_child(&self, node: Handle<GraphNode>, graph: Handle<Graph>) -> Result<(), CUresult> {
        let range = self.children.get(&node).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let order = Order::of(&world(), graph)?;
        let first = range.start;
        // What comes before the whole of the child is outside of both.
        let state = &mut *self.state.lock();
        self.take_over(state, range, first, &order).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Gives all nodes the work of another graph's nodes, if that has the same shape.
    pub fn update(&self, graph: Handle<Graph>) -> Result<(), Mismatch> {
        let general = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR;
        let order = Order::of(&world(), graph).map_err(|_| Mismatch { result: general, node: None })?;
        let state = &mut *self.state.lock();
        let range = 0..state.nodes.len();
        self.take_over(state, range, 0, &order)
    }

    /// Compares the nodes in `range` with those of `order`, and takes their work over when nothing else differs.
    fn take_over(
        &self,
        state: &mut State,
        range: Range<usize>,
        first: usize,
        order: &Order,
    ) -> Result<(), Mismatch> {
        type Result = CUgraphExecUpdateResult;
        let mismatch = |result, node: Option<Handle<GraphNode>>| Err(Mismatch { result, node });
        if range.len() != order.nodes.len() {
            return mismatch(Result::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, None);
        }
        for (old, new) in state.nodes[range.clone()].iter().zip(&order.nodes) {
            if old.work.kind() != new.work.kind() {
                return mismatch(Result::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, Some(new.node));
            }
            let inside = old.before.iter().filter(|(place, _)| *place >= first);
            let mut ends: Vec<_> = inside.map(|(place, data)| (place - first, *data)).collect();
            let mut wanted = new.before.clone();
            ends.sort_unstable_by_key(|(place, _)| *place);
            wanted.sort_unstable_by_key(|(place, _)| *place);
            if ends != wanted {
                return mismatch(Result::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, Some(new.node));
            }
            if let Some(result) = difference(&old.work, &new.work) {
                return mismatch(result, Some(new.node));
            }
        }
        for (old, new) in state.nodes[range].iter_mut().zip(&order.nodes) {
            if is_same(&old.work, &new.work) {
                continue;
            }
            let parameters = Result::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
            old.change(self.home, new.work.clone())
                .map_err(|_| Mismatch { result: parameters, node: Some(new.node) })?;
        }
        Ok(())
    }

    /// Has the launches to come carry a node out, or leave it out.
    pub fn enable(&self, node: Handle<GraphNode>, is_enabled: bool) -> Result<(), CUresult> {
        let place = *self.places.get(&node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let node = &mut self.state.lock().nodes[place];
        node.require_switch()?;
        if let Some(Address { exec, graph, number }) = node.on_server {
            let enabled = u32::from(is_enabled);
            let request = calls::graph_exec_enable { exec, graph, node: number, enabled };
            session::post_in(self.home, &request)?;
        }
        node.is_enabled = is_enabled;
        Ok(())
    }

    /// Whether launches carry a node out.
    pub fn is_enabled(&self, node: Handle<GraphNode>) -> Result<bool, CUresult> {
        let place = *self.places.get(&node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let node = &self.state.lock().nodes[place];
        node.require_switch()?;
        Ok(node.is_enabled)
    }

    /// A child node that does what it does, for a launch in a captured stream.
    fn as_child(&self, world: &mut World) -> Result<Work, CUresult> {
        let state = self.state.lock();
        let graph = world.create(None);
        let mut made: Vec<Handle<GraphNode>> = Vec::new();
        for node in &state.nodes {
            let work = match &node.work {
                _ if !node.is_enabled => Work::Empty,
                Work::Child(_) => Work::Empty,
                Work::Conditional(_) | Work::Allocate(_) | Work::Free(_) => {
                    return Err(refuse_use!(
                        "launches of graphs with conditional or memory nodes in a captured stream"
                    ));
                }
                work => work.clone(),
            };
            let before: Vec<_> =
                node.before.iter().map(|(place, data)| Edge { node: made[*place], data: *data }).collect();
            made.push(world.add(graph, &before, work)?);
        }
        Ok(Work::Child(graph))
    }
}

fn event_of(event: Handle<Event>) -> Result<Arc<EventState>, CUresult> {
    event::given(event.as_raw())
}

impl Node {
    /// Does the client's part of a launch.
    fn carry_out(&self, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        if !self.is_enabled {
            return Ok(());
        }
        match &self.work {
            Work::Copy(copying) => match entry_points::places(&copying.parameters)? {
                // SAFETY: the program keeps the memory of the node valid for as long as it launches the graph.
                Some((destination, source)) => unsafe {
                    copy::copy(destination, source, stream, Mode::InGraph)
                },
                None => Ok(()),
            },
            Work::Host(calling) => {
                let data = callbacks::Address(calling.data);
                let task = Task::Function { function: calling.function, data, after: stream.ahead() };
                entry_points::post_task(stream, task)
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, home: Handle<Context>, work: Work) -> Result<(), CUresult> {
        if let Some(result) = difference(&self.work, &work) {
            return Err(match result {
                CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED => {
                    CUresult::CUDA_ERROR_NOT_SUPPORTED
                }
                _ => CUresult::CUDA_ERROR_INVALID_VALUE,
            });
        }
        if let Some(address) = self.on_server {
            build::change(address, home, &work)?;
        }
        self.work = work;
        Ok(())
    }

    /// Refuses what can be neither on nor off.
    fn require_switch(&self) -> Result<(), CUresult> {
        match self.work {
            Work::Kernel(_) | Work::Copy(_) | Work::Fill(_) => Ok(()),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}
