//! Graphs: built node by node as the client sends them, instantiated, changed.
//!
//! The client names a node by its number in its graph; here is what the driver calls it.

use super::launch;
use super::{Driver, context};
use crate::{CuResult, NativePlace};
use causeway_api::handle::{Context, Event, Function, Graph, GraphExec, Native};
use causeway_api::sys::{
    CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT, CU_LAUNCH_PARAM_END_AS_INT,
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS, CUgraphConditionalNodeType, CUgraphEdgeData, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType, CUkernel, CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
};
use causeway_api::types::{Fill, GraphEdge, LaunchAttribute, LaunchShape, ValueOperation};
use core::ffi::c_void;
use parking_lot::Mutex;
use std::collections::HashMap;

/// More operations in one node than this the driver does not take.
const MOST_OPERATIONS: usize = 256;
/// More bodies of one conditional node than any program has.
const MOST_BODIES: u32 = 1 << 12;

/// What the driver calls the parts of a graph.
#[derive(Default)]
struct Parts {
    nodes: Vec<CUgraphNode>,
    /// The graphs that a conditional node carries out, by the node's number.
    bodies: HashMap<u32, Vec<Native<Graph>>>,
    /// Whether it is itself carried out by a conditional node.
    is_body: bool,
}

/// The graphs of a session.
#[derive(Default)]
pub(super) struct Graphs {
    parts: Mutex<HashMap<Native<Graph>, Parts>>,
}

// SAFETY: the driver's handles of nodes are names that any thread may use.
unsafe impl Send for Graphs {}
// SAFETY: as above.
unsafe impl Sync for Graphs {}

impl Graphs {
    fn insert(&self, graph: Native<Graph>, is_body: bool) {
        self.parts.lock().insert(graph, Parts { is_body, ..Parts::default() });
    }

    fn node(&self, graph: Native<Graph>, number: u32) -> CuResult<CUgraphNode> {
        let parts = self.parts.lock();
        let node = parts.get(&graph).and_then(|parts| parts.nodes.get(number as usize));
        node.copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn edges(
        &self,
        graph: Native<Graph>,
        edges: &[GraphEdge],
    ) -> CuResult<(Vec<CUgraphNode>, Vec<CUgraphEdgeData>)> {
        let nodes = edges.iter().map(|edge| self.node(graph, edge.from)).collect::<CuResult<_>>()?;
        let data = |edge: &GraphEdge| CUgraphEdgeData {
            from_port: edge.from_port,
            to_port: edge.to_port,
            type_: edge.kind,
            reserved: [0; 5],
        };
        Ok((nodes, edges.iter().map(data).collect()))
    }

    fn append(&self, graph: Native<Graph>, node: CUgraphNode) -> CuResult<u32> {
        let mut parts = self.parts.lock();
        let parts = parts.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        parts.nodes.push(node);
        Ok(parts.nodes.len() as u32 - 1)
    }

    fn body(&self, graph: Native<Graph>, node: u32, index: u32) -> CuResult<Native<Graph>> {
        let parts = self.parts.lock();
        let bodies = parts.get(&graph).and_then(|parts| parts.bodies.get(&node));
        let body = bodies.and_then(|bodies| bodies.get(index as usize));
        body.copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Forgets a graph; says whether it is one that has to be destroyed, and not the body of a node, which goes with it.
    fn remove(&self, graph: Native<Graph>) -> bool {
        self.parts.lock().remove(&graph).is_some_and(|parts| !parts.is_body)
    }
}

/// A parameter buffer in the form in which the driver takes it whole, with its size.
struct Extra {
    list: [*mut c_void; 5],
    size: Box<usize>,
}

impl Extra {
    fn new(params: &[u8]) -> Self {
        let mut size = Box::new(params.len());
        let list = [
            CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
            params.as_ptr().cast_mut().cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
            (&raw mut *size).cast(),
            CU_LAUNCH_PARAM_END_AS_INT as usize as *mut c_void,
        ];
        Self { list, size }
    }

    fn as_mut_ptr(&mut self) -> *mut *mut c_void {
        if *self.size == 0 { core::ptr::null_mut() } else { self.list.as_mut_ptr() }
    }
}

/// A kernel of a library has a place of its own, which counts where there is no function.
fn kernel(
    (function, is_kernel): (Native<Function>, bool),
    context: Native<Context>,
    shape: &LaunchShape,
    extra: &mut Extra,
) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: if is_kernel { core::ptr::null_mut() } else { function.as_raw() },
        kern: if is_kernel { function.value() as CUkernel } else { core::ptr::null_mut() },
        ctx: context.as_raw(),
        gridDimX: shape.grid[0],
        gridDimY: shape.grid[1],
        gridDimZ: shape.grid[2],
        blockDimX: shape.block[0],
        blockDimY: shape.block[1],
        blockDimZ: shape.block[2],
        sharedMemBytes: shape.shared_bytes,
        kernelParams: core::ptr::null_mut(),
        extra: extra.as_mut_ptr(),
    }
}

