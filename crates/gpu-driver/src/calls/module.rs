//! Modules and libraries, their functions and kernels, and what the client keeps of these.

use crate::context;
use crate::driver::Driver;
use causeway_api::handle::{Function, Kernel, Library, Module, Native};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUfunction_attribute, CUresult};
use causeway_api::types::{FunctionInfo, JitOptions, JitReport, Parameter};
use causeway_gpu::CuResult;
use causeway_gpu::calls::ModuleCalls;
use core::ffi::{CStr, c_char};
use std::ffi::CString;

/// More parameters than the 32,764 bytes of a launch can hold.
const MAX_PARAMETERS: usize = 1 << 15;

pub(crate) fn c_text(text: &str) -> CuResult<CString> {
    CString::new(text).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Copies a name that the driver keeps.
///
/// # Safety
/// `name` must be null or NUL-terminated text.
unsafe fn owned_name(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: not null, and vouched for by the caller.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// The layout of the parameters: asks for one after the other until the driver says that there are no more.
fn parameters(
    mut ask: impl FnMut(usize, &mut usize, &mut usize) -> CuResult<()>,
) -> CuResult<Vec<Parameter>> {
    let mut found = Vec::new();
    for index in 0..MAX_PARAMETERS {
        let (mut offset, mut size) = (0, 0);
        match ask(index, &mut offset, &mut size) {
            Ok(()) => found.push(Parameter { offset: offset as u32, size: size as u32 }),
            Err(CUresult::CUDA_ERROR_INVALID_VALUE) => break,
            Err(CUresult::CUDA_ERROR_NOT_FOUND) => {
                tracing::error!(
                    "this driver does not report the parameters of kernels (cuFuncGetParamInfo); version \
                     12.4 or later is needed"
                );
                return Err(CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The attributes that the driver answers.
fn attributes(mut ask: impl FnMut(CUfunction_attribute, &mut i32) -> CuResult<()>) -> Vec<(i32, i32)> {
    (0..CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX.0)
        .filter_map(|number| {
            let mut value = 0;
            ask(CUfunction_attribute(number), &mut value).ok().map(|()| (number as i32, value))
        })
        .collect()
}

impl ModuleCalls for Driver {
    causeway_api_macros::driver_calls!(module);

    fn module_load(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Native<Module>> {
        self.load_module(form, options, image)
    }

    fn jit_report(&self, report: u64) -> CuResult<JitReport> {
        Ok(self.reports.take(report))
    }

    fn module_unload(&self, module: Native<Module>) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        unsafe { self.functions.cuModuleUnload(module.as_raw()) }
    }

    fn module_function(
        &self,
        module: Native<Module>,
        name: &str,
    ) -> CuResult<(Native<Function>, FunctionInfo)> {
        let text = c_text(name)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointers are to a local and to NUL-terminated text.
        unsafe { self.functions.cuModuleGetFunction(&mut raw, module.as_raw(), text.as_ptr())? };
        let function = Native::from_raw(raw);
        Ok((function, self.function_info(function, name.to_owned())?))
    }

    fn module_global(&self, module: Native<Module>, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        let (name, mut address, mut size) = (c_text(name)?, 0, 0);
        // SAFETY: the pointers are to locals and to NUL-terminated text, the handle is the driver's own.
        unsafe {
            self.functions.cuModuleGetGlobal_v2(&mut address, &mut size, module.as_raw(), name.as_ptr())?;
        }
        Ok((address, size))
    }

    fn module_function_names(&self, module: Native<Module>) -> CuResult<Vec<String>> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuModuleGetFunctionCount(&mut count, module.as_raw())? };
        let mut found = vec![core::ptr::null_mut(); count as usize];
        // SAFETY: there is room for as many functions as is said.
        unsafe { self.functions.cuModuleEnumerateFunctions(found.as_mut_ptr(), count, module.as_raw())? };
        found
            .into_iter()
            .map(|function| {
                let mut name = core::ptr::null_mut();
                // SAFETY: the function is the driver's own, and so is the text it gives.
                unsafe {
                    self.functions.cuFuncGetName(&raw mut name, function)?;
                    Ok(owned_name(name.cast()))
                }
            })
            .collect()
    }

    fn library_load(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Native<Library>> {
        self.load_library(form, options, image)
    }

    fn library_unload(&self, library: Native<Library>) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        unsafe { self.functions.cuLibraryUnload(library.as_raw()) }
    }

    fn library_kernel(
        &self,
        library: Native<Library>,
        name: &str,
    ) -> CuResult<(Native<Kernel>, FunctionInfo)> {
        let text = c_text(name)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointers are to a local and to NUL-terminated text.
        unsafe { self.functions.cuLibraryGetKernel(&mut raw, library.as_raw(), text.as_ptr())? };
        self.in_some_context(|| {
            let parameters = parameters(|index, offset, size| {
                // SAFETY: the kernel is the driver's own, the pointers are to locals.
                unsafe { self.functions.cuKernelGetParamInfo(raw, index, offset, size) }
            })?;
            let device = self.current_device()?;
            let attributes = attributes(|attribute, value| {
                // SAFETY: the kernel is the driver's own, the pointers are to locals.
                unsafe { self.functions.cuKernelGetAttribute(value, attribute, raw, device) }
            });
            Ok((Native::from_raw(raw), FunctionInfo { name: name.to_owned(), parameters, attributes }))
        })
    }

    fn library_module(&self, library: Native<Library>) -> CuResult<Native<Module>> {
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local, the handle the driver's own.
        unsafe { self.functions.cuLibraryGetModule(&mut raw, library.as_raw())? };
        Ok(Native::from_raw(raw))
    }

    fn library_global(&self, library: Native<Library>, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        let (name, mut address, mut size) = (c_text(name)?, 0, 0);
        // SAFETY: the pointers are to locals and to NUL-terminated text, the handle is the driver's own.
        unsafe {
            self.functions.cuLibraryGetGlobal(&mut address, &mut size, library.as_raw(), name.as_ptr())?;
        }
        Ok((address, size))
    }

    fn library_kernel_names(&self, library: Native<Library>) -> CuResult<Vec<String>> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuLibraryGetKernelCount(&mut count, library.as_raw())? };
        let mut found = vec![core::ptr::null_mut(); count as usize];
        // SAFETY: there is room for as many kernels as is said.
        unsafe { self.functions.cuLibraryEnumerateKernels(found.as_mut_ptr(), count, library.as_raw())? };
        found.into_iter().map(|kernel| self.kernel_name(Native::from_raw(kernel))).collect()
    }

    fn kernel_function(&self, kernel: Native<Kernel>) -> CuResult<Native<Function>> {
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local, the handle the driver's own.
        unsafe { self.functions.cuKernelGetFunction(&mut raw, kernel.as_raw())? };
        Ok(Native::from_raw(raw))
    }

    fn library_unified_function(&self, library: Native<Library>, symbol: &str) -> CuResult<u64> {
        let (symbol, mut address) = (c_text(symbol)?, core::ptr::null_mut());
        // SAFETY: the pointers are to locals and to NUL-terminated text, the handle is the driver's own.
        unsafe {
            self.functions.cuLibraryGetUnifiedFunction(
                &raw mut address,
                library.as_raw(),
                symbol.as_ptr(),
            )?;
        }
        Ok(address as u64)
    }

    fn function_attribute_set(
        &self,
        function: Native<Function>,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        unsafe { self.functions.cuFuncSetAttribute(function.as_raw(), attribute, value) }
    }

    fn kernel_attribute_set(
        &self,
        kernel: Native<Kernel>,
        device: CUdevice,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        unsafe { self.functions.cuKernelSetAttribute(attribute, value, kernel.as_raw(), device) }
    }
}

impl Driver {
    /// Does `work` in the current context, or in the first device's primary context when there is none: the
    /// runtime asks for a program's kernels before it makes a context, and without one the driver knows no
    /// parameters (201 from `cuKernelGetParamInfo`, 580.159, 2026-11-21). The context stays: nearly every
    /// program makes it next.
    pub(crate) fn in_some_context<T>(&self, work: impl FnOnce() -> CuResult<T>) -> CuResult<T> {
        if context::current(self.functions)? != Native::NULL {
            return work();
        }
        let mut raw = core::ptr::null_mut();
        if self.query_context.get().is_none() {
            // SAFETY: the pointer is to a local.
            unsafe { self.functions.cuDevicePrimaryCtxRetain(&mut raw, 0)? };
        }
        let context = *self.query_context.get_or_init(|| Native::from_raw(raw));
        context::within(self.functions, context, work)
    }

    fn kernel_name(&self, kernel: Native<Kernel>) -> CuResult<String> {
        let mut name = core::ptr::null_mut();
        // SAFETY: the kernel is the driver's own, and so is the text it gives.
        unsafe {
            self.functions.cuKernelGetName(&raw mut name, kernel.as_raw())?;
            Ok(owned_name(name.cast()))
        }
    }

    fn function_info(&self, function: Native<Function>, name: String) -> CuResult<FunctionInfo> {
        let raw = function.as_raw();
        let parameters = parameters(|index, offset, size| {
            // SAFETY: the function is the driver's own, the pointers are to locals.
            unsafe { self.functions.cuFuncGetParamInfo(raw, index, offset, size) }
        })?;
        let attributes = attributes(|attribute, value| {
            // SAFETY: the function is the driver's own, the pointers are to locals.
            unsafe { self.functions.cuFuncGetAttribute(value, attribute, raw) }
        });
        Ok(FunctionInfo { name, parameters, attributes })
    }

    /// The device of the current context; the first one when there is none, since kernels may be asked about
    /// before there is a context.
    pub(crate) fn current_device(&self) -> CuResult<CUdevice> {
        if context::current(self.functions)? == Native::NULL {
            return Ok(0);
        }
        let mut device = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCtxGetDevice(&mut device)? };
        Ok(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_end_where_the_driver_says_so() {
        let layout = parameters(|index, offset, size| {
            (*offset, *size) = (index * 8, 4);
            if index < 2 { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
        });
        assert_eq!(layout, Ok(vec![Parameter { offset: 0, size: 4 }, Parameter { offset: 8, size: 4 }]));
        let fails = parameters(|_, _, _| Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert_eq!(fails, Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    }
}
