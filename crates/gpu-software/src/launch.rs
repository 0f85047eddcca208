//! Launching kernels: the checks before, and what their faults mean in CUDA.

use super::attributes::{CLUSTERS_SINCE, PRIORITIES, cores};
use super::context::Context;
use super::function::Function;
use super::machine::Machine;
use super::module::Module;
use super::occupancy::{active_blocks, active_clusters};
use super::textures::Table;
use causeway_api::sys::{CUdevice, CUlaunchAttributeID, CUlimit, CUresult};
use causeway_api::types::{LaunchAttribute, LaunchShape, cluster_dimension};
use causeway_gpu::{CuResult, OutputStream};
use causeway_ptx::texture::{Surface, Texture};
use causeway_ptx::{Fault, Host, LaunchConfig, MAX_BLOCK, MAX_GRID};
use parking_lot::Mutex;
use std::sync::Arc;

/// Output of a kernel that runs for long is passed on whenever there is this much of it.
const OUTPUT_PIECE: usize = 32 << 10;

/// A kernel ready to run.
pub(super) struct Launch {
    function: Arc<Function>,
    module: Arc<Module>,
    shape: LaunchShape,
    /// Blocks of a cluster, where function or launch asks for clusters.
    cluster: Option<[u32; 3]>,
    /// Whether its blocks may wait for each other.
    cooperative: bool,
    /// The priority that the launch was given.
    priority: Option<i32>,
    parameters: Box<[u8]>,
    /// The textures and surfaces that there were when it was issued.
    objects: Arc<Table>,
    /// Bytes of stack for each thread, as its context says.
    stack: usize,
}