fn memset(fill: &Fill) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.address,
        pitch: fill.pitch as usize,
        value: fill.value,
        elementSize: fill.element,
        width: fill.width as usize,
        height: fill.height as usize,
    }
}

/// Stream memory operations as the driver has them. Kinds that are not listed may hold more than these fields.
fn operations(given: &[ValueOperation]) -> CuResult<Vec<CUstreamBatchMemOpParams>> {
    type Kind = CUstreamBatchMemOpType;
    if given.len() > MOST_OPERATIONS {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let operation = |given: &ValueOperation| {
        let mut native = CUstreamBatchMemOpParams::default();
        match CUstreamBatchMemOpType(given.kind) {
            Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 | Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                native.waitValue.address = given.address;
                native.waitValue.__bindgen_anon_1.value64 = given.value;
                native.waitValue.flags = given.flags;
            }
            Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32 | Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                native.writeValue.address = given.address;
                native.writeValue.__bindgen_anon_1.value64 = given.value;
                native.writeValue.flags = given.flags;
            }
            Kind::CU_STREAM_MEM_OP_BARRIER => native.memoryBarrier.flags = given.flags,
            Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {}
            _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
        native.operation = CUstreamBatchMemOpType(given.kind);
        Ok(native)
    };
    given.iter().map(operation).collect()
}

