//! Graphs and executable graphs.

use crate::SoftwareGpu;
use crate::operation::{Node, Operation, Pattern, Value, ValueStep};
use causeway_api::handle::{Event, Function, Graph, GraphExec, Native, Stream};
use causeway_api::sys::{CUresult, CUstreamBatchMemOpType};
use causeway_api::types::{Fill, GraphEdge, LaunchAttribute, LaunchShape, ValueOperation};
use causeway_gpu::calls::{ExecutableGraphCalls, GraphCalls};
use causeway_gpu::{CuResult, NativeLocation};
use std::sync::Arc;

// What nodes of graphs do, checked as the same work in a stream is.
impl SoftwareGpu {
    fn kernel_node(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
        parameters: &[u8],
    ) -> CuResult<Node> {
        let launch = self.launch_of(&*self.contexts.current()?, function, shape, attributes, parameters)?;
        Ok(Node::Kernel(Arc::new(Operation::Launch(launch))))
    }

    fn copy_node(&self, destination: &NativeLocation, source: &NativeLocation) -> CuResult<Node> {
        self.copy_operation(destination, source).map(|copy| Node::Run(Arc::new(copy)))
    }

    fn fill_node(&self, fill: &Fill) -> CuResult<Node> {
        let value = fill.value.to_le_bytes();
        let pattern = match fill.element {
            1 => Pattern::D8([value[0]]),
            2 => Pattern::D16([value[0], value[1]]),
            4 => Pattern::D32(value),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let fill = self.fill_operation(fill.address, fill.pitch, pattern, (fill.width, fill.height))?;
        Ok(Node::Run(Arc::new(fill)))
    }

    fn values_node(&self, operations: &[ValueOperation]) -> CuResult<Node> {
        type Kind = CUstreamBatchMemOpType;
        let step = |operation: &ValueOperation| {
            let &ValueOperation { kind, address, value, flags } = operation;
            Ok(match CUstreamBatchMemOpType(kind) {
                Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
                    ValueStep::Wait(self.scheduler.condition(address, Value::Bits32(value as u32), flags)?)
                }
                Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                    ValueStep::Wait(self.scheduler.condition(address, Value::Bits64(value), flags)?)
                }
                Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32 => {
                    let value = Value::Bits32(value as u32);
                    self.scheduler.check_write(address, value, flags)?;
                    ValueStep::Write { address, value }
                }
                Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                    let value = Value::Bits64(value);
                    self.scheduler.check_write(address, value, flags)?;
                    ValueStep::Write { address, value }
                }
                Kind::CU_STREAM_MEM_OP_BARRIER | Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {
                    ValueStep::Barrier
                }
                _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            })
        };
        Ok(Node::Values(operations.iter().map(step).collect::<CuResult<_>>()?))
    }
}

impl GraphCalls for SoftwareGpu {
    fn graph_create(&self) -> CuResult<Native<Graph>> {
        Ok(Native::from_value(self.graphs.create()))
    }

    fn graph_destroy(&self, graph: Native<Graph>) -> CuResult<()> {
        self.graphs.remove(graph.value())
    }

    fn graph_add_empty(&self, graph: Native<Graph>, _after: &[GraphEdge]) -> CuResult<()> {
        self.graphs.append(graph.value(), Node::Empty)
    }

    fn graph_add_kernel(
        &self,
        graph: Native<Graph>,
        _after: &[GraphEdge],
        function: Native<Function>,
        _is_kernel: bool,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
        parameters: &[u8],
    ) -> CuResult<()> {
        let node = self.kernel_node(function, shape, attributes, parameters)?;
        self.graphs.append(graph.value(), node)
    }

    fn graph_add_copy(
        &self,
        graph: Native<Graph>,
        _after: &[GraphEdge],
        destination: NativeLocation,
        source: NativeLocation,
    ) -> CuResult<()> {
        self.graphs.append(graph.value(), self.copy_node(&destination, &source)?)
    }

    fn graph_add_fill(&self, graph: Native<Graph>, _after: &[GraphEdge], fill: Fill) -> CuResult<()> {
        self.graphs.append(graph.value(), self.fill_node(&fill)?)
    }

