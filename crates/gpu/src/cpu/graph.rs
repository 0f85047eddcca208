//! Graphs: what their nodes do, in an order that their edges allow.
//!
//! The client sends nodes in such an order, and a launch puts them into a stream one after the other, so that the
//! edges themselves are not needed: on a processor nothing is gained by running two nodes at a time.

use super::launch::Launch;
use super::operation::{Condition, Operation, Pattern, Value};
use super::scheduler::Scheduler;
use super::stream::{Action, Point, StreamId};
use super::{SoftwareGpu, handles};
use crate::{CuResult, NativePlace};
use causeway_api::handle::{Function, Native};
use causeway_api::sys::{CUgraphInstantiate_flags, CUresult, CUstreamBatchMemOpType};
use causeway_api::types::{Fill, LaunchAttribute, LaunchShape, Region, ValueOperation};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Nodes that a graph may have.
const MOST_NODES: usize = 1 << 20;

/// What a node does.
#[derive(Clone)]
pub(super) enum Node {
    /// Nothing.
    Empty,
    /// Work for an executor thread.
    Run(Arc<Operation>),
    /// A kernel; its attributes are those of its first launch.
    Kernel(Arc<Operation>),
    /// Records an event.
    Record(u64),
    /// Writes values and waits for values.
    Values(Arc<[ValueStep]>),
}

/// One stream memory operation.
#[derive(Clone, Copy)]
pub(super) enum ValueStep {
    /// Writes a value.
    Write { address: u64, value: Value },
    /// Stops the stream until memory holds a value.
    Wait(Condition),
    /// Orders memory, which is in order here anyway.
    Barrier,
}

impl Node {
    /// A kernel.
    pub(super) fn kernel(launch: Launch) -> Self {
        Self::Kernel(Arc::new(Operation::Launch(launch)))
    }

    /// A copy within the device.
    pub(super) fn copy(destination: Region, source: Region) -> Self {
        Self::Run(Arc::new(Operation::Copy { destination, source }))
    }

