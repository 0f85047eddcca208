//! Graphs, built node by node as the client sends them, and what nodes do, in the forms in which the driver
//! takes it.

mod executable;

use causeway_api::handle::{Context, Event, Function, Graph, Native};
use causeway_api::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS, CUgraphConditionalNodeType, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUkernel, CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
};
use causeway_api::types::{Fill, GraphEdge, LaunchAttribute, LaunchShape, ValueOperation};
use causeway_gpu::calls::GraphCalls;
use causeway_gpu::{CuResult, NativeLocation};

use crate::calls::launch::{ParameterBuffer, attribute};
use crate::context;
use crate::driver::Driver;

/// More bodies of one conditional node than any program has.
const MAX_BODIES: u32 = 1 << 12;

impl Driver {
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
}

impl GraphCalls for Driver {
    fn graph_create(&self) -> CuResult<Native<Graph>> {
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuGraphCreate(&mut raw, 0)? };
        let graph = Native::from_raw(raw);
        self.graphs.insert(graph, false);
        Ok(graph)
    }

    fn graph_destroy(&self, graph: Native<Graph>) -> CuResult<()> {
        if self.graphs.remove(graph) {
            // SAFETY: the handle is the driver's own.
            unsafe { self.functions.cuGraphDestroy(graph.as_raw())? };
        }
        Ok(())
    }

    fn graph_add_empty(&self, graph: Native<Graph>, after: &[GraphEdge]) -> CuResult<()> {
        self.add_node(graph, after, |node, before, count| {
            // SAFETY: the pointers are to locals of the caller.
            unsafe { self.functions.cuGraphAddEmptyNode(node, graph.as_raw(), before, count) }
        })?;
        Ok(())
    }

    fn graph_add_kernel(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        function: Native<Function>,
        is_kernel: bool,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
        params: &[u8],
    ) -> CuResult<()> {
        let mut parameters = ParameterBuffer::new(params);
        let kernel =
            kernel((function, is_kernel), context::current(self.functions)?, &shape, &mut parameters);
        let number = self.add_node(graph, after, |node, before, count| {
            // SAFETY: the pointers are to locals; the driver copies the parameters during the call.
            unsafe { self.functions.cuGraphAddKernelNode_v2(node, graph.as_raw(), before, count, &kernel) }
        })?;
        let node = self.graphs.node(graph, number)?;
        for given in attributes {
            let attribute = attribute(given)?;
            // SAFETY: the node is the driver's own, the value a local of the attribute's form.
            unsafe {
                self.functions.cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value)?;
            }
        }
        Ok(())
    }

    fn graph_add_copy(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        destination: NativeLocation,
        source: NativeLocation,
    ) -> CuResult<()> {
        let copy = Self::copy_node(&destination, &source)?;
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

    fn graph_add_fill(&self, graph: Native<Graph>, after: &[GraphEdge], fill: Fill) -> CuResult<()> {
        let memset = memset(&fill);
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

    fn graph_add_record(
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

    fn graph_add_values(
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
    fn graph_conditional_handle(&self, graph: Native<Graph>, initial: u32, flags: u32) -> CuResult<u64> {
        let context = context::current(self.functions)?;
        let mut handle = 0;
        // SAFETY: the pointer is to a local.
        unsafe {
            let (graph, context) = (graph.as_raw(), context.as_raw());
            self.functions.cuGraphConditionalHandleCreate(&mut handle, graph, context, initial, flags)?;
        }
        Ok(handle)
    }

    fn graph_add_conditional(&self, graph: Native<Graph>, handle: u64, kind: u32, size: u32) -> CuResult<()> {
        if size > MAX_BODIES {
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
        // SAFETY: the driver has added a conditional node, so this form of the union is valid, and its list
        // has as many graphs as were asked for.
        let bodies: Vec<_> = unsafe {
            let list = params.__bindgen_anon_1.conditional.phGraph_out;
            let count = if list.is_null() { 0 } else { size as usize };
            (0..count).map(|index| Native::from_raw(list.add(index).read())).collect()
        };
        self.graphs.add_bodies(graph, number, bodies);
        Ok(())
    }

    fn graph_body(&self, graph: Native<Graph>, node: u32, index: u32) -> CuResult<Native<Graph>> {
        self.graphs.body(graph, node, index)
    }

    fn graph_add_edges(&self, graph: Native<Graph>, node: u32, after: &[GraphEdge]) -> CuResult<()> {
        self.connect(graph, self.graphs.node(graph, node)?, after)
    }
}

/// More operations in one node than this the driver does not take.
const MAX_OPERATIONS: usize = 256;

/// A kernel of a library has a place of its own, which counts where there is no function.
pub(crate) fn kernel(
    (function, is_kernel): (Native<Function>, bool),
    context: Native<Context>,
    shape: &LaunchShape,
    parameters: &mut ParameterBuffer,
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
        extra: parameters.as_mut_ptr(),
    }
}

pub(crate) fn memset(fill: &Fill) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.address,
        pitch: fill.pitch as usize,
        value: fill.value,
        elementSize: fill.element,
        width: fill.width as usize,
        height: fill.height as usize,
    }
}

/// Stream memory operations as the driver has them. Kinds that are not listed may hold more than these
/// fields.
pub(crate) fn operations(operations: &[ValueOperation]) -> CuResult<Vec<CUstreamBatchMemOpParams>> {
    type Kind = CUstreamBatchMemOpType;
    if operations.len() > MAX_OPERATIONS {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let native = |operation: &ValueOperation| {
        let mut native = CUstreamBatchMemOpParams::default();
        match CUstreamBatchMemOpType(operation.kind) {
            Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 | Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                native.waitValue.address = operation.address;
                native.waitValue.__bindgen_anon_1.value64 = operation.value;
                native.waitValue.flags = operation.flags;
            }
            Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32 | Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                native.writeValue.address = operation.address;
                native.writeValue.__bindgen_anon_1.value64 = operation.value;
                native.writeValue.flags = operation.flags;
            }
            Kind::CU_STREAM_MEM_OP_BARRIER => native.memoryBarrier.flags = operation.flags,
            Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {}
            _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
        native.operation = CUstreamBatchMemOpType(operation.kind);
        Ok(native)
    };
    operations.iter().map(native).collect()
}

impl Driver {
    /// Stream memory operations of a node, in the context that is current.
    pub(crate) fn batch(
        &self,
        operations: &mut [CUstreamBatchMemOpParams],
    ) -> CuResult<CUDA_BATCH_MEM_OP_NODE_PARAMS> {
        Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS {
            ctx: context::current(self.functions)?.as_raw(),
            count: operations.len() as u32,
            paramArray: operations.as_mut_ptr(),
            flags: 0,
        })
    }
}
