//! Functions and launches.

use core::ffi::c_void;

use causeway_api::calls::{self, Call};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{
    CUdevice, CUdevice_attribute, CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState,
    CUhostFn, CUlaunchConfig, CUmodule, CUresult, CUstream,
};
use causeway_api::types::LaunchShape;

use crate::abi::calls::context::check_cache_config;
use crate::abi::entry::Outcome;
use crate::arguments::{Address, write_optional, write_out};
use crate::model::handles::RawHandle as _;
use crate::model::{context, device};
use crate::submit::callbacks::Task;
use crate::submit::launch::{self, Arguments};
use crate::submit::module::{self, FunctionState, Owner};
use crate::submit::streams::{self, DefaultStream};
use crate::submit::{send, task};

pub unsafe fn cuFuncGetAttribute(pi: *mut i32, attrib: CUfunction_attribute, hfunc: CUfunction) -> Outcome {
    let (_, state) = module::resolve_function(hfunc)?;
    // A kernel is asked for what it has on the current context's device.
    let device = context::current_state().map_or(0, |context| context.device);
    let value = state.attribute(attrib, device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(pi, value) }
}

pub unsafe fn cuFuncSetAttribute(hfunc: CUfunction, attribute: CUfunction_attribute, value: i32) -> Outcome {
    let (function, state) = module::resolve_function(hfunc)?;
    let device = context::current_state()?.device;
    let request = calls::function_attribute_set { function, attribute, value };
    set_attribute(&state, device, attribute, value, context::current()?, &request)
}

/// Sets an attribute of a function or kernel. cuBLASLt does so before most of its launches, nearly always to
/// the value that is set already, so nothing is sent then; and for what can be checked here nobody waits.
pub fn set_attribute(
    state: &FunctionState,
    device: CUdevice,
    attribute: CUfunction_attribute,
    value: i32,
    context: Handle<Context>,
    request: &impl Call<Reply = ()>,
) -> Outcome {
    let limits = device::device(device)?;
    let allowed = match attribute {
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let limit = limits
                .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
                .zip(state.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, device));
            limit.map(|(limit, used)| 0..=limit - used)
        }
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => Some(-1..=100),
        _ => None,
    };
    if allowed.as_ref().is_some_and(|allowed| !allowed.contains(&value)) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if allowed.is_some() {
        return state.change(|| {
            if !state.is_set(attribute, device, value) {
                send::post_in(context, request)?;
                state.note_attribute(attribute, device, value);
            }
            Ok(())
        });
    }
    if !state.is_set(attribute, device, value) {
        send::call_in(context, request)?;
        // The driver takes any number for yes.
        let is_flag = attribute == CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        state.note_attribute(attribute, device, if is_flag { i32::from(value != 0) } else { value });
    }
    Ok(())
}

pub unsafe fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache) -> Outcome {
    let (hfunc, _) = module::resolve_function(hfunc)?;
    check_cache_config(config)?;
    send::post(&calls::cuFuncSetCacheConfig { hfunc, config })
}

pub unsafe fn cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction) -> Outcome {
    let (_, state) = module::resolve_function(hfunc)?;
    let module = match state.owner {
        Owner::Module(module) => module,
        Owner::Library(library) => module::resolve_library(library.as_raw())?.module()?,
        Owner::Kernel(kernel, _) => match module::resolve_kernel(kernel.as_raw())?.1.owner {
            Owner::Library(library) => module::resolve_library(library.as_raw())?.module()?,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        },
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(hmod, module.as_raw()) }
}

pub unsafe fn cuFuncGetName(name: *mut *mut c_void, hfunc: CUfunction) -> Outcome {
    let (_, state) = module::resolve_function(hfunc)?;
    // SAFETY: room for the result, or null. The text lives as long as the module is loaded.
    unsafe { write_out(name, state.name.as_ptr().cast_mut().cast()) }
}

pub unsafe fn cuFuncGetParamInfo(
    func: CUfunction,
    paramIndex: usize,
    paramOffset: *mut usize,
    paramSize: *mut usize,
) -> Outcome {
    let (offset, size) = module::resolve_function(func)?.1.parameter(paramIndex)?;
    // SAFETY: room for the offset, or null; the size may be left out.
    unsafe {
        write_out(paramOffset, offset)?;
        write_optional(paramSize, size);
    }
    Ok(())
}

/// Asking for a function's attributes has loaded it.
pub unsafe fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction) -> Outcome {
    module::resolve_function(function)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(state, CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED) }
}

pub unsafe fn cuLaunchKernel(
    f: CUfunction,
    gridDimX: u32,
    gridDimY: u32,
    gridDimZ: u32,
    blockDimX: u32,
    blockDimY: u32,
    blockDimZ: u32,
    sharedMemBytes: u32,
    hStream: CUstream,
    kernelParams: *mut *mut c_void,
    extra: *mut *mut c_void,
    default_stream: DefaultStream,
) -> Outcome {
    let shape = LaunchShape {
        grid: [gridDimX, gridDimY, gridDimZ],
        block: [blockDimX, blockDimY, blockDimZ],
        shared_bytes: sharedMemBytes,
    };
    let arguments = Arguments { addresses: kernelParams.cast(), extra: extra.cast() };
    // SAFETY: the program passes what the function's parameters demand.
    unsafe { launch::launch(f, shape, (hStream, default_stream), arguments, Vec::new()) }
}

pub unsafe fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    f: CUfunction,
    kernelParams: *mut *mut c_void,
    extra: *mut *mut c_void,
    default_stream: DefaultStream,
) -> Outcome {
    // SAFETY: a configuration, or null.
    let config = unsafe { config.as_ref() };
    // SAFETY: its list has `numAttrs` entries.
    let (shape, attributes) = unsafe { launch::configuration(config) }?;
    let stream = config.map_or(core::ptr::null_mut(), |config| config.hStream);
    let arguments = Arguments { addresses: kernelParams.cast(), extra: extra.cast() };
    // SAFETY: the program passes what the function's parameters demand.
    unsafe { launch::launch(f, shape, (stream, default_stream), arguments, attributes) }
}

pub unsafe fn cuLaunchCooperativeKernel(
    f: CUfunction,
    gridDimX: u32,
    gridDimY: u32,
    gridDimZ: u32,
    blockDimX: u32,
    blockDimY: u32,
    blockDimZ: u32,
    sharedMemBytes: u32,
    hStream: CUstream,
    kernelParams: *mut *mut c_void,
    default_stream: DefaultStream,
) -> Outcome {
    let shape = LaunchShape {
        grid: [gridDimX, gridDimY, gridDimZ],
        block: [blockDimX, blockDimY, blockDimZ],
        shared_bytes: sharedMemBytes,
    };
    let arguments = Arguments { addresses: kernelParams.cast(), extra: core::ptr::null() };
    let attributes = vec![launch::cooperative()];
    // SAFETY: the program passes what the function's parameters demand.
    unsafe { launch::launch(f, shape, (hStream, default_stream), arguments, attributes) }
}

pub unsafe fn cuLaunchHostFunc(
    hStream: CUstream,
    function: CUhostFn,
    userData: *mut c_void,
    default_stream: DefaultStream,
) -> Outcome {
    let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let stream = context::stream(streams::resolve(hStream, default_stream)?)?;
    task::post(&stream, Task::Function { function, data: Address(userData), after: stream.pending_writes() })
}
