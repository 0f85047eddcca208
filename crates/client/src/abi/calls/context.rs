//! Contexts; the current one of a thread lives here and costs no round trip.

use crate::abi::entry::Outcome;
use crate::arguments::{write_optional, write_out};
use crate::log::refuse_use;
use crate::model::handles::RawHandle as _;
use crate::model::{context, device};
use crate::submit::context::lifetime;
use crate::submit::{capture, send};
use causeway_api::calls;
use causeway_api::handle::Handle;
use causeway_api::sys::{
    CUcontext, CUctxCreateParams, CUdevice, CUexecAffinityParam, CUfunc_cache, CUlimit, CUresult,
    CUsharedconfig,
};
use std::sync::atomic::Ordering;

/// The version that contexts report, as every driver since CUDA 4 does.
const CONTEXT_VERSION: u32 = 3020;

/// Flags of `cuCtxCreate` and `cuDevicePrimaryCtxSetFlags` that mean something here: scheduling (0 to 4),
/// mapped host memory, local memory that is kept, and the two kinds of core dumps and synchronous copies.
const KNOWN_FLAGS: u32 = 0xff;

pub unsafe fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) -> Outcome {
    if pctx.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pctx, lifetime::retain(dev)?.as_raw()) }
}

pub unsafe fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> Outcome {
    lifetime::release(dev)
}

pub unsafe fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) -> Outcome {
    if flags & !KNOWN_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    lifetime::set_primary_flags(dev, flags)
}

pub unsafe fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut u32, active: *mut i32) -> Outcome {
    let state = context::primary(dev)?;
    // SAFETY: room for both results, or null.
    unsafe {
        write_optional(flags, state.flags());
        write_optional(active, i32::from(state.is_active()));
    }
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> Outcome {
    lifetime::reset(dev)
}

pub unsafe fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> Outcome {
    if pctx.is_null() || flags & !KNOWN_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pctx, lifetime::create(dev, flags)?.as_raw()) }
}

pub unsafe fn cuCtxCreate_v3(
    pctx: *mut CUcontext,
    _paramsArray: *const CUexecAffinityParam,
    numParams: i32,
    flags: u32,
    dev: CUdevice,
) -> Outcome {
    if numParams != 0 {
        return Err(refuse_use!("contexts with execution affinity"));
    }
    // SAFETY: the program has room for a context at `pctx`, or passes null.
    unsafe { cuCtxCreate_v2(pctx, flags, dev) }
}

pub unsafe fn cuCtxCreate_v4(
    pctx: *mut CUcontext,
    ctxCreateParams: *const CUctxCreateParams,
    flags: u32,
    dev: CUdevice,
) -> Outcome {
    // SAFETY: parameters, or null.
    let params = unsafe { ctxCreateParams.as_ref() };
    if params.is_some_and(|params| params.numExecAffinityParams != 0 || !params.cigParams.is_null()) {
        return Err(refuse_use!("contexts with execution affinity or for graphics"));
    }
    // SAFETY: the program has room for a context at `pctx`, or passes null.
    unsafe { cuCtxCreate_v2(pctx, flags, dev) }
}

pub unsafe fn cuCtxDestroy_v2(ctx: CUcontext) -> Outcome {
    if ctx.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    lifetime::destroy(&*context::resolve(ctx)?)
}

pub unsafe fn cuCtxPushCurrent_v2(ctx: CUcontext) -> Outcome {
    if ctx.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    context::push(context::resolve(ctx)?.handle);
    Ok(())
}

pub unsafe fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) -> Outcome {
    let handle = context::pop()?;
    // SAFETY: room for the result, or null.
    unsafe { write_optional(pctx, handle.as_raw()) };
    Ok(())
}

pub unsafe fn cuCtxSetCurrent(ctx: CUcontext) -> Outcome {
    let handle = if ctx.is_null() { Handle::NULL } else { context::resolve(ctx)?.handle };
    context::set_current(handle);
    Ok(())
}

pub unsafe fn cuCtxGetCurrent(pctx: *mut CUcontext) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(pctx, context::current_or_none().as_raw()) }
}

pub unsafe fn cuCtxGetDevice(out: *mut CUdevice) -> Outcome {
    let current = context::current_or_none();
    if current.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, context::state(current)?.device) }
}

