//! Streams.

use crate::abi::entry::Outcome;
use crate::arguments::{Address, list, write_optional, write_out};
use crate::log::refuse_use;
use crate::model::graph::work::Values;
use crate::model::handles::RawHandle as _;
use crate::model::stream::StreamState;
use crate::model::{context, handles};
use crate::remote::mirrored;
use crate::submit::callbacks::Task;
use crate::submit::streams::DefaultStream;
use crate::submit::{capture, device_memory, event, send, streams, task};
use causeway_api::calls::{self, Call};
use causeway_api::handle::Stream;
use causeway_api::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUevent_wait_flags, CUgreenCtx, CUresult, CUstream,
    CUstreamAttrID, CUstreamAttrValue, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, CUstreamCallback,
    CUstreamWaitValue_flags, CUstreamWriteValue_flags,
};
use causeway_api::types::{LaunchAttribute, ValueOperation};
use core::ffi::c_void;
use std::sync::Arc;

/// The stream that the program passed to put work into it.
fn resolve(raw: CUstream, default_stream: DefaultStream) -> Result<Arc<StreamState>, CUresult> {
    context::stream(streams::resolve(raw, default_stream)?)
}

/// The stream that the program asks about.
fn named(raw: CUstream, default_stream: DefaultStream) -> Result<Arc<StreamState>, CUresult> {
    context::stream(streams::named(raw, default_stream)?)
}

pub unsafe fn cuStreamCreate(phStream: *mut CUstream, Flags: u32) -> Outcome {
    // SAFETY: the program has room for a stream at `phStream`, or passes null.
    unsafe { cuStreamCreateWithPriority(phStream, Flags, 0) }
}

pub unsafe fn cuStreamCreateWithPriority(phStream: *mut CUstream, flags: u32, priority: i32) -> Outcome {
    if phStream.is_null() || flags > 1 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phStream, streams::create(flags, priority)?.as_raw()) }
}

pub unsafe fn cuStreamDestroy_v2(hStream: CUstream) -> Outcome {
    streams::destroy(handles::resolve::<Stream>(hStream)?)
}

pub unsafe fn cuStreamGetPriority(hStream: CUstream, priority: *mut i32, ds: DefaultStream) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(priority, named(hStream, ds)?.priority()) }
}

pub unsafe fn cuStreamGetId(hStream: CUstream, streamId: *mut u64, ds: DefaultStream) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(streamId, named(hStream, ds)?.id) }
}

pub unsafe fn cuStreamGetFlags(hStream: CUstream, flags: *mut u32, ds: DefaultStream) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(flags, named(hStream, ds)?.flags) }
}

pub unsafe fn cuStreamGetDevice(hStream: CUstream, out: *mut CUdevice, ds: DefaultStream) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, context::state(named(hStream, ds)?.context)?.device) }
}

pub unsafe fn cuStreamGetCtx(hStream: CUstream, pctx: *mut CUcontext, ds: DefaultStream) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(pctx, named(hStream, ds)?.context.as_raw()) }
}