impl Launch {
    /// Checks a launch as the driver does.
    ///
    /// # Errors
    /// Those of [`resolve_cluster`], `CUDA_ERROR_INVALID_VALUE` for a shape beyond the limits of device or function or no parameters,
    /// `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE` for more blocks than run at the same time,
    /// `CUDA_ERROR_NOT_SUPPORTED` for an attribute that asks for something this device does not have.
    pub(super) fn new(
        function: Arc<Function>,
        module: Arc<Module>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
        parameters: &[u8],
        objects: Arc<Table>,
        (context, capability): (&Context, u32),
    ) -> CuResult<Self> {
        let device = context.device;
        let stack = context.limit(CUlimit::CU_LIMIT_STACK_SIZE)?;
        attributes.iter().try_for_each(|attribute| check_attribute(attribute, capability))?;
        let kernel = &function.kernel;
        let within = |sizes: [u32; 3], limits: [u32; 3]| {
            sizes.iter().zip(limits).all(|(size, limit)| (1..=limit).contains(size))
        };
        let threads: u64 = shape.block.iter().map(|size| u64::from(*size)).product();
        let fits = within(shape.grid, MAX_GRID)
            && within(shape.block, MAX_BLOCK)
            && threads <= u64::from(kernel.max_threads)
            && kernel.block.is_none_or(|required| required == shape.block)
            && shape.shared_bytes <= function.max_dynamic_shared(device);
        // As on a GPU, a program may leave out what its kernel does not look at, but not all.
        if !fits || parameters.is_empty() && kernel.parameter_bytes > 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let cluster = resolve_cluster(&function, device, shape.grid, attributes)?;
        let cooperative = attributes.iter().any(is_cooperative);
        let priority = attributes.iter().rev().find_map(priority_of);
        let blocks: u64 = shape.grid.iter().map(|size| u64::from(*size)).product();
        if cooperative && blocks > max_cooperative(&function, device, threads, shape.shared_bytes, cluster)? {
            return Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        let mut parameters = parameters.to_vec();
        parameters.resize(kernel.parameter_bytes as usize, 0);
        Ok(Self {
            function,
            module,
            shape,
            cluster,
            cooperative,
            priority,
            parameters: parameters.into(),
            objects,
            stack,
        })
    }

    /// Bytes of its parameters.
    pub(super) fn parameter_bytes(&self) -> usize {
        self.parameters.len()
    }

    /// Runs it to its end, with the priority of its stream unless it has one of its own.
    ///
    /// # Errors
    /// The error of its fault, which ends the context.
    pub(super) fn execute(&self, machine: &Machine, priority: i32) -> CuResult<()> {
        let objects = [Arc::clone(&self.objects), machine.textures.table()];
        let output = Output { machine, text: Mutex::default(), objects };
        let config = LaunchConfig {
            grid: self.shape.grid,
            block: self.shape.block,
            cluster: self.cluster,
            dynamic_shared: self.shape.shared_bytes,
            cooperative: self.cooperative,
            priority: self.priority.unwrap_or(priority),
            params: &self.parameters,
        };
        let (loaded, name) = (&self.module.loaded, &self.function.kernel.name);
        let ended = loaded.launch_with_stack(name, config, self.stack, &machine.pool, &output);
        output.flush();
        ended.map_err(|fault| {
            tracing::error!("kernel `{}` ended with an error: {fault}", self.function.kernel.name);
            code_of(&fault)
        })
    }
}

/// A 32-bit word of an attribute's value.
fn word(attribute: &LaunchAttribute, index: usize) -> u32 {
    attribute.value[index * 4..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Whether an attribute says that the blocks of the grid may wait for each other.
fn is_cooperative(attribute: &LaunchAttribute) -> bool {
    CUlaunchAttributeID(attribute.id) == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        && word(attribute, 0) != 0
}

/// The priority that an attribute gives, as near to it as there is one.
fn priority_of(attribute: &LaunchAttribute) -> Option<i32> {
    let is_priority = CUlaunchAttributeID(attribute.id) == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    let (lowest, highest) = PRIORITIES;
    is_priority.then(|| word(attribute, 0).cast_signed().clamp(highest, lowest))
}

/// How many blocks of a cooperative grid may be launched.
fn max_cooperative(
    function: &Function,
    device: CUdevice,
    threads: u64,
    shared: u32,
    cluster: Option<[u32; 3]>,
) -> CuResult<u64> {
    let in_cluster: u32 = cluster.unwrap_or([1; 3]).iter().product();
    let each = active_blocks(&function.needs(device), threads as i32, shared as usize)?;
    Ok(u64::from(active_clusters(each.cast_unsigned(), in_cluster))
        * u64::from(in_cluster)
        * u64::from(cores()))
}

/// Blocks of a cluster along x, y and z in a launch of a grid; `None` where neither function nor launch asks for clusters.
///
/// # Errors
/// Those of [`ClusterRules::resolve`](causeway_api::types::ClusterRules::resolve), and `CUDA_ERROR_INVALID_CLUSTER_SIZE`
/// for more blocks than `.maxclusterrank` says.
pub(super) fn resolve_cluster(
    function: &Function,
    device: CUdevice,
    grid: [u32; 3],
    attributes: &[LaunchAttribute],
) -> CuResult<Option<[u32; 3]>> {
    let cluster = function.cluster_rules(device).resolve(grid, attributes)?;
    let blocks: u64 = cluster.unwrap_or([1; 3]).iter().map(|&blocks| u64::from(blocks)).product();
    if function.kernel.max_cluster_blocks.is_some_and(|limit| blocks > u64::from(limit)) {
        return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    Ok(cluster)
}

/// Whether a launch attribute can be had. Hints are accepted: they promise nothing.
fn check_attribute(attribute: &LaunchAttribute, capability: u32) -> CuResult<()> {
    type Id = CUlaunchAttributeID;
    let supported = match CUlaunchAttributeID(attribute.id) {
        Id::CU_LAUNCH_ATTRIBUTE_IGNORE
        | Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
        | Id::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
        | Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
        | Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        | Id::CU_LAUNCH_ATTRIBUTE_PRIORITY
        | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
        | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
        | Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        | Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        | Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
        | Id::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING => true,
        // Devices before 9.0 have clusters of one block alone.
        Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
            capability >= CLUSTERS_SINCE
                || cluster_dimension(attribute).is_some_and(|cluster| cluster == [1; 3])
        }
        _ => false,
    };
    if supported { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) }
}

/// The error that a GPU gives for a fault.
fn code_of(fault: &Fault) -> CUresult {
    match fault {
        Fault::IllegalAddress { .. } | Fault::NoObject { .. } | Fault::OutsideSurface { .. } => {
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        }
        Fault::Misaligned { .. } => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        Fault::Trap { .. } => CUresult::CUDA_ERROR_LAUNCH_FAILED,
        Fault::Assert { .. } => CUresult::CUDA_ERROR_ASSERT,
        Fault::StackOverflow { .. } => CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
        Fault::IllegalInstruction { .. } => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        Fault::Deadlock { .. } => CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
        Fault::UnknownKernel(_) => CUresult::CUDA_ERROR_NOT_FOUND,
        Fault::Unsupported { .. } => CUresult::CUDA_ERROR_NOT_SUPPORTED,
        Fault::InvalidConfiguration { .. } => CUresult::CUDA_ERROR_INVALID_VALUE,
        Fault::OutOfResources { .. } => CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    }
}

/// Gathers what one launch prints, so that many short texts become few messages.
struct Output<'a> {
    machine: &'a Machine,
    text: Mutex<Vec<u8>>,
    /// The textures and surfaces of when it was issued, and of when it began.
    objects: [Arc<Table>; 2],
}

impl Output<'_> {
    fn flush(&self) {
        self.pass_on(&mut self.text.lock());
    }

    /// Called with the text locked, so that pieces keep their order.
    fn pass_on(&self, text: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        if let Some(sink) = self.machine.output.read().as_ref() {
            sink(OutputStream::Standard, text);
        }
        text.clear();
    }
}

impl Host for Output<'_> {
    fn print(&self, text: &[u8]) {
        let mut gathered = self.text.lock();
        gathered.extend_from_slice(text);
        if gathered.len() >= OUTPUT_PIECE {
            self.pass_on(&mut gathered);
        }
    }

    fn set_condition(&self, handle: u64, value: u32) -> bool {
        self.machine.conditions.set(handle, value)
    }

    fn texture(&self, handle: u64) -> Option<&Texture> {
        self.objects.iter().find_map(|table| table.texture(handle))
    }

    fn surface(&self, handle: u64) -> Option<&Surface> {
        self.objects.iter().find_map(|table| table.surface(handle))
    }

    fn assertion(&self, message: &str) {
        // What was printed before comes before.
        self.flush();
        if let Some(sink) = self.machine.output.read().as_ref() {
            let end = if message.ends_with('\n') { "" } else { "\n" };
            sink(OutputStream::Error, format!("{message}{end}").as_bytes());
        }
    }
}
