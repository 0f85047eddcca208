//! Graphs on the server: checks of node descriptions (`CUDA_KERNEL_NODE_PARAMS` and others), what an
//! executable graph consists of, and the backing of graph memory.

use std::collections::HashMap;

use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Graph, GraphExec, Handle};
use causeway_api::sys::{
    CUDA_MEMSET_NODE_PARAMS, CUdevice, CUdeviceptr, CUfunction, CUgraphConditionalNodeType, CUgraphEdgeData,
    CUresult,
};
use causeway_api::types::{DeviceLocation, GraphEdge, LaunchAttribute, LaunchShape};

use crate::log::refuse_use;
use crate::model::graph::order::{NodeOrder, Ordered};
use crate::model::graph::reservation::{Addresses, Backing};
use crate::model::graph::work::{Conditional, Copying, Filling, Kernel, Work};
use crate::model::graph::{GraphStore, OnServer, Removed};
use crate::model::handles::{self, RawHandle as _};
use crate::model::region::Endpoint;
use crate::model::{context, device};
use crate::remote::{mirrored, session};
use crate::submit::launch::{self, Arguments};
use crate::submit::module::{self, Owner};
use crate::submit::{allocation, copy, device_memory, send};

/// A node of an executable graph on the server.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The executable graph.
    pub exec: Handle<GraphExec>,
    /// The graph that it was made from.
    pub graph: Handle<Graph>,
    /// The node's number in that graph.
    pub number: u32,
}

impl Removed {
    /// Lets go of what was removed, on the server too.
    pub fn finish(self) -> Result<(), CUresult> {
        self.on_servers().try_for_each(destroy)
    }
}

/// Makes an empty graph on the server.
pub fn create() -> Result<OnServer, CUresult> {
    let context = context::current()?;
    let graph = handles::create();
    send::post_in(context, &calls::graph_create { graph })?;
    Ok(OnServer { graph, context, nodes: 0, is_complete: false })
}

/// Destroys a graph on the server.
pub fn destroy(on_server: OnServer) -> Result<(), CUresult> {
    handles::drop_handle(on_server.graph);
    if !handles::is_valid(on_server.context) {
        return Ok(());
    }
    send::post_in(on_server.context, &calls::graph_destroy { graph: on_server.graph })
}

/// The two ends of a copy that the server's graph makes; nothing when it is for the client to see to: the
/// program's memory takes part or no bytes do, or both ends are in memory that the program and the device
/// reach. As a node such a copy would hold up the thread that launches the graph until the stream gets there,
/// as the driver makes copies within host memory.
pub fn on_device(copying: &Copying) -> Result<Option<(DeviceLocation, DeviceLocation)>, CUresult> {
    Ok(match copy::endpoints(&copying.parameters)? {
        Some((Endpoint::Device(destination), Endpoint::Device(source)))
            if !(is_in_common(&destination) && is_in_common(&source)) =>
        {
            Some((destination, source))
        }
        _ => None,
    })
}

/// Whether a place is in memory that the program reaches, too.
fn is_in_common(index: &DeviceLocation) -> bool {
    matches!(index, DeviceLocation::Memory(region) if mirrored::host_address(region.address).is_some())
}

/// Whether a node is carried out by the client.
pub fn is_clients(work: &Work) -> Result<bool, CUresult> {
    Ok(match work {
        Work::Host(_) => true,
        Work::Copy(copying) => {
            copy::endpoints(&copying.parameters)?.is_some() && on_device(copying)?.is_none()
        }
        _ => false,
    })
}

/// Whether a node has nothing to do for the server.
pub fn is_idle(work: &Work) -> bool {
    matches!(work, Work::Empty | Work::Child(_) | Work::Allocate(_) | Work::Free(_) | Work::Wait(_))
}

