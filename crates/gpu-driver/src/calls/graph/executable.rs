//! Executable graphs: made of a graph, changed node by node, launched.

use crate::calls::graph::{kernel, memset, operations};
use crate::calls::launch::ParameterBuffer;
use crate::context;
use crate::driver::Driver;
use causeway_api::handle::{Event, Function, Graph, GraphExec, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{Fill, LaunchShape, ValueOperation};
use causeway_gpu::calls::ExecutableGraphCalls;
use causeway_gpu::{CuResult, NativeLocation};

impl ExecutableGraphCalls for Driver {
    fn graph_instantiate(&self, graph: Native<Graph>, nodes: u32, flags: u64) -> CuResult<Native<GraphExec>> {
        if self.graphs.nodes(graph) != Some(nodes as usize) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuGraphInstantiateWithFlags(&mut raw, graph.as_raw(), flags)? };
        Ok(Native::from_raw(raw))
    }

    fn graph_exec_destroy(&self, exec: Native<GraphExec>) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        unsafe { self.functions.cuGraphExecDestroy(exec.as_raw()) }
    }

    fn graph_exec_kernel(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        number: u32,
        function: Native<Function>,
        is_kernel: bool,
        shape: LaunchShape,
        params: &[u8],
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        let mut parameters = ParameterBuffer::new(params);
        let kernel =
            kernel((function, is_kernel), context::current(self.functions)?, &shape, &mut parameters);
        // SAFETY: the pointers are to locals; the driver copies the parameters during the call.
        unsafe { self.functions.cuGraphExecKernelNodeSetParams_v2(exec.as_raw(), node, &kernel) }
    }

    fn graph_exec_copy(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        number: u32,
        destination: NativeLocation,
        source: NativeLocation,
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        let copy = Self::copy_node(&destination, &source)?;
        let context = context::current(self.functions)?.as_raw();
        // SAFETY: the pointers are to locals; no host memory takes part.
        unsafe { self.functions.cuGraphExecMemcpyNodeSetParams(exec.as_raw(), node, &copy, context) }
    }

    fn graph_exec_fill(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        number: u32,
        fill: Fill,
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        let context = context::current(self.functions)?.as_raw();
        // SAFETY: the pointers are to locals.
        unsafe { self.functions.cuGraphExecMemsetNodeSetParams(exec.as_raw(), node, &memset(&fill), context) }
    }

    fn graph_exec_record(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        number: u32,
        event: Native<Event>,
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        // SAFETY: the handles are the driver's own.
        unsafe { self.functions.cuGraphExecEventRecordNodeSetEvent(exec.as_raw(), node, event.as_raw()) }
    }

    fn graph_exec_values(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        number: u32,
        given: &[ValueOperation],
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        let mut operations = operations(given)?;
        let batch = self.batch(&mut operations)?;
        // SAFETY: the pointers are to locals; the driver copies the list during the call.
        unsafe { self.functions.cuGraphExecBatchMemOpNodeSetParams(exec.as_raw(), node, &batch) }
    }

    fn graph_exec_enable(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        number: u32,
        enabled: u32,
    ) -> CuResult<()> {
        let node = self.graphs.node(graph, number)?;
        // SAFETY: the handles are the driver's own.
        unsafe { self.functions.cuGraphNodeSetEnabled(exec.as_raw(), node, enabled) }
    }

    fn graph_upload(&self, exec: Native<GraphExec>, stream: Native<Stream>) -> CuResult<()> {
        // SAFETY: the handles are the driver's own.
        unsafe { self.functions.cuGraphUpload(exec.as_raw(), stream.as_raw()) }
    }

    fn graph_launch(&self, exec: Native<GraphExec>, stream: Native<Stream>) -> CuResult<()> {
        // SAFETY: the handles are the driver's own.
        unsafe { self.functions.cuGraphLaunch(exec.as_raw(), stream.as_raw()) }
    }
}