pub unsafe fn cuStreamWaitEvent(
    hStream: CUstream,
    hEvent: CUevent,
    Flags: u32,
    ds: DefaultStream,
) -> Outcome {
    let external = CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0;
    let (event, stream) = (event::resolve(hEvent)?, resolve(hStream, ds)?);
    if Flags & !external != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if Flags & external != 0 && capture::of(&stream) == 0 {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    event.delay(&stream, Flags)
}

pub unsafe fn cuStreamAddCallback(
    hStream: CUstream,
    callback: CUstreamCallback,
    userData: *mut c_void,
    flags: u32,
    ds: DefaultStream,
) -> Outcome {
    let function = callback.filter(|_| flags == 0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let stream = resolve(hStream, ds)?;
    let after = stream.pending_writes();
    let task = Task::Callback { function, stream: Address(hStream.cast()), data: Address(userData), after };
    task::post(&stream, task)
}

pub unsafe fn cuStreamQuery(hStream: CUstream, ds: DefaultStream) -> Outcome {
    let stream = resolve(hStream, ds)?;
    capture::refuse_wait(&stream)?;
    capture::refuse_unsafe()?;
    stream.query()
}

pub unsafe fn cuStreamSynchronize(hStream: CUstream, ds: DefaultStream) -> Outcome {
    let stream = resolve(hStream, ds)?;
    capture::refuse_wait(&stream)?;
    capture::refuse_unsafe()?;
    stream.synchronize()
}

/// Puts a command about a value at an address into a stream.
fn post_value(state: &StreamState, address: CUdeviceptr, request: &impl Call<Reply = ()>) -> Outcome {
    send::post(request)?;
    if device_memory::is_known(address) || capture::of(state) != 0 {
        Ok(())
    } else {
        device_memory::wait_for_server(state.context)
    }
}

/// Has a stream wait for a value at an address.
fn post_wait(state: &StreamState, address: CUdeviceptr, request: &impl Call<Reply = ()>) -> Outcome {
    post_value(state, address, request)?;
    state.add_hazard();
    Ok(())
}

/// The flags of a wait: which comparison, and whether writes of other devices are to be seen behind it.
const WAIT_FLAGS: u32 = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR.0
    | CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_FLUSH.0;
const WRITE_FLAGS: u32 = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER.0;

/// A stream would not see what the program writes there while it waits.
fn refuse_host_memory(address: CUdeviceptr) -> Outcome {
    let is_host = mirrored::contains(address) || crate::model::host_window::contains(address as usize);
    if is_host && !mirrored::is_same_memory(address as usize) {
        return Err(refuse_use!("a stream that waits for a value in host memory"));
    }
    Ok(())
}

/// Refuses an operation of a batch, or of a call of its own: a value at an address where none can be, flags
/// that are none, and what no device can.
fn check_operation(operation: &ValueOperation) -> Outcome {
    let ValueOperation { kind, address, flags, .. } = *operation;
    let (bytes, allowed) = match CUstreamBatchMemOpType(kind) {
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32 => (4, WAIT_FLAGS),
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_64 => (8, WAIT_FLAGS),
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32 => (4, WRITE_FLAGS),
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_64 => (8, WRITE_FLAGS),
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_BARRIER => return Ok(()),
        // No device says that it can (CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES).
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    if allowed == WAIT_FLAGS {
        refuse_host_memory(address)?;
    }
    if !address.is_multiple_of(bytes) || flags & !allowed != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    device_memory::check_range(address, bytes)
}

/// Puts an operation that was checked into a stream.
fn post_operation(operation: &ValueOperation, state: &StreamState) -> Outcome {
    let ValueOperation { kind, address: addr, value, flags } = *operation;
    let stream = state.handle;
    // Of 32 bits it is the low half.
    let low = value as u32;
    match CUstreamBatchMemOpType(kind) {
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
            post_wait(state, addr, &calls::cuStreamWaitValue32_v2 { stream, addr, value: low, flags })
        }
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
            post_wait(state, addr, &calls::cuStreamWaitValue64_v2 { stream, addr, value, flags })
        }
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32 => {
            post_value(state, addr, &calls::cuStreamWriteValue32_v2 { stream, addr, value: low, flags })
        }
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
            post_value(state, addr, &calls::cuStreamWriteValue64_v2 { stream, addr, value, flags })
        }
        _ => send::post(&calls::stream_memory_barrier { stream, operation: kind, flags }),
    }
}

macro_rules! operations_with_values {
    ($($call:ident: $type:ty, $kind:ident;)*) => {$(
        pub unsafe fn $call(
            stream: CUstream,
            addr: CUdeviceptr,
            value: $type,
            flags: u32,
            ds: DefaultStream,
        ) -> Outcome {
            let state = resolve(stream, ds)?;
            let kind = CUstreamBatchMemOpType::$kind.0;
            let operation = ValueOperation { kind, address: addr, value: value.into(), flags };
            check_operation(&operation)?;
            post_operation(&operation, &state)
        }
    )*};
}

