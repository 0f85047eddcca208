//! Work of graph nodes: between the structures of `cuda.h`, in which the program gives and gets it, and the
//! session's own.

pub use super::copying::Copying;
use super::memory::Allocation;
use crate::model::handles::RawHandle as _;
use causeway_api::handle::{Context, Event, Function, Graph, Handle, Kernel as KernelKind, Kind};
use causeway_api::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUdeviceptr, CUgraph,
    CUgraphNodeType, CUlaunchAttributeID, CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
};
use causeway_api::types::{Fill, LaunchAttribute, LaunchShape, ValueOperation};
use core::ffi::c_void;
use std::sync::Arc;

/// What a node does.
#[derive(Clone)]
pub enum Work {
    /// Nothing.
    Empty,
    /// Runs a kernel.
    Kernel(Arc<Kernel>),
    /// Copies.
    Copy(Copying),
    /// Fills device memory.
    Fill(Filling),
    /// Calls a function of the program.
    Host(Calling),
    /// Carries out a graph, which belongs to the node.
    Child(Handle<Graph>),
    /// Records an event.
    Record(Handle<Event>),
    /// Waits for what an event recorded before the launch.
    Wait(Handle<Event>),
    /// Stream memory operations.
    Values(Arc<Values>),
    /// Allocates memory.
    Allocate(Arc<Allocation>),
    /// Frees memory.
    Free(CUdeviceptr),
    /// Carries graphs out as a value says that kernels set.
    Conditional(Arc<Conditional>),
}

/// A kernel with its parameters.
pub struct Kernel {
    /// The function, or a kernel in its place.
    pub function: Handle<Function>,
    /// The kernel of a library that it is, if it is one; the runtime knows its functions by that.
    pub(crate) kernel: Handle<KernelKind>,
    /// Where it runs.
    pub context: Handle<Context>,
    /// Grid, blocks, shared memory.
    pub shape: LaunchShape,
    /// Launch attributes.
    pub attributes: Vec<LaunchAttribute>,
    /// The parameter buffer.
    pub params: Box<[u8]>,
    /// Where each parameter lies in the buffer, as programs get it.
    pub(crate) addresses: Box<[*mut c_void]>,
}

// SAFETY: the addresses lead into the kernel's own buffer; only the program looks behind them.
unsafe impl Send for Kernel {}
// SAFETY: the addresses lead into the kernel's own buffer; only the program looks behind them.
unsafe impl Sync for Kernel {}

/// A fill as the program describes it.
#[derive(Clone, Copy)]
pub struct Filling {
    /// The description.
    pub parameters: CUDA_MEMSET_NODE_PARAMS,
    /// The context that it was given for.
    pub context: Handle<Context>,
}

/// A function of the program and what it gets.
#[derive(Clone, Copy)]
pub struct Calling {
    /// The function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// What it gets.
    pub data: *mut c_void,
}

// SAFETY: the program gave the address to be passed on to another thread; we never look behind it.
unsafe impl Send for Calling {}
// SAFETY: the program gave the address to be passed on to another thread; we never look behind it.
unsafe impl Sync for Calling {}

/// Stream memory operations as the program describes them.
pub struct Values {
    /// The context that they were given for.
    pub context: Handle<Context>,
    /// The operations.
    pub operations: Box<[CUstreamBatchMemOpParams]>,
    /// Flags of all of them.
    pub flags: u32,
}

/// A conditional node.
pub struct Conditional {
    /// The graphs that it carries out.
    pub bodies: Vec<Handle<Graph>>,
    /// The same as the program gets them.
    pub raw_bodies: Box<[CUgraph]>,
    /// The node's number in the graph of the server.
    pub number: u32,
    /// The context that it was given for.
    pub context: Handle<Context>,
}

// SAFETY: the list holds handles, not addresses.
unsafe impl Send for Conditional {}
// SAFETY: the list holds handles, not addresses.
unsafe impl Sync for Conditional {}

/// Whether kernel nodes have this attribute of launches.
pub fn is_node_attribute(attribute: u32) -> bool {
    type Id = CUlaunchAttributeID;
    matches!(
        CUlaunchAttributeID(attribute),
        Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            | Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            | Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | Id::CU_LAUNCH_ATTRIBUTE_PRIORITY
            | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
            | Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
            | Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            | Id::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING
    )
}