pub unsafe fn cuCtxGetDevice_v2(out: *mut CUdevice, ctx: CUcontext) -> Outcome {
    if ctx.is_null() {
        // SAFETY: the program has room for a device at `out`, or passes null.
        return unsafe { cuCtxGetDevice(out) };
    }
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, context::resolve(ctx)?.device) }
}

pub unsafe fn cuCtxGetFlags(flags: *mut u32) -> Outcome {
    /// `CU_CTX_MAP_HOST`: pinned memory can be mapped in every context, and the driver says so of all.
    const MAPS_HOST: u32 = 8;
    // SAFETY: room for the result, or null.
    unsafe { write_out(flags, context::current_state()?.flags() | MAPS_HOST) }
}

pub unsafe fn cuCtxSetFlags(flags: u32) -> Outcome {
    if flags & !KNOWN_FLAGS != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let state = context::current_state()?;
    send::post(&calls::cuCtxSetFlags { flags })?;
    state.set_flags(flags);
    Ok(())
}

pub unsafe fn cuCtxGetId(ctx: CUcontext, ctxId: *mut u64) -> Outcome {
    let state = if ctx.is_null() { context::current_state() } else { context::resolve(ctx) }?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(ctxId, state.id()) }
}

pub unsafe fn cuCtxSynchronize() -> Outcome {
    synchronize(&*context::current_state()?)
}

pub unsafe fn cuCtxSynchronize_v2(ctx: CUcontext) -> Outcome {
    if ctx.is_null() {
        synchronize(&*context::current_state()?)
    } else {
        synchronize(&*context::resolve(ctx)?)
    }
}

fn synchronize(state: &context::ContextState) -> Outcome {
    capture::refuse_context_wait(state.handle)?;
    capture::refuse_unsafe()?;
    state.synchronize()
}

pub unsafe fn cuCtxSetLimit(limit: CUlimit, value: usize) -> Outcome {
    let state = context::current_state()?;
    send::call(&calls::context_limit_set { limit, value })?;
    // The driver may round the value, so the next question goes to the server.
    state.limits.lock().remove(&limit.0);
    Ok(())
}

pub unsafe fn cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit) -> Outcome {
    let state = context::current_state()?;
    let known = state.limits.lock().get(&limit.0).copied();
    let value = match known {
        Some(value) => value,
        None => {
            let value = send::call(&calls::context_limit_get { limit })?;
            state.limits.lock().insert(limit.0, value);
            value
        }
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(pvalue, value) }
}

/// A preference that no device since 2012 heeds; the driver too only remembers it.
pub unsafe fn cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache) -> Outcome {
    let config = context::current_state()?.cache_config.load(Ordering::Relaxed);
    // SAFETY: room for the result, or null.
    unsafe { write_out(pconfig, CUfunc_cache(config)) }
}

pub unsafe fn cuCtxSetCacheConfig(config: CUfunc_cache) -> Outcome {
    let state = context::current_state()?;
    check_cache_config(config)?;
    send::post(&calls::cuCtxSetCacheConfig { config })?;
    state.cache_config.store(config.0, Ordering::Relaxed);
    Ok(())
}

/// Refuses a number that names no division between cache and shared memory.
pub(super) fn check_cache_config(config: CUfunc_cache) -> Outcome {
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

pub unsafe fn cuCtxGetSharedMemConfig(pConfig: *mut CUsharedconfig) -> Outcome {
    context::current()?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(pConfig, CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE) }
}

pub unsafe fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut u32) -> Outcome {
    if !ctx.is_null() {
        context::resolve(ctx)?;
    }
    // SAFETY: room for the result, or null.
    unsafe { write_out(version, CONTEXT_VERSION) }
}

pub unsafe fn cuCtxGetStreamPriorityRange(leastPriority: *mut i32, greatestPriority: *mut i32) -> Outcome {
    let (least, greatest) = device::device(context::current_state()?.device)?.info.stream_priorities;
    // SAFETY: room for both results, or null.
    unsafe {
        write_optional(leastPriority, least);
        write_optional(greatestPriority, greatest);
    }
    Ok(())
}

pub unsafe fn cuCtxAttach(pctx: *mut CUcontext, flags: u32) -> Outcome {
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let state = context::current_state()?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(pctx, state.handle.as_raw()) }?;
    lifetime::attach(&state);
    Ok(())
}

pub unsafe fn cuCtxDetach(ctx: CUcontext) -> Outcome {
    let state = context::resolve(ctx)?;
    if state.handle == context::current_or_none() {
        lifetime::detach(&state)
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }
}
