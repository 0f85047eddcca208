//! Functions of modules and kernels of libraries, and their attributes.

use super::attributes::{SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPT_IN};
use super::context::Context;
use super::module::{Library, Module};
use super::occupancy::Needs;
use causeway_api::sys::{CUdevice, CUfunction_attribute, CUresult};
use causeway_api::types::{ClusterRules, FunctionInfo, PORTABLE_CLUSTER_BLOCKS, Parameter};
use causeway_gpu::CuResult;
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{Kernel, MAX_CLUSTER_BLOCKS, Program};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

/// Leaves the split between cache and shared memory to the device.
const CARVEOUT_DEFAULT: i32 = -1;

/// Where a function comes from.
enum Source {
    /// A module: it belongs to that one's context.
    Module(Arc<Module>),
    /// A library: it is a function of any context.
    Library(Arc<Library>, u64),
}

/// Attributes that a client may set, for one device.
struct Settings {
    max_dynamic_shared: AtomicI32,
    carveout: AtomicI32,
    /// Blocks of a cluster along x, y and z where the code does not say it; 0 where launches may choose.
    cluster: [AtomicI32; 3],
    allows_non_portable_clusters: AtomicBool,
    cluster_scheduling: AtomicI32,
}

impl Settings {
    /// Those of a kernel whose attributes nobody has set.
    fn new(kernel: &Kernel) -> Self {
        let dynamic = SHARED_PER_BLOCK.saturating_sub(kernel.shared_bytes).cast_signed();
        Self {
            max_dynamic_shared: dynamic.into(),
            carveout: CARVEOUT_DEFAULT.into(),
            cluster: Default::default(),
            allows_non_portable_clusters: false.into(),
            cluster_scheduling: 0.into(),
        }
    }
}

/// Whose attributes a function has.
enum SettingsOf {
    /// A function of a context: those of its device.
    Context(Arc<Settings>),
    /// A kernel of a library: those of each device, which it shares with the functions that it is in
    /// contexts.
    Devices(Mutex<BTreeMap<CUdevice, Arc<Settings>>>),
}

/// A function or kernel.
pub(super) struct Function {
    source: Source,
    pub(super) kernel: Kernel,
    settings: SettingsOf,
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
        let settings = match source {
            Source::Module(_) => SettingsOf::Context(Arc::new(Settings::new(&kernel))),
            Source::Library(..) => SettingsOf::Devices(Mutex::default()),
        };
        Ok(Self { source, kernel, settings })
    }

    /// The attributes on a device; a function of a context has only those of its own.
    fn settings(&self, device: CUdevice) -> Arc<Settings> {
        match &self.settings {
            SettingsOf::Context(settings) => Arc::clone(settings),
            SettingsOf::Devices(devices) => {
                let mut devices = devices.lock();
                Arc::clone(devices.entry(device).or_insert_with(|| Arc::new(Settings::new(&self.kernel))))
            }
        }
    }

    /// What this function is in a context.
    pub(super) fn in_context(&self, context: &Context, space: &Arc<AddressSpace>) -> CuResult<Self> {
        Ok(Self {
            source: Source::Module(self.module_in(context, space)?),
            kernel: self.kernel.clone(),
            settings: SettingsOf::Context(self.settings(context.device)),
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
    pub(super) fn max_dynamic_shared(&self, device: CUdevice) -> u32 {
        self.settings(device).max_dynamic_shared.load(Relaxed).max(0).cast_unsigned()
    }

    /// What it says about the clusters of its launches.
    pub(super) fn cluster_rules(&self, device: CUdevice) -> ClusterRules {
        let settings = self.settings(device);
        ClusterRules {
            required: self.kernel.cluster.unwrap_or_else(|| {
                settings.cluster.each_ref().map(|blocks| blocks.load(Relaxed).max(0).cast_unsigned())
            }),
            must_be_set: self.kernel.explicit_cluster,
            allows_non_portable: settings.allows_non_portable_clusters.load(Relaxed),
        }
    }

    /// Most blocks that a cluster may have, but for what `.maxclusterrank` says.
    pub(super) fn max_cluster_blocks(&self, device: CUdevice) -> u32 {
        let rules = self.cluster_rules(device);
        if rules.allows_non_portable { MAX_CLUSTER_BLOCKS } else { PORTABLE_CLUSTER_BLOCKS }
    }

    /// What it needs of a multiprocessor.
    pub(super) fn needs(&self, device: CUdevice) -> Needs {
        Needs {
            max_threads: self.kernel.max_threads,
            registers: self.kernel.registers,
            static_shared: self.kernel.shared_bytes,
            max_dynamic_shared: self.max_dynamic_shared(device),
        }
    }

    /// What clients keep of it; `capability` is that of the devices, of which this is one.
    pub(super) fn info(&self, capability: u32, device: CUdevice) -> FunctionInfo {
        type A = CUfunction_attribute;
        let kernel = &self.kernel;
        let (clusters, settings) = (self.cluster_rules(device), self.settings(device));
        let [width, height, depth] = clusters.required.map(u32::cast_signed);
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
            (A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, settings.max_dynamic_shared.load(Relaxed)),
            (A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, settings.carveout.load(Relaxed)),
            (A::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, i32::from(clusters.must_be_set)),
            (A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, width),
            (A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, height),
            (A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, depth),
            (A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, i32::from(clusters.allows_non_portable)),
            (
                A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                settings.cluster_scheduling.load(Relaxed),
            ),
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

    /// Sets an attribute on a device.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a value out of range or an attribute that cannot be set, also for clusters of another
    /// size than the function's code says.
    pub(super) fn set_attribute(
        &self,
        device: CUdevice,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        type A = CUfunction_attribute;
        let settings = self.settings(device);
        let max = (SHARED_PER_BLOCK_OPT_IN.saturating_sub(self.kernel.shared_bytes)).cast_signed();
        match attribute {
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES if (0..=max).contains(&value) => {
                settings.max_dynamic_shared.store(value, Relaxed);
                Ok(())
            }
            A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
                if (CARVEOUT_DEFAULT..=100).contains(&value) =>
            {
                settings.carveout.store(value, Relaxed);
                Ok(())
            }
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => self.set_cluster(&settings, 0, value),
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => self.set_cluster(&settings, 1, value),
            A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => self.set_cluster(&settings, 2, value),
            // Any number, as with NVIDIA's driver (580).
            A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
                settings.allows_non_portable_clusters.store(value != 0, Relaxed);
                Ok(())
            }
            A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE if (0..=2).contains(&value) => {
                settings.cluster_scheduling.store(value, Relaxed);
                Ok(())
            }
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets how many blocks a cluster has along an axis.
    fn set_cluster(&self, settings: &Settings, axis: usize, value: i32) -> CuResult<()> {
        let is_other = |compiled: [u32; 3]| compiled[axis].cast_signed() != value;
        if value < 0 || self.kernel.cluster.is_some_and(is_other) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        settings.cluster[axis].store(value, Relaxed);
        Ok(())
    }
}