/// Sends nodes in order, each with its place. `numbers` gets the number of each place in the server's graph.
/// Edges from places that are not in this graph are left out: those nodes are carried out before all of it.
pub fn send<'a>(
    graphs: &mut GraphStore,
    on_server: &mut OnServer,
    nodes: impl Iterator<Item = (usize, &'a Ordered)>,
    numbers: &mut HashMap<usize, u32>,
) -> Result<(), CUresult> {
    for (index, node) in nodes {
        let end = |(from, data): &(usize, CUgraphEdgeData)| {
            let (from_port, to_port, kind) = (data.from_port, data.to_port, data.type_);
            Some(GraphEdge { from: *numbers.get(from)?, from_port, to_port, kind })
        };
        let after: Vec<_> = node.before.iter().filter_map(end).collect();
        let number = match &node.work {
            Work::Conditional(conditional) => {
                complete_bodies(graphs, conditional)?;
                let (graph, node) = (on_server.graph, conditional.number);
                send::post_in(conditional.context, &calls::graph_add_edges { graph, node, after })?;
                node
            }
            work => {
                add(on_server, after, work)?;
                on_server.nodes += 1;
                on_server.nodes - 1
            }
        };
        numbers.insert(index, number);
    }
    on_server.is_complete = true;
    Ok(())
}

fn add(on_server: &OnServer, after: Vec<GraphEdge>, work: &Work) -> Result<(), CUresult> {
    let graph = on_server.graph;
    match work {
        Work::Kernel(kernel) => {
            let request = calls::graph_add_kernel {
                graph,
                after,
                function: kernel.function,
                is_kernel: kernel.is_of_library(),
                shape: kernel.shape,
                attributes: kernel.attributes.clone(),
                params: &kernel.params,
            };
            send::post_in(kernel.context, &request)
        }
        Work::Copy(copying) => match on_device(copying)? {
            Some((destination, source)) => {
                let request = calls::graph_add_copy { graph, after, destination, source };
                send::post_in(copying.context, &request)
            }
            None => send::post_in(copying.context, &calls::graph_add_empty { graph, after }),
        },
        Work::Fill(filling) => {
            let fill = filling.fill();
            send::post_in(filling.context, &calls::graph_add_fill { graph, after, fill })
        }
        Work::Record(event) => {
            let event = *event;
            send::post_in(on_server.context, &calls::graph_add_record { graph, after, event })
        }
        Work::Values(values) => {
            let operations = values.operations()?;
            send::post_in(values.context, &calls::graph_add_values { graph, after, operations })
        }
        _ => send::post_in(on_server.context, &calls::graph_add_empty { graph, after }),
    }
}

/// Gives a node of an executable graph on the server other work of the same kind.
pub fn change(at: Address, owner: Handle<Context>, work: &Work) -> Result<(), CUresult> {
    let Address { exec, graph, number: node } = at;
    match work {
        Work::Kernel(kernel) => {
            let request = calls::graph_exec_kernel {
                exec,
                graph,
                node,
                function: kernel.function,
                is_kernel: kernel.is_of_library(),
                shape: kernel.shape,
                params: &kernel.params,
            };
            send::post_in(kernel.context, &request)
        }
        Work::Copy(copying) => {
            let (destination, source) = on_device(copying)?.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            let request = calls::graph_exec_copy { exec, graph, node, destination, source };
            send::post_in(copying.context, &request)
        }
        Work::Fill(filling) => {
            let fill = filling.fill();
            send::post_in(filling.context, &calls::graph_exec_fill { exec, graph, node, fill })
        }
        Work::Record(event) => {
            let event = *event;
            send::post_in(owner, &calls::graph_exec_record { exec, graph, node, event })
        }
        Work::Values(values) => {
            let operations = values.operations()?;
            send::post_in(values.context, &calls::graph_exec_values { exec, graph, node, operations })
        }
        _ => Ok(()),
    }
}

