//! What nodes do, in the forms in which the driver takes it.

use crate::calls::launch::ParameterBuffer;
use crate::context;
use crate::driver::Driver;
use causeway_api::handle::{Context, Function, Native};
use causeway_api::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUkernel, CUresult,
    CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
};
use causeway_api::types::{Fill, LaunchShape, ValueOperation};
use causeway_gpu::CuResult;

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
