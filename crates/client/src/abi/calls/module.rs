//! Modules.

use crate::abi::entry::Outcome;
use crate::arguments::{list, text, write_optional, write_out};
use crate::log::info;
use crate::model::handles::RawHandle as _;
use crate::remote::image;
use crate::submit::linker::Jit;
use crate::submit::{linker, module};
use causeway_api::handle::Kind;
use causeway_api::sys::{
    CUdeviceptr, CUfunction, CUjit_option, CUjitInputType, CUlinkState, CUmodule, CUmoduleLoadingMode,
    CUresult,
};
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
    // SAFETY: an image, room for the result, and no options.
    unsafe { cuModuleLoadDataEx(out, image, 0, core::ptr::null(), core::ptr::null_mut()) }
}

pub unsafe fn cuModuleLoadDataEx(
    out: *mut CUmodule,
    image: *mut c_void,
    numOptions: u32,
    options: *const CUjit_option,
    optionValues: *mut *mut c_void,
) -> Outcome {
    if out.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: both lists have `numOptions` entries; an image, and room for the result.
    unsafe {
        let jit = Jit::read(numOptions, options, optionValues)?;
        let module = module::load(&image::at(image)?, &jit.options);
        jit.write_results();
        write_out(out, module?.as_raw())
    }
}

pub unsafe fn cuModuleLoadFatBinary(out: *mut CUmodule, fatCubin: *mut c_void) -> Outcome {
    // SAFETY: the program passes an image, which names its own length, and room for a module.
    unsafe { cuModuleLoadData(out, fatCubin) }
}

pub unsafe fn cuModuleUnload(hmod: CUmodule) -> Outcome {
    module::unload(hmod)
}

pub unsafe fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) -> Outcome {
    let eager =
        crate::environment::read(&causeway_config::table::CUDA_MODULE_LOADING).as_deref() == Some("EAGER");
    let loading = match eager {
        true => CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING,
        false => CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING,
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(mode, loading) }
}

pub unsafe fn cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char) -> Outcome {
    if hfunc.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: NUL-terminated text or null, and room for the result.
    unsafe { write_out(hfunc, module::resolve(hmod)?.function(text(name)?)?.as_raw()) }
}

pub unsafe fn cuModuleEnumerateFunctions(
    functions: *mut CUfunction,
    numFunctions: u32,
    hmod: CUmodule,
) -> Outcome {
    let module = module::resolve(hmod)?;
    // SAFETY: room for `numFunctions` handles, or null.
    unsafe { write_handles(functions, numFunctions, module.function_names()?, |name| module.function(name)) }
}

/// Stores the handles of things with these names, as many as there is room for.
///
/// # Safety
/// `out` is null or has room for `capacity` handles.
pub unsafe fn write_handles<K: Kind>(
    out: *mut K::Raw,
    capacity: u32,
    names: Vec<String>,
    find: impl Fn(&str) -> Result<causeway_api::handle::Handle<K>, CUresult>,
) -> Outcome {
    if out.is_null() || capacity == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    for (index, name) in names.iter().take(capacity as usize).enumerate() {
        // SAFETY: `index` is less than `capacity`.
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
    let (address, size) = module::resolve(hmod)?.variable(unsafe { text(name) }?)?;
    // SAFETY: room for both results, or null.
    unsafe {
        write_optional(dptr, address);
        write_optional(bytes, size);
    }
    Ok(())
}

pub unsafe fn cuLinkCreate_v2(
    numOptions: u32,
    options: *const CUjit_option,
    optionValues: *mut *mut c_void,
    stateOut: *mut CUlinkState,
) -> Outcome {
    if stateOut.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: both lists have `numOptions` entries and live as long as the linker; room for the result.
    unsafe { write_out(stateOut, linker::create(Jit::read(numOptions, options, optionValues)?)?) }
}

pub unsafe fn cuLinkAddData_v2(
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    numOptions: u32,
    options: *const CUjit_option,
    optionValues: *mut *mut c_void,
) -> Outcome {
    // SAFETY: both lists have `numOptions` entries; `size` bytes of data; the name is text or null.
    unsafe {
        let jit = Jit::read(numOptions, options, optionValues)?;
        let name = if name.is_null() { "" } else { text(name)? };
        linker::add(state, kind, name, &jit, list(data.cast::<u8>(), size)?)
    }
}

pub unsafe fn cuLinkAddFile_v2(
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    numOptions: u32,
    options: *const CUjit_option,
    optionValues: *mut *mut c_void,
) -> Outcome {
    // SAFETY: NUL-terminated text, or null; both lists have `numOptions` entries.
    unsafe {
        let path = text(path)?;
        let mut file = read_file(path)?;
        if kind != CUjitInputType::CU_JIT_INPUT_PTX {
            file.pop();
        }
        linker::add(state, kind, path, &Jit::read(numOptions, options, optionValues)?, &file)
    }
}

pub unsafe fn cuLinkComplete(state: CUlinkState, cubinOut: *mut *mut c_void, sizeOut: *mut usize) -> Outcome {
    let (address, size) = linker::complete(state)?;
    // SAFETY: room for both results; the size may be left out.
    unsafe {
        write_out(cubinOut, address.cast_mut().cast())?;
        write_optional(sizeOut, size);
    }
    Ok(())
}

pub unsafe fn cuLinkDestroy(state: CUlinkState) -> Outcome {
    linker::destroy(state)
}