/// The graph of the server that stands for `graph` from now on, before it is instantiated.
pub fn ensure_on_server(graphs: &mut GraphStore, graph: Handle<Graph>) -> Result<OnServer, CUresult> {
    if let Some(on_server) = graphs.graph(graph)?.on_server {
        return Ok(on_server);
    }
    if graphs.graph(graph)?.owner.is_some() {
        return Err(refuse_use!("conditional nodes in child graphs"));
    }
    let on_server = create()?;
    graphs.graph_mut(graph)?.on_server = Some(on_server);
    Ok(on_server)
}

/// Makes what a conditional node consists of: its place on the server, and the graphs that it carries out.
pub fn conditional(
    graphs: &mut GraphStore,
    graph: Handle<Graph>,
    handle: u64,
    kind: CUgraphConditionalNodeType,
    size: u32,
    context: Handle<Context>,
) -> Result<Conditional, CUresult> {
    let mut on_server = ensure_on_server(graphs, graph)?;
    if on_server.is_complete {
        return Err(refuse_use!("conditional nodes in a graph that has been instantiated"));
    }
    let number = on_server.nodes;
    let request = calls::graph_add_conditional { graph: on_server.graph, handle, kind: kind.0, size };
    send::post_in(context, &request)?;
    on_server.nodes += 1;
    graphs.graph_mut(graph)?.on_server = Some(on_server);
    let mut bodies = Vec::new();
    for index in 0..size {
        let body = graphs.create(None);
        let counterpart = handles::create();
        let request = calls::graph_body { body: counterpart, graph: on_server.graph, node: number, index };
        send::post_in(context, &request)?;
        graphs.graph_mut(body)?.on_server =
            Some(OnServer { graph: counterpart, context, nodes: 0, is_complete: false });
        bodies.push(body);
    }
    let raw_bodies = bodies.iter().map(|body| body.as_raw()).collect();
    Ok(Conditional { bodies, raw_bodies, number, context })
}

/// Sends the graphs that a conditional node carries out.
fn complete_bodies(graphs: &mut GraphStore, conditional: &Conditional) -> Result<(), CUresult> {
    for body in &conditional.bodies {
        let order = NodeOrder::of(graphs, *body)?;
        for node in &order.nodes {
            if is_clients(&node.work)? || matches!(node.work, Work::Record(_) | Work::Wait(_)) {
                return Err(refuse_use!(
                    "host memory, host functions and events in the graphs of conditional nodes"
                ));
            }
        }
        let mut on_server = graphs.graph(*body)?.on_server.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if on_server.is_complete {
            return Err(refuse_use!("instantiating a graph with conditional nodes a second time"));
        }
        send(graphs, &mut on_server, order.nodes.iter().enumerate(), &mut HashMap::new())?;
        graphs.graph_mut(*body)?.on_server = Some(on_server);
    }
    Ok(())
}

impl Kernel {
    /// A kernel with parameters that the program passes as to a launch.
    ///
    /// # Safety
    /// `arguments` must be what `cuLaunchKernel` demands for this function.
    pub unsafe fn new(
        function: CUfunction,
        context: Handle<Context>,
        shape: LaunchShape,
        attributes: Vec<LaunchAttribute>,
        arguments: Arguments,
    ) -> Result<Self, CUresult> {
        let (_, state) = module::resolve_function(function)?;
        launch::check(&shape, &state)?;
        // SAFETY: the caller passes arguments as `cuLaunchKernel` takes them for this function.
        unsafe {
            launch::with_parameters(&state, arguments, CUresult::CUDA_ERROR_INVALID_VALUE, |params| {
                Self::with_buffer(function, context, shape, attributes, params)
            })
        }
    }

