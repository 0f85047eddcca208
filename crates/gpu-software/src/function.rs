//! Functions of modules and kernels of libraries, and their attributes.

use super::attributes::{SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPT_IN};
use super::context::Context;
use super::module::{Library, Module};
use super::occupancy::Needs;
use causeway_api::sys::{CUfunction_attribute, CUresult};
use causeway_api::types::{FunctionInfo, Parameter};
use causeway_gpu::CuResult;
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{Kernel, Program};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Leaves the split between cache and shared memory to the device.
const CARVEOUT_DEFAULT: i32 = -1;

/// Where a function comes from.
enum Source {
    /// A module: it belongs to that one's context.
    Module(Arc<Module>),
    /// A library: it is a function of any context.
    Library(Arc<Library>, u64),
}

/// Attributes that a client may set. A kernel shares them with the functions that it is in contexts.
struct Settings {
    max_dynamic_shared: AtomicI32,
    carveout: AtomicI32,
}

/// A function or kernel.
pub(super) struct Function {
    source: Source,
    pub(super) kernel: Kernel,
    settings: Arc<Settings>,
}

impl Function {
    /// The function `name` of a module.
    pub(super) fn of_module(module: &Arc<Module>, name: &str) -> CuResult<Self> {
        Self::new(Source::Module(Arc::clone(module)), module.loaded.program(), name)
    }

    /// The kernel `name` of a library, whose number is `id`.
    pub(super) fn of_library(
        library: &Arc<Library>,
        id: u64,
        program: &Program,
        name: &str,
    ) -> CuResult<Self> {
        Self::new(Source::Library(Arc::clone(library), id), program, name)
    }

    fn new(source: Source, program: &Program, name: &str) -> CuResult<Self> {
        let kernel = program.kernel(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?.clone();
        if let Some(error) = &kernel.unsupported {
            tracing::error!("kernel `{name}` cannot run: {error}");
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let dynamic = SHARED_PER_BLOCK.saturating_sub(kernel.shared_bytes).cast_signed();
        let settings =
            Settings { max_dynamic_shared: dynamic.into(), carveout: AtomicI32::new(CARVEOUT_DEFAULT) };
        Ok(Self { source, kernel, settings: Arc::new(settings) })
    }

    /// What this function is in a context.
    pub(super) fn in_context(&self, context: &Context, space: &Arc<AddressSpace>) -> CuResult<Self> {
        Ok(Self {
            source: Source::Module(self.module_in(context, space)?),
            kernel: self.kernel.clone(),
            settings: Arc::clone(&self.settings),
        })
    }

    /// The module that it is executed from in a context.
    pub(super) fn module_in(&self, context: &Context, space: &Arc<AddressSpace>) -> CuResult<Arc<Module>> {
        match &self.source {
            Source::Module(module) if module.context == context.id => Ok(Arc::clone(module)),
            Source::Module(_) => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
            Source::Library(library, _) => library.module_in(context, space),
        }
    }

    /// Whether the function belongs to a module.
    pub(super) fn is_of_module(&self, id: u64) -> bool {
        matches!(&self.source, Source::Module(module) if module.id == id)
    }

    /// Whether the function is a kernel of a library.
    pub(super) fn is_of_library(&self, id: u64) -> bool {
        matches!(&self.source, Source::Library(_, library) if *library == id)
    }

    /// Most bytes of dynamic shared memory that a launch may ask for.
    pub(super) fn max_dynamic_shared(&self) -> u32 {
        self.settings.max_dynamic_shared.load(Relaxed).max(0).cast_unsigned()
    }

    /// What it needs of a multiprocessor.
    pub(super) fn needs(&self) -> Needs {
        Needs {
            max_threads: self.kernel.max_threads,
            registers: self.kernel.registers,
            static_shared: self.kernel.shared_bytes,
            max_dynamic_shared: self.max_dynamic_shared(),
        }
    }

    /// What clients keep of it; `capability` is that of the device.
    pub(super) fn info(&self, capability: u32) -> FunctionInfo {
        type A = CUfunction_attribute;
        let kernel = &self.kernel;
        let attributes = [
            (A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel.max_threads.cast_signed()),
            (A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel.shared_bytes.cast_signed()),
            (A::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, kernel.const_bytes.cast_signed()),
            (A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, kernel.local_bytes.cast_signed()),
            (A::CU_FUNC_ATTRIBUTE_NUM_REGS, kernel.registers.cast_signed()),
            // The virtual architecture, as drivers answer, not the version of the PTX language.
            (A::CU_FUNC_ATTRIBUTE_PTX_VERSION, kernel.target.cast_signed()),
            (A::CU_FUNC_ATTRIBUTE_BINARY_VERSION, capability.cast_signed()),
            (A::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, 0),
            (
                A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                self.settings.max_dynamic_shared.load(Relaxed),
            ),
            (A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, self.settings.carveout.load(Relaxed)),
            (A::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 0),
            (A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 0),
            (A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 0),
            (A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 0),
            (A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0),
            (A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 0),
        ];
        FunctionInfo {
            name: kernel.name.clone(),
            parameters: kernel
                .parameters
                .iter()
                .map(|p| Parameter { offset: p.offset, size: p.size })
                .collect(),
            attributes: attributes.iter().map(|(number, value)| (number.0.cast_signed(), *value)).collect(),
        }
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a value out of range or an attribute that cannot be set,
    /// `CUDA_ERROR_NOT_SUPPORTED` for what asks for clusters.
    pub(super) fn set_attribute(&self, attribute: CUfunction_attribute, value: i32) -> CuResult<()> {
        type A = CUfunction_attribute;
        let most = (SHARED_PER_BLOCK_OPT_IN.saturating_sub(self.kernel.shared_bytes)).cast_signed();
        match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES if (0..=most).contains(&value) => {
                self.settings.max_dynamic_shared.store(value, Relaxed);
                Ok(())
            }
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
                if (CARVEOUT_DEFAULT..=100).contains(&value) =>
            {
                self.settings.carveout.store(value, Relaxed);
                Ok(())
            }
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
            | A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
            | A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH
            | A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            | A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => match value {
                0 => Ok(()),
                _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            },
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}