impl Work {
    /// The type of a node that does this.
    pub fn kind(&self) -> CUgraphNodeType {
        match self {
            Self::Empty => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Kernel(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Copy(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Fill(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Host(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Record(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Wait(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Values(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Self::Allocate(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE,
            Self::Conditional(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
        }
    }

    /// The graphs that it carries out.
    pub fn graphs(&self) -> Vec<Handle<Graph>> {
        match self {
            Self::Child(graph) => vec![*graph],
            Self::Conditional(conditional) => conditional.bodies.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether the client has something to do for it at each launch of its graph, whoever carries it out.
    pub fn concerns_launch(&self) -> bool {
        match self {
            Self::Allocate(_) | Self::Free(_) | Self::Wait(_) | Self::Record(_) => true,
            Self::Values(values) => values.waits(),
            _ => false,
        }
    }

    /// Whether the node allocates or frees: a graph with such a node cannot be copied, nor lose nodes.
    pub fn binds_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }
}

impl Kernel {
    /// Whether `function` is a kernel of a library.
    pub fn is_of_library(&self) -> bool {
        self.function.tag() == KernelKind::TAG
    }

    /// As the program gets it. What it leads to lives as long as the kernel.
    pub fn describe(&self) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            func: self.function.as_raw(),
            gridDimX: self.shape.grid[0],
            gridDimY: self.shape.grid[1],
            gridDimZ: self.shape.grid[2],
            blockDimX: self.shape.block[0],
            blockDimY: self.shape.block[1],
            blockDimZ: self.shape.block[2],
            sharedMemBytes: self.shape.shared_bytes,
            kernelParams: if self.addresses.is_empty() {
                core::ptr::null_mut()
            } else {
                self.addresses.as_ptr().cast_mut()
            },
            extra: core::ptr::null_mut(),
            kern: self.kernel.as_raw(),
            ctx: self.context.as_raw(),
        }
    }
}

impl Filling {
    /// As it travels.
    pub fn fill(&self) -> Fill {
        Fill {
            address: self.parameters.dst,
            pitch: self.parameters.pitch as u64,
            value: self.parameters.value,
            element: self.parameters.elementSize,
            width: self.parameters.width as u64,
            height: self.parameters.height as u64,
        }
    }

    /// Whether the fill is of one dimension; others cannot be changed in an executable graph.
    pub fn is_linear(&self) -> bool {
        self.parameters.height <= 1
    }
}

impl Values {
    /// Checks a list of operations.
    ///
    /// # Safety
    /// Each operation must have the form that its kind says.
    pub unsafe fn new(
        operations: &[CUstreamBatchMemOpParams],
        flags: u32,
        context: Handle<Context>,
    ) -> Result<Self, CUresult> {
        /// CUDA takes no more in one batch.
        const MAX_NODES_IN_FLIGHT: usize = 256;
        if operations.is_empty() || operations.len() > MAX_NODES_IN_FLIGHT || flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let values = Self { context, operations: operations.into(), flags };
        values.operations().map(|_| values)
    }

    /// One operation alone.
    pub fn single(operation: ValueOperation, context: Handle<Context>) -> Self {
        Self { context, operations: [describe(operation)].into(), flags: 0 }
    }

    /// As they travel.
    pub fn operations(&self) -> Result<Vec<ValueOperation>, CUresult> {
        type Kind = CUstreamBatchMemOpType;
        let operation = |raw: &CUstreamBatchMemOpParams| {
            // SAFETY: every form begins with its kind, which says which form it is.
            let (kind, address, value, flags) = unsafe {
                let kind = raw.operation;
                match kind {
                    Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 | Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                        let wait = raw.waitValue;
                        (kind, wait.address, wait.__bindgen_anon_1.value64, wait.flags)
                    }
                    Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32 | Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                        let write = raw.writeValue;
                        (kind, write.address, write.__bindgen_anon_1.value64, write.flags)
                    }
                    Kind::CU_STREAM_MEM_OP_BARRIER => (kind, 0, 0, raw.memoryBarrier.flags),
                    Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => (kind, 0, 0, 0),
                    _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
                }
            };
            Ok(ValueOperation { kind: kind.0, address, value, flags })
        };
        self.operations.iter().map(operation).collect()
    }

    /// As the program gets them. What the description leads to lives as long as the operations.
    pub fn describe(&self) -> CUDA_BATCH_MEM_OP_NODE_PARAMS {
        CUDA_BATCH_MEM_OP_NODE_PARAMS {
            ctx: self.context.as_raw(),
            count: self.operations.len() as u32,
            paramArray: self.operations.as_ptr().cast_mut(),
            flags: self.flags,
        }
    }

    /// Whether something must happen for the operations to end.
    pub fn waits(&self) -> bool {
        type Kind = CUstreamBatchMemOpType;
        let is_wait = |operation: &CUstreamBatchMemOpParams| {
            // SAFETY: every form begins with its kind.
            let kind = unsafe { operation.operation };
            kind == Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 || kind == Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64
        };
        self.operations.iter().any(is_wait)
    }
}

// SAFETY: an operation may hold a device address, which is a number.
unsafe impl Send for Values {}
// SAFETY: an operation may hold a device address, which is a number.
unsafe impl Sync for Values {}

/// An operation as `cuda.h` describes it. Waits and writes have their fields at the same places.
fn describe(operation: ValueOperation) -> CUstreamBatchMemOpParams {
    let mut raw = CUstreamBatchMemOpParams::default();
    raw.writeValue.address = operation.address;
    raw.writeValue.__bindgen_anon_1.value64 = operation.value;
    raw.writeValue.flags = operation.flags;
    raw.operation = CUstreamBatchMemOpType(operation.kind);
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_memory_operations_travel_as_they_were_given() {
        type Kind = CUstreamBatchMemOpType;
        let kind = Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64.0;
        let operation = ValueOperation { kind, address: 0x1000, value: 1 << 40, flags: 1 };
        let values = Values::single(operation, Handle::NULL);
        assert_eq!(values.operations(), Ok(vec![operation]));
        assert!(values.waits() && values.describe().count == 1);
    }
}