    /// A kernel with a ready parameter buffer.
    pub fn with_buffer(
        function: CUfunction,
        context: Handle<Context>,
        shape: LaunchShape,
        attributes: Vec<LaunchAttribute>,
        params: &[u8],
    ) -> Result<Self, CUresult> {
        let (function, state) = module::resolve_function(function)?;
        mirrored::note_parameters(params)?;
        // What a short buffer leaves out is zero, so that every parameter has its place.
        let mut params = params.to_vec();
        params.resize(state.parameter_bytes.max(params.len()), 0);
        let params = params.into_boxed_slice();
        let address = |offset: u32| params.as_ptr().wrapping_add(offset as usize).cast_mut().cast();
        let addresses = state.info.parameters.iter().map(|parameter| address(parameter.offset)).collect();
        let kernel = match state.owner {
            Owner::Module(_) => Handle::NULL,
            Owner::Library(_) => Handle::from_value(function.value()),
            Owner::Kernel(kernel, _) => kernel,
        };
        Ok(Self { function, kernel, context, shape, attributes, params, addresses })
    }

    /// The same kernel with other attributes.
    pub fn with_attributes(&self, attributes: Vec<LaunchAttribute>) -> Result<Self, CUresult> {
        let function = self.function.as_raw();
        Self::with_buffer(function, self.context, self.shape, attributes, &self.params)
    }
}

impl Filling {
    /// Checks a description.
    pub fn new(parameters: CUDA_MEMSET_NODE_PARAMS, context: Handle<Context>) -> Result<Self, CUresult> {
        let element = u64::from(parameters.elementSize);
        let is_even = matches!(element, 1 | 2 | 4) && parameters.dst.is_multiple_of(element);
        let row = (parameters.width as u64).saturating_mul(element);
        let pitch = parameters.pitch as u64;
        let fits = parameters.height <= 1 || (pitch >= row && pitch.is_multiple_of(element.max(1)));
        if !is_even || !fits || parameters.dst == 0 || parameters.width == 0 || parameters.height == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        mirrored::note_address(parameters.dst)?;
        Ok(Self { parameters, context })
    }
}

/// Servers: addresses are taken from the session's window and so ask nobody; where there is none, they come
/// with memory.
#[derive(Debug)]
pub struct Servers;

impl Backing for Servers {
    fn reserve(&self, device: CUdevice, size: u64) -> Result<Addresses, CUresult> {
        let context = context::current_state()?.handle;
        session::of(context)?.faults().check()?;
        let Ok(window) = send::opened(context.server()) else {
            let base: CUdeviceptr = allocation::allocate(size as usize)?;
            return Ok(Addresses { base, size, device, context, is_of_window: false });
        };
        let rounded = size.checked_next_multiple_of(window.granularity());
        let size = rounded.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let base = window.take(size, 0, 0).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Addresses { base, size, device, context, is_of_window: true })
    }

    fn release_addresses(&self, addresses: &Addresses) {
        if !addresses.is_of_window {
            // An error of the work before is reported by the stream; the context may be gone, and its memory
            // with it.
            let _ = allocation::free(addresses.base);
        } else if let Ok(window) = send::opened(addresses.context.server()) {
            window.release(addresses.base, addresses.size);
        }
    }

    fn make(&self, addresses: &Addresses) -> Result<Handle<Allocation>, CUresult> {
        let block = handles::create::<Allocation>();
        let request = calls::memory_block_create {
            block,
            address: addresses.base,
            size: addresses.size as usize,
            device: device::on_server(addresses.device)?,
            accessors: device_memory::peers_of(addresses.device).collect(),
        };
        send::call_in(device::without_context(addresses.device)?, &request).inspect_err(|_| {
            handles::drop_handle(block);
        })?;
        Ok(block)
    }

    fn release(&self, addresses: &Addresses, block: Handle<Allocation>) {
        handles::drop_handle(block);
        let (address, size) = (addresses.base, addresses.size as usize);
        let request = calls::memory_block_release { block, address, size };
        // An error means that the session is lost, and its memory with it.
        let _ =
            device::without_context(addresses.device).and_then(|nowhere| send::post_in(nowhere, &request));
    }

    fn finish(&self, context: Handle<Context>) {
        // The error of that work is its stream's.
        let _ = context::state(context).and_then(|context| context.synchronize());
    }
}
