//! Libraries and kernels.

use super::module::{read_file, write_handles};
use crate::abi::calls::launch;
use crate::abi::entry::Outcome;
use crate::arguments::{list, text, write_optional, write_out};
use crate::log::refuse_use;
use crate::model::handles::RawHandle as _;
use crate::model::{context, device, handles};
use crate::remote::image;
use crate::submit::linker::Jit;
use crate::submit::module::{ImageLifetime, Owner};
use crate::submit::{module, send};
use causeway_api::calls;
use causeway_api::handle::Library;
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
    libraryOptions: *const CUlibraryOption,
    libraryOptionValues: *mut *mut c_void,
    numLibraryOptions: u32,
) -> Outcome {
    if library.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the lists have as many entries as is said; an image; room for the result.
    unsafe {
        let jit = Jit::read(numJitOptions, jitOptions, jitOptionsValues)?;
        let lifetime = lifetime(list(libraryOptions, numLibraryOptions as usize)?, libraryOptionValues)?;
        let loaded = module::load_library(&image::at(code)?, lifetime, &jit.options);
        jit.write_results();
        write_out(library, loaded?.as_raw())
    }
}

/// Who keeps the image, as the options of a library say.
///
/// # Safety
/// `values` is null or has as many entries as there are options.
unsafe fn lifetime(options: &[CUlibraryOption], values: *mut *mut c_void) -> Result<ImageLifetime, CUresult> {
    let mut lifetime = ImageLifetime::Call;
    for (index, option) in options.iter().enumerate() {
        match *option {
            CUlibraryOption::CU_LIBRARY_BINARY_IS_PRESERVED => {
                // cuBLASLt names the option without giving values, which the driver takes for a no.
                // SAFETY: within the list.
                if !values.is_null() && !unsafe { values.add(index).read() }.is_null() {
                    lifetime = ImageLifetime::UntilUnload;
                }
            }
            CUlibraryOption::CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE => {
                return Err(refuse_use!("functions of the host in a library's table"));
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
    Ok(lifetime)
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
    if library.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: NUL-terminated text, or null; the lists have as many entries as is said; the file is there as a
    // whole, with a NUL behind it, for as long as the call lasts.
    unsafe {
        let file = read_file(text(fileName)?)?;
        let jit = Jit::read(numJitOptions, jitOptions, jitOptionsValues)?;
        lifetime(list(libraryOptions, numLibraryOptions as usize)?, libraryOptionValues)?;
        let image = image::at(file.as_ptr().cast())?;
        let loaded = module::load_library(&image, ImageLifetime::Call, &jit.options);
        jit.write_results();
        write_out(library, loaded?.as_raw())
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
    unsafe { write_out(pKernel, module::resolve_library(library)?.kernel(text(name)?)?.as_raw()) }
}

pub unsafe fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, numKernels: u32, lib: CUlibrary) -> Outcome {
    let library = module::resolve_library(lib)?;
    // SAFETY: room for `numKernels` handles, or null.
    unsafe { write_handles(kernels, numKernels, library.kernel_names()?, |name| library.kernel(name)) }
}

pub unsafe fn cuLibraryGetModule(pMod: *mut CUmodule, library: CUlibrary) -> Outcome {
    if pMod.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pMod, module::resolve_library(library)?.module()?.as_raw()) }
}

pub unsafe fn cuKernelGetFunction(pFunc: *mut CUfunction, kernel: CUkernel) -> Outcome {
    if pFunc.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (handle, state) = module::resolve_kernel(kernel)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pFunc, state.function_of(handle)?.as_raw()) }
}

pub unsafe fn cuKernelGetLibrary(pLib: *mut CUlibrary, kernel: CUkernel) -> Outcome {
    match module::resolve_kernel(kernel)?.1.owner {
        // SAFETY: room for the result, or null.
        Owner::Library(library) => unsafe { write_out(pLib, library.as_raw()) },
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
    let (address, size) = module::resolve_library(library)?.variable(unsafe { text(name) }?)?;
    // SAFETY: room for both results, or null.
    unsafe {
        write_optional(dptr, address);
        write_optional(bytes, size);
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
    let (address, size) = module::resolve_library(library)?.managed_variable(unsafe { text(name) }?)?;
    // SAFETY: room for both results, or null.
    unsafe {
        write_optional(dptr, address);
        write_optional(bytes, size);
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
    let (_, state) = module::resolve_kernel(kernel)?;
    let value = state.attribute(attrib, dev).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(pi, value) }
}

pub unsafe fn cuKernelSetAttribute(
    attribute: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    dev: CUdevice,
) -> Outcome {
    let server = device::device(dev)?.server;
    let (kernel, state) = module::resolve_kernel_on(kernel, server)?;
    let request = calls::kernel_attribute_set { kernel, device: device::on_server(dev)?, attribute, value };
    let context = context::anywhere_on(server);
    launch::set_attribute(&state, dev, attribute, value, context, &request)
}

pub unsafe fn cuLibraryGetUnifiedFunction(
    fptr: *mut *mut c_void,
    library: CUlibrary,
    symbol: *const c_char,
) -> Outcome {
    module::resolve_library(library)?;
    let library = handles::resolve::<Library>(library)?;
    // SAFETY: NUL-terminated text or null, and room for the result.
    unsafe {
        let request = calls::library_unified_function { library, symbol: text(symbol)? };
        write_out(fptr, send::call_in(context::current_or_none(), &request)? as *mut c_void)
    }
}

pub unsafe fn cuKernelGetName(name: *mut *mut c_void, hfunc: CUkernel) -> Outcome {
    let (_, state) = module::resolve_kernel(hfunc)?;
    // SAFETY: room for the result, or null. The text lives as long as the library is loaded.
    unsafe { write_out(name, state.name.as_ptr().cast_mut().cast()) }
}

pub unsafe fn cuKernelGetParamInfo(
    kernel: CUkernel,
    paramIndex: usize,
    paramOffset: *mut usize,
    paramSize: *mut usize,
) -> Outcome {
    let (offset, size) = module::resolve_kernel(kernel)?.1.parameter(paramIndex)?;
    // SAFETY: room for the offset, or null; the size may be left out.
    unsafe {
        write_out(paramOffset, offset)?;
        write_optional(paramSize, size);
    }
    Ok(())
}
