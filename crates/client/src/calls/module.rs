//! Modules.

use super::Outcome;
use crate::entry::{give, offer, text};
use crate::image;
use crate::log::info;
use crate::module;
use causeway_api::handle::Kind;
use causeway_api::sys::{CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult};
use core::ffi::{c_char, c_void};

/// The bytes of an image file of the client, ended by a NUL in case it is text.
pub fn read_file(name: &str) -> Result<Vec<u8>, CUresult> {
    let mut bytes = std::fs::read(name).map_err(|cause| {
        info!("{name} cannot be read: {cause}");
        CUresult::CUDA_ERROR_FILE_NOT_FOUND
    })?;
    bytes.push(0);
    Ok(bytes)
}

pub unsafe fn cuModuleLoad(out: *mut CUmodule, fname: *const c_char) -> Outcome {
    // SAFETY: NUL-terminated text, or null.
    let file = read_file(unsafe { text(fname) }?)?;
    // SAFETY: the file is there as a whole, with a NUL behind it.
    unsafe { cuModuleLoadData(out, file.as_ptr().cast_mut().cast()) }
}

pub unsafe fn cuModuleLoadData(out: *mut CUmodule, image: *mut c_void) -> Outcome {
    if out.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: an image, and room for the result.
    unsafe { give(out, module::load(&image::at(image)?)?.as_raw()) }
}

pub unsafe fn cuModuleLoadDataEx(
    out: *mut CUmodule,
    image: *mut c_void,
    numOptions: u32,
    options: *const CUjit_option,
    optionValues: *mut *mut c_void,
) -> Outcome {
    // SAFETY: both lists have `numOptions` entries; an image, and room for the result.
    unsafe { with_options(numOptions, options, optionValues, || cuModuleLoadData(out, image)) }
}

/// Loads by `load` with the options of a program. Options tune the compiler, which runs on the server as it is;
/// those by which it answers are answered: the error log with what the server's compiler said, the information
/// log and the time with nothing.
///
/// # Safety
/// `options` and `values` are lists of `count` entries, as `cuModuleLoadDataEx` demands.
pub unsafe fn with_options(
    count: u32,
    options: *const CUjit_option,
    values: *mut *mut c_void,
    load: impl FnOnce() -> Outcome,
) -> Outcome {
    if count > 0 && (options.is_null() || values.is_null()) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let index_of = |wanted| {
        // SAFETY: within the list.
        (0..count as usize).find(|index| unsafe { options.add(*index).read() } == wanted)
    };
    let outcome = load();
    for answer in [CUjit_option::CU_JIT_WALL_TIME, CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES] {
        if let Some(index) = index_of(answer) {
            // SAFETY: within the list.
            unsafe { values.add(index).write(core::ptr::null_mut()) };
        }
    }
    let buffer = index_of(CUjit_option::CU_JIT_ERROR_LOG_BUFFER);
    if let (Some(buffer), Some(size)) = (buffer, index_of(CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)) {
        let log = if outcome.is_err() { module::load_log() } else { String::new() };
        // SAFETY: the buffer has the size that the program gave; what is written fits with its NUL.
        unsafe {
            let (address, room) = (values.add(buffer).read().cast::<u8>(), values.add(size).read() as usize);
            let written = if address.is_null() { 0 } else { log.len().min(room.saturating_sub(1)) };
            if !address.is_null() && room > 0 {
                address.copy_from(log.as_ptr(), written);
                address.add(written).write(0);
            }
            values.add(size).write(written as *mut c_void);
        }
    }
    outcome
}

pub unsafe fn cuModuleLoadFatBinary(out: *mut CUmodule, fatCubin: *mut c_void) -> Outcome {
    // SAFETY: the same arguments.
    unsafe { cuModuleLoadData(out, fatCubin) }
}

pub unsafe fn cuModuleUnload(hmod: CUmodule) -> Outcome {
    module::unload(hmod)
}

pub unsafe fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) -> Outcome {
    let eager = crate::environment::read("CUDA_MODULE_LOADING").as_deref() == Some("EAGER");
    let loading = match eager {
        true => CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING,
        false => CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING,
    };
    // SAFETY: room for the result, or null.
    unsafe { give(mode, loading) }
}

pub unsafe fn cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) -> Outcome {
    if hfunc.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: NUL-terminated text or null, and room for the result.
    unsafe { give(hfunc, module::given(hmod)?.function(text(name)?)?.as_raw()) }
}

pub unsafe fn cuModuleEnumerateFunctions(
    functions: *mut CUfunction,
    numFunctions: u32,
    hmod: CUmodule,
) -> Outcome {
    let module = module::given(hmod)?;
    // SAFETY: room for `numFunctions` handles, or null.
    unsafe { give_handles(functions, numFunctions, module.function_names()?, |name| module.function(name)) }
}

/// Stores the handles of things with these names, as many as there is room for.
///
/// # Safety
/// `out` is null or has room for `room` handles.
pub unsafe fn give_handles<K: Kind>(
    out: *mut K::Raw,
    room: u32,
    names: Vec<String>,
    find: impl Fn(&str) -> Result<causeway_api::handle::Handle<K>, CUresult>,
) -> Outcome {
    if out.is_null() || room == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    for (index, name) in names.iter().take(room as usize).enumerate() {
        // SAFETY: `index` is less than `room`.
        unsafe { out.add(index).write(find(name)?.as_raw()) };
    }
    Ok(())
}

pub unsafe fn cuModuleGetGlobal_v2(
    dptr: *mut CUdeviceptr,
    bytes: *mut usize,
    hmod: CUmodule,
    name: *const c_char,
) -> Outcome {
    // SAFETY: NUL-terminated text, or null.
    let (address, size) = module::given(hmod)?.variable(unsafe { text(name) }?)?;
    // SAFETY: room for both results, or null.
    unsafe {
        offer(dptr, address);
        offer(bytes, size);
    }
    Ok(())
}
