//! Node parameters in the structures of `cuda.h`, converted to the graph's own.

use crate::arguments::list;
use crate::model::context;
use crate::model::graph::memory::Allocation;
use crate::model::graph::work::{Calling, Copying, Filling, Kernel, Values, Work};
use crate::model::graph::{self, Edge};
use crate::remote::mirrored;
use crate::submit::graph::build::Servers;
use crate::submit::launch::Arguments;
use crate::submit::{copy, event};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUresult,
};
use causeway_api::types::LaunchShape;

pub(super) const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// A parameter structure that the program passes.
///
/// # Safety
/// `pointer` must be null or valid.
pub(super) unsafe fn required<'a, T>(pointer: *const T) -> Result<&'a T, CUresult> {
    // SAFETY: the caller passes null or a valid pointer.
    unsafe { pointer.as_ref() }.ok_or(INVALID)
}

/// The context that a node is given, the current one when it is null.
pub(super) fn context_of(raw: CUcontext) -> Result<Handle<Context>, CUresult> {
    if raw.is_null() { context::current() } else { Ok(context::resolve(raw)?.handle) }
}

/// # Safety
/// `parameters` must be what `cuGraphAddKernelNode` demands.
pub(super) unsafe fn kernel(parameters: &CUDA_KERNEL_NODE_PARAMS) -> Result<Work, CUresult> {
    let context = context_of(parameters.ctx)?;
    let function = if parameters.func.is_null() { parameters.kern as CUfunction } else { parameters.func };
    let shape = LaunchShape {
        grid: [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ],
        block: [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ],
        shared_bytes: parameters.sharedMemBytes,
    };
    let arguments = Arguments { addresses: parameters.kernelParams.cast(), extra: parameters.extra.cast() };
    // SAFETY: the caller passes parameters as `cuGraphAddKernelNode` takes them, whose arguments are those of
    // the function.
    let kernel = unsafe { Kernel::new(function, context, shape, Vec::new(), arguments) }?;
    Ok(Work::Kernel(kernel.into()))
}

/// Parameters of the form before CUDA 12, which knows functions only.
pub(super) fn without_context(parameters: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: parameters.func,
        gridDimX: parameters.gridDimX,
        gridDimY: parameters.gridDimY,
        gridDimZ: parameters.gridDimZ,
        blockDimX: parameters.blockDimX,
        blockDimY: parameters.blockDimY,
        blockDimZ: parameters.blockDimZ,
        sharedMemBytes: parameters.sharedMemBytes,
        kernelParams: parameters.kernelParams,
        extra: parameters.extra,
        ..CUDA_KERNEL_NODE_PARAMS::default()
    }
}

/// The same in that form.
pub(super) fn of_functions(parameters: &CUDA_KERNEL_NODE_PARAMS) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    CUDA_KERNEL_NODE_PARAMS_v1 {
        func: parameters.func,
        gridDimX: parameters.gridDimX,
        gridDimY: parameters.gridDimY,
        gridDimZ: parameters.gridDimZ,
        blockDimX: parameters.blockDimX,
        blockDimY: parameters.blockDimY,
        blockDimZ: parameters.blockDimZ,
        sharedMemBytes: parameters.sharedMemBytes,
        kernelParams: parameters.kernelParams,
        extra: parameters.extra,
    }
}

pub(super) fn copy(parameters: &CUDA_MEMCPY3D, context: CUcontext) -> Result<Work, CUresult> {
    let copying = Copying { parameters: *parameters, context: context_of(context)? };
    copy::endpoints(&copying.parameters)?;
    Ok(Work::Copy(copying))
}

pub(super) fn fill(parameters: &CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Result<Work, CUresult> {
    let context = context_of(context)?;
    let filling = Filling::new(*parameters, context)?;
    let fill = filling.fill();
    let row = fill.width.saturating_mul(fill.element.into());
    let rest = fill.pitch.saturating_mul(fill.height.saturating_sub(1));
    crate::submit::device_memory::check_range(fill.address, rest.saturating_add(row))?;
    Ok(Work::Fill(filling))
}

pub(super) fn host(parameters: &CUDA_HOST_NODE_PARAMS) -> Result<Work, CUresult> {
    let function = parameters.fn_.ok_or(INVALID)?;
    Ok(Work::Host(Calling { function, data: parameters.userData }))
}

pub(super) fn record(event: CUevent) -> Result<Work, CUresult> {
    Ok(Work::Record(event::named(event)?))
}

pub(super) fn wait(event: CUevent) -> Result<Work, CUresult> {
    Ok(Work::Wait(event::named(event)?))
}

/// # Safety
/// The list of operations must be as long as it says, each of the form that its kind says.
pub(super) unsafe fn values(parameters: &CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Result<Work, CUresult> {
    let context = context_of(parameters.ctx)?;
    // SAFETY: the caller's list has `count` operations, each of the form that its kind says.
    let values = unsafe {
        let operations = list(parameters.paramArray.cast_const(), parameters.count as usize)?;
        Values::new(operations, parameters.flags, context)?
    };
    values.operations()?.iter().try_for_each(|operation| mirrored::note_address(operation.address))?;
    Ok(Work::Values(values.into()))
}

/// # Safety
/// The list of access descriptions must be as long as it says.
pub(super) unsafe fn allocation(
    graph: CUgraph,
    before: &[Edge],
    parameters: &mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<Work, CUresult> {
    // SAFETY: the caller's list of access descriptions has as many entries as it says.
    let allocation = unsafe { Allocation::new(graph::resolve(graph)?, before, parameters, &Servers) }?;
    parameters.dptr = allocation.address;
    Ok(Work::Allocate(allocation))
}

pub(super) fn free(address: CUdeviceptr) -> Result<Work, CUresult> {
    // Graphs may free only what graphs allocate, and that once.
    if graph::memory::may_be_freed(address) { Ok(Work::Free(address)) } else { Err(INVALID) }
}