    fn graph_add_record(
        &self,
        graph: Native<Graph>,
        _after: &[GraphEdge],
        event: Native<Event>,
    ) -> CuResult<()> {
        self.graphs.append(graph.value(), Node::Record(event.value()))
    }

    fn graph_add_values(
        &self,
        graph: Native<Graph>,
        _after: &[GraphEdge],
        operations: &[ValueOperation],
    ) -> CuResult<()> {
        self.graphs.append(graph.value(), self.values_node(operations)?)
    }

    fn graph_conditional_handle(&self, graph: Native<Graph>, initial: u32, flags: u32) -> CuResult<u64> {
        // `CU_GRAPH_COND_ASSIGN_DEFAULT` is the only flag.
        if flags > 1 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let default = (flags == 1).then_some(initial);
        let (handle, condition) = self.scheduler.machine.conditions.create(default);
        self.graphs.keep_condition(graph.value(), condition)?;
        Ok(handle)
    }

    fn graph_add_conditional(&self, graph: Native<Graph>, handle: u64, kind: u32, size: u32) -> CuResult<()> {
        let condition = self.scheduler.machine.conditions.get(handle);
        let condition = condition.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.graphs.append_conditional(graph.value(), condition, kind, size)
    }

    fn graph_body(&self, graph: Native<Graph>, node: u32, index: u32) -> CuResult<Native<Graph>> {
        self.graphs.body(graph.value(), node, index).map(Native::from_value)
    }

    fn graph_add_edges(&self, graph: Native<Graph>, node: u32, _after: &[GraphEdge]) -> CuResult<()> {
        self.graphs.place_conditional(graph.value(), node)
    }
}

impl ExecutableGraphCalls for SoftwareGpu {
    fn graph_instantiate(&self, graph: Native<Graph>, nodes: u32, flags: u64) -> CuResult<Native<GraphExec>> {
        self.graphs.instantiate(graph.value(), nodes, flags).map(Native::from_value)
    }

    fn graph_exec_destroy(&self, exec: Native<GraphExec>) -> CuResult<()> {
        self.graphs.remove_executable(exec.value())
    }

    fn graph_exec_kernel(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        function: Native<Function>,
        _is_kernel: bool,
        shape: LaunchShape,
        parameters: &[u8],
    ) -> CuResult<()> {
        let work = self.kernel_node(function, shape, &[], parameters)?;
        self.graphs.change(exec.value(), graph.value(), node, work)
    }

    fn graph_exec_copy(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        destination: NativeLocation,
        source: NativeLocation,
    ) -> CuResult<()> {
        let work = self.copy_node(&destination, &source)?;
        self.graphs.change(exec.value(), graph.value(), node, work)
    }

    fn graph_exec_fill(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        fill: Fill,
    ) -> CuResult<()> {
        self.graphs.change(exec.value(), graph.value(), node, self.fill_node(&fill)?)
    }

    fn graph_exec_record(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        event: Native<Event>,
    ) -> CuResult<()> {
        self.graphs.change(exec.value(), graph.value(), node, Node::Record(event.value()))
    }

    fn graph_exec_values(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        operations: &[ValueOperation],
    ) -> CuResult<()> {
        self.graphs.change(exec.value(), graph.value(), node, self.values_node(operations)?)
    }

    fn graph_exec_enable(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        enabled: u32,
    ) -> CuResult<()> {
        self.graphs.enable(exec.value(), graph.value(), node, enabled != 0)
    }

    fn graph_upload(&self, exec: Native<GraphExec>, stream: Native<Stream>) -> CuResult<()> {
        // There is nothing to bring anywhere: the operations are ready where they are.
        self.context_of(self.stream(stream)?)?;
        self.graphs.check(exec.value())
    }

    fn graph_launch(&self, exec: Native<GraphExec>, stream: Native<Stream>) -> CuResult<()> {
        self.graphs.launch(exec.value(), &self.scheduler, self.stream(stream)?)
    }
}