operations_with_values! {
    cuStreamWaitValue32_v2: u32, CU_STREAM_MEM_OP_WAIT_VALUE_32;
    cuStreamWaitValue64_v2: u64, CU_STREAM_MEM_OP_WAIT_VALUE_64;
    cuStreamWriteValue32_v2: u32, CU_STREAM_MEM_OP_WRITE_VALUE_32;
    cuStreamWriteValue64_v2: u64, CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

/// The operations go into the stream one after the other, all of them or none; that they become visible together is not
/// promised by CUDA either.
pub unsafe fn cuStreamBatchMemOp_v2(
    stream: CUstream,
    count: u32,
    paramArray: *const CUstreamBatchMemOpParams,
    flags: u32,
    ds: DefaultStream,
) -> Outcome {
    /// CUDA takes no more in one batch.
    const MAX_QUERIED: u32 = 256;
    if count > MAX_QUERIED || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let state = resolve(stream, ds)?;
    // SAFETY: a list of `count` operations.
    let operations = unsafe { list(paramArray, count as usize) }?;
    if operations.is_empty() {
        return streams::synchronize_implicitly(&state);
    }
    // SAFETY: every form begins with its kind, which says which form it is.
    let values = unsafe { Values::new(operations, flags, state.context) }?;
    let operations = values.operations()?;
    operations.iter().try_for_each(check_operation)?;
    operations.iter().try_for_each(|operation| post_operation(operation, &state))
}

pub unsafe fn cuStreamGetAttribute(
    hStream: CUstream,
    attr: CUstreamAttrID,
    value: *mut CUstreamAttrValue,
    ds: DefaultStream,
) -> Outcome {
    // Events are attributes of launches, and streams have none.
    let is_of_launches = matches!(
        attr,
        CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
            | CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT
    );
    if value.is_null() || is_of_launches {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let stream = named(hStream, ds)?;
    let request = calls::stream_attribute_get { stream: stream.handle, attribute: attr.0 };
    let found = send::call_in(stream.context, &request)?;
    // SAFETY: not null, so there is room for the result, which is as large as what is stored.
    unsafe { value.cast::<[u8; size_of::<CUstreamAttrValue>()]>().write(found.value) };
    Ok(())
}

pub unsafe fn cuStreamSetAttribute(
    hStream: CUstream,
    attr: CUstreamAttrID,
    param: *const CUstreamAttrValue,
    ds: DefaultStream,
) -> Outcome {
    let stream = named(hStream, ds)?;
    // SAFETY: a value, or null.
    let requested = unsafe { param.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: every byte of the union belongs to its `pad`, and any byte is a valid number.
    let value = unsafe { requested.pad }.map(|byte| byte as u8);
    let attribute = LaunchAttribute { id: attr.0, value };
    send::call_in(stream.context, &calls::stream_attribute_set { stream: stream.handle, attribute })?;
    if attr == CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY {
        // SAFETY: the attribute is a priority.
        stream.set_priority(unsafe { requested.priority });
    }
    Ok(())
}

pub unsafe fn cuStreamGetCtx_v2(
    hStream: CUstream,
    pCtx: *mut CUcontext,
    pGreenCtx: *mut CUgreenCtx,
    ds: DefaultStream,
) -> Outcome {
    let stream = named(hStream, ds)?;
    let green = super::green_context::of_context(stream.context);
    // A green context lies in the primary context of its device.
    let context = match green {
        Some(_) => context::primary(context::state(stream.context)?.device)?.handle,
        None => stream.context,
    };
    // SAFETY: room for the results; the second may be null.
    unsafe {
        write_out(pCtx, context.as_raw())?;
        write_optional(pGreenCtx, green.unwrap_or(core::ptr::null_mut()));
    }
    Ok(())
}