    /// A fill.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for elements of another size than 1, 2 or 4, or that lie at odd addresses.
    pub(super) fn fill(fill: &Fill) -> CuResult<Self> {
        let value = fill.value.to_le_bytes();
        let pattern = match fill.element {
            1 => Pattern::D8([value[0]]),
            2 => Pattern::D16([value[0], value[1]]),
            4 => Pattern::D32(value),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let element = u64::from(fill.element);
        let pitch = if fill.height > 1 { fill.pitch } else { 0 };
        let width = fill.width.checked_mul(element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if !fill.address.is_multiple_of(element) || !pitch.is_multiple_of(element) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let region = Region {
            address: fill.address,
            row_pitch: pitch,
            slice_pitch: 0,
            width,
            height: fill.height,
            depth: 1,
        };
        Ok(Self::Run(Arc::new(Operation::Fill { region, pattern })))
    }

    /// The memory that a fill writes.
    pub(super) fn filled(&self) -> Option<Region> {
        match self {
            Self::Run(operation) => match &**operation {
                Operation::Fill { region, .. } => Some(*region),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

struct Executable {
    /// The graph that it was made from, whose numbers its nodes have.
    graph: u64,
    nodes: Vec<(Node, bool)>,
    /// The end of the last launch: one launch of an executable graph comes after the other.
    last: Option<Point>,
}

/// All graphs and executable graphs.
#[derive(Default)]
pub(super) struct Graphs {
    graphs: Mutex<HashMap<u64, Vec<Node>>>,
    executables: Mutex<HashMap<u64, Executable>>,
}

impl Graphs {
    /// Makes a graph without nodes.
    pub(super) fn create(&self) -> u64 {
        let id = handles::next();
        self.graphs.lock().insert(id, Vec::new());
        id
    }

    /// Forgets a graph.
    pub(super) fn remove(&self, graph: u64) -> CuResult<()> {
        self.graphs.lock().remove(&graph).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Appends a node.
    pub(super) fn append(&self, graph: u64, node: Node) -> CuResult<()> {
        let mut graphs = self.graphs.lock();
        let nodes = graphs.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if nodes.len() >= MOST_NODES {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        nodes.push(node);
        Ok(())
    }

    /// Makes an executable graph of a graph that must have this many nodes.
    pub(super) fn instantiate(&self, graph: u64, nodes: u32, flags: u64) -> CuResult<u64> {
        type Flags = CUgraphInstantiate_flags;
        if flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0) != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        if flags & !u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0) != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let graphs = self.graphs.lock();
        let known = graphs.get(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if known.len() != nodes as usize {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let nodes = known.iter().map(|node| (node.clone(), true)).collect();
        let id = handles::next();
        self.executables.lock().insert(id, Executable { graph, nodes, last: None });
        Ok(id)
    }

    /// Forgets an executable graph; launches of it under way go on.
    pub(super) fn remove_executable(&self, executable: u64) -> CuResult<()> {
        self.executables.lock().remove(&executable).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Whether there is an executable graph of this number.
    pub(super) fn check(&self, executable: u64) -> CuResult<()> {
        let known = self.executables.lock().contains_key(&executable);
        if known { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_HANDLE) }
    }

    /// Gives a node of an executable graph other work of the same kind, for the launches to come.
    pub(super) fn change(&self, executable: u64, graph: u64, number: u32, node: Node) -> CuResult<()> {
        self.with_node(executable, graph, number, |(old, _)| {
            if !old.is_like(&node) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            *old = node;
            Ok(())
        })
    }

    /// Has the launches to come carry a node out, or leave it out.
    pub(super) fn enable(&self, executable: u64, graph: u64, number: u32, enabled: bool) -> CuResult<()> {
        self.with_node(executable, graph, number, |(_, is_enabled)| {
            *is_enabled = enabled;
            Ok(())
        })
    }

    fn with_node(
        &self,
        executable: u64,
        graph: u64,
        number: u32,
        change: impl FnOnce(&mut (Node, bool)) -> CuResult<()>,
    ) -> CuResult<()> {
        let mut executables = self.executables.lock();
        let executable = executables.get_mut(&executable).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let node = executable.nodes.get_mut(number as usize).filter(|_| executable.graph == graph);
        change(node.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Launches an executable graph into a stream.
    pub(super) fn launch(
        &self,
        executable: u64,
        scheduler: &Arc<Scheduler>,
        stream: StreamId,
    ) -> CuResult<()> {
        let mut executables = self.executables.lock();
        let executable = executables.get_mut(&executable).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(last) = executable.last.filter(|last| last.stream != stream) {
            scheduler.issue_after(stream, vec![last], Action::Pass)?;
        }
        for (node, _) in executable.nodes.iter().filter(|(_, is_enabled)| *is_enabled) {
            match node {
                Node::Empty => {}
                Node::Run(operation) | Node::Kernel(operation) => {
                    scheduler.issue(stream, Operation::Shared(Arc::clone(operation)))?;
                }
                Node::Record(event) => scheduler.record_event(*event, stream, 0)?,
                Node::Values(steps) => {
                    for step in &**steps {
                        match *step {
                            ValueStep::Write { address, value } => {
                                scheduler.issue(stream, Operation::WriteValue { address, value })?;
                            }
                            ValueStep::Wait(condition) => {
                                scheduler.issue_action(stream, Action::WaitValue(condition))?;
                            }
                            ValueStep::Barrier => {}
                        }
                    }
                }
            }
        }
        executable.last = Some(scheduler.issue_action(stream, Action::Pass)?);
        Ok(())
    }
}

// What nodes of graphs do, checked as the same work in a stream is.
impl SoftwareGpu {
    pub(super) fn kernel_node(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
        parameters: &[u8],
    ) -> CuResult<Node> {
        let context = self.contexts.current()?;
        let function = self.modules.function(function.value())?;
        let module = self.modules.module_of(&function, &context)?;
        Launch::new(function, module, shape, attributes, parameters).map(Node::kernel)
    }

    pub(super) fn copy_node(&self, destination: &NativePlace, source: &NativePlace) -> CuResult<Node> {
        if destination.size() != source.size() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Node::copy(self.region_of(destination)?, self.region_of(source)?))
    }

    pub(super) fn fill_node(&self, fill: &Fill) -> CuResult<Node> {
        let node = Node::fill(fill)?;
        node.filled().map_or(Ok(()), |region| self.check_region(&region))?;
        Ok(node)
    }

    pub(super) fn values_node(&self, operations: &[ValueOperation]) -> CuResult<Node> {
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
