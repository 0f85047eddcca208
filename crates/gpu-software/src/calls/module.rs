//! Modules, libraries, their functions, and the linker.

use crate::SoftwareGpu;
use causeway_api::handle::{Function, Kernel, Library, LinkState, Module, Native};
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUfunc_cache, CUfunction_attribute, CUjitInputType, CUsharedconfig,
};
use causeway_api::types::{FunctionInfo, JitOptions, JitReport};
use causeway_gpu::CuResult;
use causeway_gpu::calls::{LinkerCalls, ModuleCalls};

impl ModuleCalls for SoftwareGpu {
    fn cuKernelSetCacheConfig(
        &self,
        kernel: Native<Kernel>,
        _config: CUfunc_cache,
        device: CUdevice,
    ) -> CuResult<()> {
        self.check_device(device)?;
        self.modules.function(kernel.value()).map(drop)
    }

    fn cuFuncSetCacheConfig(&self, function: Native<Function>, _config: CUfunc_cache) -> CuResult<()> {
        self.modules.function(function.value()).map(drop)
    }

    fn cuFuncSetSharedMemConfig(&self, function: Native<Function>, _config: CUsharedconfig) -> CuResult<()> {
        self.modules.function(function.value()).map(drop)
    }

    fn module_load(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Native<Module>> {
        let context = self.contexts.current()?;
        self.modules.load_module(&context, form, options, image).map(Native::from_value)
    }

    fn jit_report(&self, report: u64) -> CuResult<JitReport> {
        Ok(self.modules.programs.reports.take(report))
    }

    fn module_unload(&self, module: Native<Module>) -> CuResult<()> {
        self.modules.unload_module(module.value())?;
        self.references.forget_module(module.value(), self.textures());
        Ok(())
    }

    fn module_function(
        &self,
        module: Native<Module>,
        name: &str,
    ) -> CuResult<(Native<Function>, FunctionInfo)> {
        let (id, info) = self.modules.module_function(module.value(), name)?;
        Ok((Native::from_value(id), info))
    }

    fn module_global(&self, module: Native<Module>, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        self.modules.module_global(module.value(), name)
    }

    fn module_function_names(&self, module: Native<Module>) -> CuResult<Vec<String>> {
        self.modules.module_names(module.value())
    }

    fn cuModuleGetFunctionCount(&self, module: Native<Module>) -> CuResult<u32> {
        Ok(self.modules.module_names(module.value())?.len() as u32)
    }

    fn library_load(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Native<Library>> {
        self.modules.load_library(form, options, image).map(Native::from_value)
    }

    fn library_unload(&self, library: Native<Library>) -> CuResult<()> {
        self.modules.unload_library(library.value())
    }

    fn library_kernel(
        &self,
        library: Native<Library>,
        name: &str,
    ) -> CuResult<(Native<Kernel>, FunctionInfo)> {
        let (id, info) = self.modules.library_kernel(library.value(), name)?;
        Ok((Native::from_value(id), info))
    }

    fn library_module(&self, library: Native<Library>) -> CuResult<Native<Module>> {
        let context = self.contexts.current()?;
        self.modules.library_module(library.value(), &context).map(Native::from_value)
    }

    fn library_global(&self, library: Native<Library>, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        self.modules.library_global(library.value(), name, &*self.contexts.current()?)
    }

    fn library_kernel_names(&self, library: Native<Library>) -> CuResult<Vec<String>> {
        self.modules.library_names(library.value())
    }

    fn cuLibraryGetKernelCount(&self, library: Native<Library>) -> CuResult<u32> {
        Ok(self.modules.library_names(library.value())?.len() as u32)
    }

    fn kernel_function(&self, kernel: Native<Kernel>) -> CuResult<Native<Function>> {
        let context = self.contexts.current()?;
        self.modules.kernel_function(kernel.value(), &context).map(Native::from_value)
    }

    fn function_attribute_set(
        &self,
        function: Native<Function>,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        // A function of a context has one device; a kernel in its place stands for what it is in the current
        // one.
        let device = self.contexts.current().map_or(0, |context| context.device);
        self.modules.function(function.value())?.set_attribute(device, attribute, value)
    }

    fn kernel_attribute_set(
        &self,
        kernel: Native<Kernel>,
        device: CUdevice,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        self.check_device(device)?;
        self.modules.function(kernel.value())?.set_attribute(device, attribute, value)
    }

    fn cuFuncLoad(&self, function: Native<Function>) -> CuResult<()> {
        let context = self.contexts.current()?;
        let function = self.modules.function(function.value())?;
        self.modules.module_of(&function, &context).map(drop)
    }
}

impl LinkerCalls for SoftwareGpu {
    fn link_create(&self, options: &JitOptions) -> CuResult<Native<LinkState>> {
        self.contexts.current()?;
        Ok(Native::from_value(self.links.create(options)))
    }

    fn link_add(
        &self,
        state: Native<LinkState>,
        kind: CUjitInputType,
        _name: &str,
        _options: &JitOptions,
        data: &[u8],
    ) -> CuResult<()> {
        self.links.add(state.value(), kind, data, &self.modules.programs.reports)
    }

    fn link_complete(&self, state: Native<LinkState>) -> CuResult<usize> {
        self.links.complete(state.value(), &self.modules.programs.reports)
    }

    fn link_result(&self, state: Native<LinkState>, start: usize, length: usize) -> CuResult<Vec<u8>> {
        self.links.piece(state.value(), start, length)
    }

    fn link_destroy(&self, state: Native<LinkState>) -> CuResult<()> {
        self.links.destroy(state.value())
    }
}