impl Driver {
    pub(super) fn create_graph(&self) -> CuResult<Native<Graph>> {
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuGraphCreate(&mut raw, 0)? };
        let graph = Native::from_raw(raw);
        self.graphs.insert(graph, false);
        Ok(graph)
    }

    pub(super) fn destroy_graph(&self, graph: Native<Graph>) -> CuResult<()> {
        if self.graphs.remove(graph) {
            // SAFETY: the handle is the driver's own.
            unsafe { self.functions.cuGraphDestroy(graph.as_raw())? };
        }
        Ok(())
    }

    /// Adds a node that `add` makes, given what comes before it. Edges that are more than plain order are
    /// added after it.
    fn add_node(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        add: impl FnOnce(&mut CUgraphNode, *const CUgraphNode, usize) -> CuResult<()>,
    ) -> CuResult<u32> {
        let (nodes, _) = self.graphs.edges(graph, after)?;
        let mut node = core::ptr::null_mut();
        if after.iter().all(GraphEdge::is_plain) {
            add(&mut node, nodes.as_ptr(), nodes.len())?;
        } else {
            add(&mut node, core::ptr::null(), 0)?;
            self.connect(graph, node, after)?;
        }
        self.graphs.append(graph, node)
    }

    fn connect(&self, graph: Native<Graph>, node: CUgraphNode, after: &[GraphEdge]) -> CuResult<()> {
        let (from, data) = self.graphs.edges(graph, after)?;
        let to = vec![node; from.len()];
        let count = from.len();
        // SAFETY: the lists are locals of the length that is passed along.
        unsafe {
            if after.iter().all(GraphEdge::is_plain) {
                self.functions.cuGraphAddDependencies(graph.as_raw(), from.as_ptr(), to.as_ptr(), count)
            } else {
                let (from, to, data) = (from.as_ptr(), to.as_ptr(), data.as_ptr());
                self.functions.cuGraphAddDependencies_v2(graph.as_raw(), from, to, data, count)
            }
        }
    }

    pub(super) fn add_edges(&self, graph: Native<Graph>, node: u32, after: &[GraphEdge]) -> CuResult<()> {
        self.connect(graph, self.graphs.node(graph, node)?, after)
    }

    pub(super) fn add_empty(&self, graph: Native<Graph>, after: &[GraphEdge]) -> CuResult<()> {
        self.add_node(graph, after, |node, before, count| {
            // SAFETY: the pointers are to locals of the caller.
            unsafe { self.functions.cuGraphAddEmptyNode(node, graph.as_raw(), before, count) }
        })?;
        Ok(())
    }

    pub(super) fn add_kernel(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        function: (Native<Function>, bool),
        shape: &LaunchShape,
        attributes: &[LaunchAttribute],
        params: &[u8],
    ) -> CuResult<()> {
        let mut extra = Extra::new(params);
        let kernel = kernel(function, context::current(self.functions)?, shape, &mut extra);
        let number = self.add_node(graph, after, |node, before, count| {
            // SAFETY: the pointers are to locals; the driver copies the parameters during the call.
            unsafe { self.functions.cuGraphAddKernelNode_v2(node, graph.as_raw(), before, count, &kernel) }
        })?;
        let node = self.graphs.node(graph, number)?;
        for given in attributes {
            let attribute = launch::attribute(given)?;
            // SAFETY: the node is the driver's own, the value a local of the attribute's form.
            unsafe {
                self.functions.cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value)?;
            }
        }
        Ok(())
    }

    pub(super) fn add_copy(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        destination: &NativePlace,
        source: &NativePlace,
    ) -> CuResult<()> {
        let copy = Self::copy_node(destination, source)?;
        let context = context::current(self.functions)?;
        self.add_node(graph, after, |node, before, count| {
            // SAFETY: the pointers are to locals; no host memory takes part.
            unsafe {
                let (graph, context) = (graph.as_raw(), context.as_raw());
                self.functions.cuGraphAddMemcpyNode(node, graph, before, count, &copy, context)
            }
        })?;
        Ok(())
    }

    pub(super) fn add_fill(&self, graph: Native<Graph>, after: &[GraphEdge], fill: &Fill) -> CuResult<()> {
        let memset = memset(fill);
        let context = context::current(self.functions)?;
        self.add_node(graph, after, |node, before, count| {
            // SAFETY: the pointers are to locals.
            unsafe {
                let (graph, context) = (graph.as_raw(), context.as_raw());
                self.functions.cuGraphAddMemsetNode(node, graph, before, count, &memset, context)
            }
        })?;
        Ok(())
    }

    pub(super) fn add_record(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        event: Native<Event>,
    ) -> CuResult<()> {
        self.add_node(graph, after, |node, before, count| {
            // SAFETY: the pointers are to locals, the event is the driver's own.
            unsafe {
                let (graph, event) = (graph.as_raw(), event.as_raw());
                self.functions.cuGraphAddEventRecordNode(node, graph, before, count, event)
            }
        })?;
        Ok(())
    }

    /// Stream memory operations of a node, in the context that is current.
    fn batch(&self, operations: &mut [CUstreamBatchMemOpParams]) -> CuResult<CUDA_BATCH_MEM_OP_NODE_PARAMS> {
        Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS {
            ctx: context::current(self.functions)?.as_raw(),
            count: operations.len() as u32,
            paramArray: operations.as_mut_ptr(),
            flags: 0,
        })
    }

    pub(super) fn add_values(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        given: &[ValueOperation],
    ) -> CuResult<()> {
        let mut operations = operations(given)?;
        let batch = self.batch(&mut operations)?;
        self.add_node(graph, after, |node, before, count| {
            // SAFETY: the pointers are to locals; the driver copies the list during the call.
            unsafe { self.functions.cuGraphAddBatchMemOpNode(node, graph.as_raw(), before, count, &batch) }
        })?;
        Ok(())
    }

    /// A number with which kernels of `graph` steer one of its conditional nodes.
    pub(super) fn conditional_handle(&self, graph: Native<Graph>, initial: u32, flags: u32) -> CuResult<u64> {
        let context = context::current(self.functions)?;
        let mut handle = 0;
        // SAFETY: the pointer is to a local.
        unsafe {
            let (graph, context) = (graph.as_raw(), context.as_raw());
            self.functions.cuGraphConditionalHandleCreate(&mut handle, graph, context, initial, flags)?;
        }
        Ok(handle)
    }

    pub(super) fn add_conditional(
        &self,
        graph: Native<Graph>,
        handle: u64,
        kind: u32,
        size: u32,
    ) -> CuResult<()> {
        if size > MOST_BODIES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut params = CUgraphNodeParams {
            type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            ..CUgraphNodeParams::default()
        };
        params.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle,
            type_: CUgraphConditionalNodeType(kind),
            size,
            phGraph_out: core::ptr::null_mut(),
            ctx: context::current(self.functions)?.as_raw(),
        };
        let number = self.add_node(graph, &[], |node, before, count| {
            // SAFETY: the pointers are to locals; the driver fills in its list of bodies.
            unsafe { self.functions.cuGraphAddNode(node, graph.as_raw(), before, count, &mut params) }
        })?;
        // SAFETY: the driver has added a conditional node, so this form of the union is valid, and its list has as
        // many graphs as were asked for.
        let bodies: Vec<_> = unsafe {
            let list = params.__bindgen_anon_1.conditional.phGraph_out;
            let count = if list.is_null() { 0 } else { size as usize };
            (0..count).map(|index| Native::from_raw(list.add(index).read())).collect()
        };
        bodies.iter().for_each(|body| self.graphs.insert(*body, true));
        if let Some(parts) = self.graphs.parts.lock().get_mut(&graph) {
            parts.bodies.insert(number, bodies);
        }
        Ok(())
    }

    pub(super) fn body(&self, graph: Native<Graph>, node: u32, index: u32) -> CuResult<Native<Graph>> {
        self.graphs.body(graph, node, index)
    }

    pub(super) fn instantiate(
        &self,
        graph: Native<Graph>,
        nodes: u32,
        flags: u64,
    ) -> CuResult<Native<GraphExec>> {
        if self.graphs.parts.lock().get(&graph).is_none_or(|parts| parts.nodes.len() != nodes as usize) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuGraphInstantiateWithFlags(&mut raw, graph.as_raw(), flags)? };
        Ok(Native::from_raw(raw))
    }

    pub(super) fn set_kernel(
        &self,
        exec: Native<GraphExec>,
        (graph, number): (Native<Graph>, u32),
        function: (Native<Function>, bool),
        shape: &LaunchShape,
        params: &[u8],
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        let mut extra = Extra::new(params);
        let kernel = kernel(function, context::current(self.functions)?, shape, &mut extra);
        // SAFETY: the pointers are to locals; the driver copies the parameters during the call.
        unsafe { self.functions.cuGraphExecKernelNodeSetParams_v2(exec.as_raw(), node, &kernel) }
    }

    pub(super) fn set_copy(
        &self,
        exec: Native<GraphExec>,
        (graph, number): (Native<Graph>, u32),
        destination: &NativePlace,
        source: &NativePlace,
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        let copy = Self::copy_node(destination, source)?;
        let context = context::current(self.functions)?.as_raw();
        // SAFETY: the pointers are to locals; no host memory takes part.
        unsafe { self.functions.cuGraphExecMemcpyNodeSetParams(exec.as_raw(), node, &copy, context) }
    }

    pub(super) fn set_fill(
        &self,
        exec: Native<GraphExec>,
        (graph, number): (Native<Graph>, u32),
        fill: &Fill,
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        let context = context::current(self.functions)?.as_raw();
        // SAFETY: the pointers are to locals.
        unsafe { self.functions.cuGraphExecMemsetNodeSetParams(exec.as_raw(), node, &memset(fill), context) }
    }

    pub(super) fn set_record(
        &self,
        exec: Native<GraphExec>,
        (graph, number): (Native<Graph>, u32),
        event: Native<Event>,
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        // SAFETY: the handles are the driver's own.
        unsafe { self.functions.cuGraphExecEventRecordNodeSetEvent(exec.as_raw(), node, event.as_raw()) }
    }

    pub(super) fn set_values(
        &self,
        exec: Native<GraphExec>,
        (graph, number): (Native<Graph>, u32),
        given: &[ValueOperation],
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        let mut operations = operations(given)?;
        let batch = self.batch(&mut operations)?;
        // SAFETY: the pointers are to locals; the driver copies the list during the call.
        unsafe { self.functions.cuGraphExecBatchMemOpNodeSetParams(exec.as_raw(), node, &batch) }
    }

    pub(super) fn enable_node(
        &self,
        exec: Native<GraphExec>,
        (graph, number): (Native<Graph>, u32),
        enabled: u32,
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        // SAFETY: the handles are the driver's own.
        unsafe { self.functions.cuGraphNodeSetEnabled(exec.as_raw(), node, enabled) }
    }
}
