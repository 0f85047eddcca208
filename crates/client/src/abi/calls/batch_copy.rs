//! Batches of copies. They go into the stream one after the other, which is one of the orders that CUDA
//! allows.

use super::copy::{CopyMode, anywhere, linear, run};
use crate::abi::entry::Outcome;
use crate::arguments::{list, write_optional};
use crate::model::array;
use crate::submit::copy::{CopyBox, Mode};
use crate::submit::streams;
use crate::submit::streams::DefaultStream;
use causeway_api::sys::{
    CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, CUmemcpy3DOperand, CUmemcpy3DOperandType, CUmemcpyAttributes,
    CUmemcpySrcAccessOrder, CUmemorytype, CUresult, CUstream,
};

/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE` is a hint, and there are no other flags.
const KNOWN_FLAGS: u32 = 1;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// When the source of a copy may be read, as the program says it.
fn mode(order: CUmemcpySrcAccessOrder, flags: u32) -> Result<Mode, CUresult> {
    if flags & !KNOWN_FLAGS != 0 {
        return Err(INVALID);
    }
    match order {
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM => Ok(Mode::Asynchronous),
        // The source need not wait for the stream, so it is read at once.
        CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
        | CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_ANY => Ok(Mode::SourceAtOnce),
        _ => Err(INVALID),
    }
}

/// The legacy default stream cannot have batches.
fn refuse_legacy(stream: CUstream, ds: DefaultStream) -> Outcome {
    if streams::resolve(stream, ds)?.is_null() { Err(INVALID) } else { Ok(()) }
}

pub unsafe fn cuMemcpyBatchAsync_v2(
    dsts: *const CUdeviceptr,
    srcs: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    attrs: *const CUmemcpyAttributes,
    attrsIdxs: *const usize,
    numAttrs: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    let mut failed = usize::MAX;
    // SAFETY: the program's lists have `count` and `numAttrs` entries, and `failed` is a local.
    unsafe {
        cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &mut failed, stream, ds)
    }
}

pub unsafe fn cuMemcpyBatchAsync(
    dsts: *const CUdeviceptr,
    srcs: *const CUdeviceptr,
    sizes: *const usize,
    count: usize,
    attrs: *const CUmemcpyAttributes,
    attrsIdxs: *const usize,
    numAttrs: usize,
    failIdx: *mut usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: room for a number, or null. This value says that no copy in particular is at fault.
    unsafe { write_optional(failIdx, usize::MAX) };
    if count == 0 || numAttrs == 0 || numAttrs > count {
        return Err(INVALID);
    }
    refuse_legacy(stream, ds)?;
    // SAFETY: lists of the lengths that the program says.
    let (destinations, sources, sizes) =
        unsafe { (list(dsts, count)?, list(srcs, count)?, list(sizes, count)?) };
    // SAFETY: lists of the lengths that the program says.
    let (attributes, firsts) = unsafe { (list(attrs, numAttrs)?, list(attrsIdxs, numAttrs)?) };
    let ordered = firsts.windows(2).all(|pair| pair[0] < pair[1]);
    if firsts[0] != 0 || !ordered || firsts[numAttrs - 1] >= count {
        return Err(INVALID);
    }
    let modes = attributes
        .iter()
        .map(|attribute| mode(attribute.srcAccessOrder, attribute.flags))
        .collect::<Result<Vec<_>, _>>()?;
    let mut group = 0;
    for index in 0..count {
        if firsts.get(group + 1) == Some(&index) {
            group += 1;
        }
        let copy_mode = CopyMode { stream, default_stream: ds, mode: modes[group] };
        let outcome = match sizes[index] {
            0 => Err(INVALID),
            // SAFETY: the program keeps what it copies from readable and to writable, `bytes` bytes each,
            // until the copy is done.
            bytes => unsafe {
                linear(anywhere(destinations[index]), anywhere(sources[index]), bytes, copy_mode)
            },
        };
        // SAFETY: room for a number, or null.
        outcome.inspect_err(|_| unsafe { write_optional(failIdx, index) })?;
    }
    Ok(())
}

pub unsafe fn cuMemcpy3DBatchAsync_v2(
    numOps: usize,
    opList: *const CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    let mut failed = usize::MAX;
    // SAFETY: the program's list has `numOps` operations, and `failed` is a local.
    unsafe { cuMemcpy3DBatchAsync(numOps, opList, &mut failed, flags, stream, ds) }
}

pub unsafe fn cuMemcpy3DBatchAsync(
    numOps: usize,
    opList: *const CUDA_MEMCPY3D_BATCH_OP,
    failIdx: *mut usize,
    flags: u64,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: room for a number, or null. This value says that no copy in particular is at fault.
    unsafe { write_optional(failIdx, usize::MAX) };
    if numOps == 0 || flags != 0 {
        return Err(INVALID);
    }
    refuse_legacy(stream, ds)?;
    // SAFETY: a list of `numOps` copies.
    for (index, operation) in unsafe { list(opList, numOps) }?.iter().enumerate() {
        // SAFETY: the program gives operands of the form that their types say, with host memory that stays
        // until the copy is done.
        let outcome = unsafe { one(operation, stream, ds) };
        // SAFETY: room for a number, or null.
        outcome.inspect_err(|_| unsafe { write_optional(failIdx, index) })?;
    }
    Ok(())
}

/// # Safety
/// The operation's operands must be as their types say, and host memory must be valid.
unsafe fn one(operation: &CUDA_MEMCPY3D_BATCH_OP, stream: CUstream, ds: DefaultStream) -> Outcome {
    let (to, from) = (&operation.dst, &operation.src);
    // SAFETY: the caller gives operands of the form that their types say.
    let (to_element, from_element) = unsafe { (element(to)?, element(from)?) };
    let element = match (to_element, from_element) {
        (Some(to), Some(from)) if to != from => return Err(INVALID),
        (to, from) => to.or(from).unwrap_or(1),
    };
    let extent = operation.extent;
    let size = [extent.width.checked_mul(element).ok_or(INVALID)?, extent.height, extent.depth];
    if size.contains(&0) {
        return Err(INVALID);
    }
    // SAFETY: the caller gives operands of the form that their types say.
    let (to, from) = unsafe { (side(to, element, size)?, side(from, element, size)?) };
    let copy_mode =
        CopyMode { stream, default_stream: ds, mode: mode(operation.srcAccessOrder, operation.flags)? };
    // SAFETY: the caller keeps the operands' host memory valid until the copy is done.
    unsafe { run(to.endpoint(size)?, from.endpoint(size)?, copy_mode) }
}

/// Bytes of an element of an operand; nothing for one that is no array.
///
/// # Safety
/// The operand must be as its type says.
unsafe fn element(operand: &CUmemcpy3DOperand) -> Result<Option<usize>, CUresult> {
    if operand.type_ != CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY {
        return Ok(None);
    }
    // SAFETY: the caller gives an operand of the form that its type says, which is an array here.
    let array = array::resolve(unsafe { operand.op.array }.array)?;
    Ok(Some(array.element_bytes().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)? as usize))
}

/// # Safety
/// The operand must be as its type says.
unsafe fn side(operand: &CUmemcpy3DOperand, element: usize, size: [usize; 3]) -> Result<CopyBox, CUresult> {
    let (host, array) = (core::ptr::null_mut(), core::ptr::null_mut());
    let bytes = |elements: usize| elements.checked_mul(element).ok_or(INVALID);
    match operand.type_ {
        CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER => {
            // SAFETY: the caller gives an operand of the form that its type says, which is a pointer here.
            let memory = unsafe { operand.op.ptr };
            let pitch = bytes(memory.rowLength)?;
            if pitch != 0 && pitch < size[0] || memory.layerHeight != 0 && memory.layerHeight < size[1] {
                return Err(INVALID);
            }
            let kind = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
            let height = memory.layerHeight;
            Ok(CopyBox { kind, host, device: memory.ptr, array, offset: [0; 3], pitch, height })
        }
        CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY => {
            // SAFETY: the caller gives an operand of the form that its type says, which is an array here.
            let part = unsafe { operand.op.array };
            let (kind, offset) =
                (CUmemorytype::CU_MEMORYTYPE_ARRAY, [bytes(part.offset.x)?, part.offset.y, part.offset.z]);
            Ok(CopyBox { kind, host, device: 0, array: part.array, offset, pitch: 0, height: 0 })
        }
        _ => Err(INVALID),
    }
}
