//! Libraries and kernels.

use super::Outcome;
use super::execution;
use super::module::{give_handles, read_file, with_options};
use crate::entry::{give, offer, text};
use crate::module::Owner;
use crate::{context, device, image, module};
use causeway_api::calls;
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary,
    CUlibraryOption, CUmodule, CUresult,
};
use core::ffi::{c_char, c_void};

pub unsafe fn cuLibraryLoadData(
    library: *mut CUlibrary,
    code: *mut c_void,
    jitOptions: *const CUjit_option,
    jitOptionsValues: *mut *mut c_void,
    numJitOptions: u32,
    _libraryOptions: *const CUlibraryOption,
    _libraryOptionValues: *mut *mut c_void,
    _numLibraryOptions: u32,
) -> Outcome {
    if library.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: both lists have `numJitOptions` entries; an image; room for the result. The options of the library say
    // how long the program keeps the image, which is sent before this returns.
    unsafe {
        with_options(numJitOptions, jitOptions, jitOptionsValues, || {
            give(library, module::load_library(&image::at(code)?)?.as_raw())
        })
    }
}

pub unsafe fn cuLibraryLoadFromFile(
    library: *mut CUlibrary,
    fileName: *const c_char,
    jitOptions: *const CUjit_option,
    jitOptionsValues: *mut *mut c_void,
    numJitOptions: u32,
    libraryOptions: *const CUlibraryOption,
    libraryOptionValues: *mut *mut c_void,
    numLibraryOptions: u32,
) -> Outcome {
    // SAFETY: NUL-terminated text, or null.
    let file = read_file(unsafe { text(fileName) }?)?;
    // SAFETY: the file is there as a whole, with a NUL behind it; the other arguments are the same.
    unsafe {
        cuLibraryLoadData(
            library,
            file.as_ptr().cast_mut().cast(),
            jitOptions,
            jitOptionsValues,
            numJitOptions,
            libraryOptions,
            libraryOptionValues,
            numLibraryOptions,
        )
    }
}

pub unsafe fn cuLibraryUnload(library: CUlibrary) -> Outcome {
    module::unload_library(library)
}

pub unsafe fn cuLibraryGetKernel(pKernel: *mut CUkernel, library: CUlibrary, name: *const c_char) -> Outcome {
    if pKernel.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: NUL-terminated text or null, and room for the result.
    unsafe { give(pKernel, module::given_library(library)?.kernel(text(name)?)?.as_raw()) }
}

pub unsafe fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, numKernels: u32, lib: CUlibrary) -> Outcome {
    let library = module::given_library(lib)?;
    // SAFETY: room for `numKernels` handles, or null.
    unsafe { give_handles(kernels, numKernels, library.kernel_names()?, |name| library.kernel(name)) }
}

pub unsafe fn cuLibraryGetModule(pMod: *mut CUmodule, library: CUlibrary) -> Outcome {
    if pMod.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { give(pMod, module::given_library(library)?.module()?.as_raw()) }
}

pub unsafe fn cuKernelGetFunction(pFunc: *mut CUfunction, kernel: CUkernel) -> Outcome {
    if pFunc.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (handle, state) = module::given_kernel(kernel)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { give(pFunc, state.function_of(handle)?.as_raw()) }
}

pub unsafe fn cuKernelGetLibrary(pLib: *mut CUlibrary, kernel: CUkernel) -> Outcome {
    match module::given_kernel(kernel)?.1.owner {
        // SAFETY: room for the result, or null.
        Owner::Library(library) => unsafe { give(pLib, library.as_raw()) },
        _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

pub unsafe fn cuLibraryGetGlobal(
    dptr: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Outcome {
    // SAFETY: NUL-terminated text, or null.
    let (address, size) = module::given_library(library)?.variable(unsafe { text(name) }?)?;
    // SAFETY: room for both results, or null.
    unsafe {
        offer(dptr, address);
        offer(bytes, size);
    }
    Ok(())
}

pub unsafe fn cuLibraryGetManaged(
    dptr: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Outcome {
    // SAFETY: NUL-terminated text, or null.
    let (address, size) = module::given_library(library)?.managed_variable(unsafe { text(name) }?)?;
    // SAFETY: room for both results, or null.
    unsafe {
        offer(dptr, address);
        offer(bytes, size);
    }
    Ok(())
}

pub unsafe fn cuKernelGetAttribute(
    pi: *mut i32,
    attrib: CUfunction_attribute,
    kernel: CUkernel,
    dev: CUdevice,
) -> Outcome {
    device::device(dev)?;
    let value =
        module::given_kernel(kernel)?.1.attribute(attrib).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: room for the result, or null.
    unsafe { give(pi, value) }
}

pub unsafe fn cuKernelSetAttribute(
    attribute: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    dev: CUdevice,
) -> Outcome {
    let (kernel, state) = module::given_kernel(kernel)?;
    let request = calls::kernel_attribute_set { kernel, device: device::on_server(dev)?, attribute, value };
    execution::set_attribute(&state, dev, attribute, value, context::current_or_none(), &request)
}

pub unsafe fn cuKernelGetName(name: *mut *mut c_void, hfunc: CUkernel) -> Outcome {
    let (_, state) = module::given_kernel(hfunc)?;
    // SAFETY: room for the result, or null. The text lives as long as the library is loaded.
    unsafe { give(name, state.name.as_ptr().cast_mut().cast()) }
}

pub unsafe fn cuKernelGetParamInfo(
    kernel: CUkernel,
    paramIndex: usize,
    paramOffset: *mut usize,
    paramSize: *mut usize,
) -> Outcome {
    let (offset, size) = module::given_kernel(kernel)?.1.parameter(paramIndex)?;
    // SAFETY: room for the offset, or null; the size may be left out.
    unsafe {
        give(paramOffset, offset)?;
        offer(paramSize, size);
    }
    Ok(())
}
