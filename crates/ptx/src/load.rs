//! Programs in memory, ready to launch.

use std::sync::{Arc, OnceLock};

use thiserror::Error;

use crate::fault::Fault;
use crate::jit::{CommonCode, CompiledKernel};
use crate::layout::{KernelLayout, LOCAL_FOR_RECURSION};
use crate::limits::MAX_CLUSTER_BLOCKS;
use crate::link::Symbol;
use crate::lower::function_address;
use crate::memory::{AddressSpace, Arena, OutOfMemory};
use crate::parse::syntax::{Opaque, Space, Variable};
use crate::pool::Pool;
use crate::program::{Kernel, Program};
use crate::run::{Host, Launch, Progress, max_clusters};

/// Variables from this size on get an allocation of their own.
const LARGE_VARIABLE: u64 = 64 << 10;
/// Where sections of smaller ones begin.
const SECTION_ALIGN: u64 = 256;

/// A program could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    /// There is no memory for its variables.
    #[error("the program's variables need device memory: {0}")]
    OutOfMemory(#[from] OutOfMemory),
    /// A variable is initialised with something that has no address before a kernel runs.
    #[error(
        "`{variable}` is initialised with the address of `{symbol}`, which is only known inside a kernel"
    )]
    NoAddress {
        /// The variable.
        variable: String,
        /// What it points at.
        symbol: String,
    },
}

/// How to launch a kernel.
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig<'a> {
    /// Blocks in the grid.
    pub grid: [u32; 3],
    /// Threads in a block.
    pub block: [u32; 3],
    /// Blocks of a cluster along x, y and z, where the launch says so: else what the kernel says, or one block.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// Whether the grid's blocks may wait for each other at a barrier of the grid: all must fit at once.
    pub cooperative: bool,
    /// Where several launches have blocks to run, those with the smallest number begin theirs first.
    pub priority: i32,
    /// The parameter buffer, laid out as [`crate::Kernel::parameters`] says; at least
    /// [`crate::Kernel::parameter_bytes`] long.
    pub params: &'a [u8],
}

/// A program whose variables are in memory. Dropping it frees them and its code.
pub struct Loaded {
    program: Program,
    space: Arc<AddressSpace>,
    /// Address of each variable; 0 for those of a block.
    addresses: Vec<u64>,
    allocations: Vec<u64>,
    code: Vec<OnceLock<Result<CompiledKernel, String>>>,
    common: CommonCode,
}

impl Program {
    /// Allocates and initialises the program's variables in `space`; those declared `__managed__` are those
    /// of `shared`, if that is given, which must be of the same program and stay loaded as long.
    ///
    /// Machine code is generated kernel by kernel, when a kernel is first launched.
    ///
    /// # Errors
    /// When the variables do not fit or have impossible initial values.
    pub fn load(&self, space: &Arc<AddressSpace>, shared: Option<&Loaded>) -> Result<Loaded, LoadError> {
        self.load_at(space, shared, None)
    }

    /// Like [`Self::load`]; with `fixed` the variables lie where [`Loaded::ranges`] says that they did in another
    /// process.
    ///
    /// # Errors
    /// As for [`Self::load`], also when these addresses are not free.
    pub fn load_at(
        &self,
        space: &Arc<AddressSpace>,
        shared: Option<&Loaded>,
        fixed: Option<&[u64]>,
    ) -> Result<Loaded, LoadError> {
        let code = self.kernels().iter().map(|_| OnceLock::new()).collect();
        let mut loaded = Loaded {
            program: self.clone(),
            space: Arc::clone(space),
            addresses: Vec::new(),
            allocations: Vec::new(),
            code,
            common: CommonCode::default(),
        };
        loaded.allocate_variables(shared, fixed)?;
        loaded.initialise_variables(shared.is_some())?;
        Ok(loaded)
    }
}

impl Loaded {
    /// The program this was loaded from.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// First address and size of each of its allocations, in the order in which they were made.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        self.allocations.iter().filter_map(|&address| self.space.range_of(address)).collect()
    }

    /// Address and size of a `.global` or `.const` variable.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        let variable = self.program.variable(name)?;
        Some((self.addresses[variable], self.program.image().variables[variable].size))
    }

    /// The address of a `.texref` variable, by which kernels name the texture that is bound to it.
    pub fn texture_reference(&self, name: &str) -> Option<u64> {
        self.opaque(name, Opaque::Texture)
    }

    /// The address of a `.surfref` variable.
    pub fn surface_reference(&self, name: &str) -> Option<u64> {
        self.opaque(name, Opaque::Surface)
    }

    fn opaque(&self, name: &str, kind: Opaque) -> Option<u64> {
        let variable = self.program.variable(name)?;
        let is_requested = self.program.image().variables[variable].opaque == Some(kind);
        is_requested.then_some(self.addresses[variable])
    }

    /// Generates the machine code of a kernel now, so that its first launch need not wait for it.
    ///
    /// # Errors
    /// [`Fault::UnknownKernel`], [`Fault::Unsupported`], or [`Fault::OutOfResources`] when no code can be
    /// generated.
    pub fn prepare(&self, kernel: &str) -> Result<(), Fault> {
        let index =
            self.program.kernel_index(kernel).ok_or_else(|| Fault::UnknownKernel(kernel.to_owned()))?;
        self.compiled(index).map(|_| ())
    }

    /// Runs a kernel over a grid, to its end.
    ///
    /// Blocks run on the calling thread and, when there are several, on those of `pool`.
    ///
    /// # Errors
    /// What ended the grid early, or why it did not start.
    pub fn launch(
        &self,
        kernel: &str,
        config: LaunchConfig<'_>,
        pool: &Pool,
        host: &dyn Host,
    ) -> Result<(), Fault> {
        self.launch_with_stack(kernel, config, 0, pool, host)
    }

    /// The same with a stack of so many bytes for each thread (`cudaLimitStackSize`), of which only kernels
    /// make use whose calls may be of any depth. Those have some 32 KiB in any case.
    ///
    /// # Errors
    /// Those of [`Self::launch`].
    pub fn launch_with_stack(
        &self,
        kernel: &str,
        config: LaunchConfig<'_>,
        stack: usize,
        pool: &Pool,
        host: &dyn Host,
    ) -> Result<(), Fault> {
        let index =
            self.program.kernel_index(kernel).ok_or_else(|| Fault::UnknownKernel(kernel.to_owned()))?;
        let layout = self.program.layout(index);
        let requested = config.cluster.or(self.program.kernels()[index].cluster);
        let cluster = requested.unwrap_or([1; 3]);
        self.check(index, layout, &config, cluster, pool.size() as u32)?;
        let compiled = self.compiled(index)?;
        let threads = config.block.iter().map(|&count| u64::from(count)).product();
        let extra = (stack as u64).saturating_sub(LOCAL_FOR_RECURSION) / 16 * 16;
        let extra = if layout.is_unbounded { extra } else { 0 };
        let limit = Arena::local_limit(threads) / 16 * 16;
        let local = layout.local.saturating_add(extra).min(limit.max(layout.local));
        let is_lockstep = layout.lockstep.applies(threads);
        // Blocks of a grid that is not cooperative find no barrier, unless there is but one.
        let board = if config.cooperative { self.space.take_arena() } else { None };
        let launch = Launch {
            kernel,
            entry: compiled.entry,
            waits: layout.waits || is_lockstep,
            frame_size: compiled.frame_size.filter(|_| layout.waits || is_lockstep),
            is_lockstep,
            grid: config.grid,
            block: config.block,
            cluster,
            is_explicit_cluster: requested.is_some(),
            static_shared: layout.static_shared as u32,
            dynamic_shared: config.dynamic_shared,
            local,
            // Frames of compiled code hold what is in no variable of the kernel.
            extra_stack: 2 * (local - layout.local) as usize + compiled.large_frames,
            parameters: &config.params[..self.program.kernels()[index].parameter_bytes as usize],
            priority: config.priority,
            pool,
            workspace: board.as_ref().map_or(0, Arena::make_workspace),
            space: &self.space,
            host,
            progress: Progress::default(),
        };
        let product = |counts: [u32; 3]| counts.iter().map(|&count| u64::from(count)).product::<u64>();
        let clusters = product(config.grid) / product(cluster);
        // Who helps with a grid that may wait for another would be away from that for ever.
        let may_be_joined = !layout.polls && !config.cooperative;
        pool.run(clusters, config.priority, may_be_joined, &|workers| launch.work(workers));
        let result = launch.into_result();
        board.into_iter().for_each(|board| self.space.return_arena(board));
        result
    }

    fn check(
        &self,
        index: usize,
        layout: &KernelLayout,
        config: &LaunchConfig<'_>,
        cluster: [u32; 3],
        workers: u32,
    ) -> Result<(), Fault> {
        let kernel = &self.program.kernels()[index];
        let name = || kernel.name.clone();
        let invalid = |reason: String| Err(Fault::InvalidConfiguration { kernel: name(), reason });
        let lacking = |reason: String| Err(Fault::OutOfResources { kernel: name(), reason });
        for ((count, limit), axis) in config.grid.iter().zip(crate::limits::MAX_GRID).zip("xyz".chars()) {
            if *count == 0 || *count > limit {
                return invalid(format!(
                    "the grid has {count} blocks along {axis}; 1 to {limit} are possible"
                ));
            }
        }
        self.check_cluster(kernel, config.grid, cluster)?;
        for ((count, limit), axis) in config.block.iter().zip(crate::limits::MAX_BLOCK).zip("xyz".chars()) {
            if *count == 0 || *count > limit {
                return invalid(format!(
                    "a block has {count} threads along {axis}; 1 to {limit} are possible"
                ));
            }
        }
        let threads: u64 = config.block.iter().map(|&count| u64::from(count)).product();
        let limit = crate::limits::MAX_THREADS_PER_BLOCK;
        if threads > u64::from(limit) {
            return invalid(format!("a block has {threads} threads; at most {limit} are possible"));
        }
        if threads > u64::from(kernel.max_threads) {
            let limit = kernel.max_threads;
            return lacking(format!(
                "a block has {threads} threads, and the kernel was compiled for at most {limit}"
            ));
        }
        if let Some(required) = kernel.block.filter(|required| *required != config.block) {
            let found = config.block;
            return lacking(format!(
                "a block is {found:?} threads large, and the kernel demands {required:?}"
            ));
        }
        let shared = u64::from(config.dynamic_shared) + layout.static_shared;
        let limit = crate::limits::MAX_SHARED_PER_BLOCK;
        if shared > u64::from(limit) {
            return invalid(format!(
                "a block needs {shared} bytes of shared memory; at most {limit} are possible"
            ));
        }
        let limit = Arena::local_limit(threads);
        if layout.local > limit {
            let local = layout.local;
            return lacking(format!(
                "a thread needs {local} bytes of local memory; {limit} are possible in such a block"
            ));
        }
        let blocks: u64 = config.grid.iter().map(|&count| u64::from(count)).product();
        let in_cluster = cluster.iter().product();
        let possible = u64::from(max_clusters(threads, in_cluster, workers)) * u64::from(in_cluster);
        if config.cooperative && blocks > possible {
            return lacking(format!("{blocks} blocks of {threads} threads do not all run at the same time"));
        }
        let (given, needed) = (config.params.len(), kernel.parameter_bytes);
        if given < needed as usize {
            return invalid(format!("{given} bytes of parameters were given, and it has {needed}"));
        }
        Ok(())
    }

    /// Whether a grid can be one of clusters of this size.
    fn check_cluster(&self, kernel: &Kernel, grid: [u32; 3], cluster: [u32; 3]) -> Result<(), Fault> {
        let invalid = |reason| Err(Fault::InvalidConfiguration { kernel: kernel.name.clone(), reason });
        let blocks = cluster.iter().fold(1_u64, |blocks, &count| blocks.saturating_mul(u64::from(count)));
        let limit = kernel.max_cluster_blocks.unwrap_or(MAX_CLUSTER_BLOCKS).min(MAX_CLUSTER_BLOCKS);
        if !(1..=u64::from(limit)).contains(&blocks) {
            return invalid(format!("a cluster has {blocks} blocks; 1 to {limit} are possible"));
        }
        for ((blocks, size), axis) in grid.iter().zip(cluster).zip("xyz".chars()) {
            if !blocks.is_multiple_of(size) {
                return invalid(format!(
                    "the grid has {blocks} blocks along {axis}, which is no multiple of the {size} that a cluster has"
                ));
            }
        }
        match kernel.cluster {
            Some(compiled) if compiled != cluster => invalid(format!(
                "the launch asks for clusters of {cluster:?} blocks, and the kernel was compiled for {compiled:?}"
            )),
            _ => Ok(()),
        }
    }

    fn compiled(&self, index: usize) -> Result<&CompiledKernel, Fault> {
        let kernel = &self.program.kernels()[index];
        if let Some(error) = &kernel.unsupported {
            return Err(Fault::Unsupported { kernel: kernel.name.clone(), reason: error.to_string() });
        }
        let compiled = self.code[index].get_or_init(|| {
            let layout = self.program.layout(index);
            let space = (self.space.base(), self.space.reserved().trailing_zeros());
            CompiledKernel::compile(
                self.program.image(),
                layout.function,
                layout,
                &self.addresses,
                space,
                &self.common,
            )
        });
        compiled.as_ref().map_err(|reason| Fault::OutOfResources {
            kernel: kernel.name.clone(),
            reason: format!("no machine code could be generated: {reason}"),
        })
    }

    fn allocate_variables(&mut self, shared: Option<&Self>, fixed: Option<&[u64]>) -> Result<(), LoadError> {
        let program = self.program.clone();
        let variables = &program.image().variables;
        self.addresses = vec![0; variables.len()];
        let mut small = Vec::new();
        for (id, variable) in variables.iter().enumerate().filter(|(_, variable)| in_memory(variable)) {
            if let Some(shared) = shared.filter(|_| variable.managed) {
                self.addresses[id] = shared.addresses[id];
            } else if variable.size >= LARGE_VARIABLE {
                self.addresses[id] = self.allocate(variable.size, u64::from(variable.align), fixed)?;
            } else {
                small.push(id);
            }
        }
        if !small.is_empty() {
            let align = small.iter().map(|&id| u64::from(variables[id].align)).max().unwrap_or(1);
            let (starts, end) = small_variables(small.iter().map(|&id| &variables[id]));
            let base = self.allocate(end, align, fixed)?;
            for (id, start) in small.into_iter().zip(starts) {
                self.addresses[id] = base + start;
            }
        }
        Ok(())
    }

    fn allocate(&mut self, size: u64, align: u64, fixed: Option<&[u64]>) -> Result<u64, OutOfMemory> {
        let address = match fixed {
            Some(fixed) => {
                // Where none is named there is none free.
                let address = fixed.get(self.allocations.len()).copied().unwrap_or(0);
                self.space.allocate_again(address, size)?;
                address
            }
            None => self.space.allocate(size, align.max(256))?,
        };
        self.allocations.push(address);
        Ok(address)
    }

    fn initialise_variables(&self, managed_are_shared: bool) -> Result<(), LoadError> {
        let image = self.program.image();
        let own = |variable: &Variable| in_memory(variable) && !(managed_are_shared && variable.managed);
        for (id, variable) in image.variables.iter().enumerate().filter(|(_, variable)| own(variable)) {
            let mut bytes = variable.initial.clone();
            for pointer in &variable.pointers {
                let names = &image.names[image.variable_modules[id]];
                let address = match names.get(&pointer.symbol) {
                    Some(Symbol::Function(function)) => function_address(*function),
                    Some(Symbol::Variable(target)) if in_memory(&image.variables[*target]) => {
                        self.addresses[*target]
                    }
                    _ => {
                        return Err(LoadError::NoAddress {
                            variable: variable.name.clone(),
                            symbol: pointer.symbol.clone(),
                        });
                    }
                };
                let value = address.wrapping_add_signed(pointer.addend) >> pointer.shift;
                let start = pointer.offset as usize;
                let width = (pointer.width as usize).min(8);
                bytes[start..start + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            // It fits, unless another thread of the same program frees the variable at this very moment.
            let _ = self.space.write(self.addresses[id], &bytes);
        }
        Ok(())
    }
}

/// Where each of these variables begins in an allocation that they share, and its size.
///
/// Programs rely on more than a variable's alignment, because ptxas gives more to most: it has one section for
/// constants, one for variables with initial values, and one for those without, the best aligned first; each begins at a
/// multiple of 256 bytes.
fn small_variables<'a>(variables: impl Iterator<Item = &'a Variable>) -> (Vec<u64>, u64) {
    let variables: Vec<&Variable> = variables.collect();
    let section = |variable: &Variable| match variable.space {
        Space::Const => 0,
        _ if !variable.initial.is_empty() || !variable.pointers.is_empty() => 1,
        _ => 2,
    };
    let mut order: Vec<usize> = (0..variables.len()).collect();
    order.sort_by_key(|&index| {
        let variable = variables[index];
        (section(variable), if section(variable) == 2 { u32::MAX - variable.align } else { 0 })
    });
    let (mut starts, mut end, mut last) = (vec![0; variables.len()], 0_u64, 0);
    for index in order {
        let variable = variables[index];
        if std::mem::replace(&mut last, section(variable)) != section(variable) {
            end = end.next_multiple_of(SECTION_ALIGN);
        }
        starts[index] = end.next_multiple_of(variable.placed_align());
        end = starts[index] + variable.size.max(1);
    }
    (starts, end)
}

/// Whether a variable exists once for the program, not once for each block.
fn in_memory(variable: &Variable) -> bool {
    matches!(variable.space, Space::Global | Space::Const)
}

impl Drop for Loaded {
    fn drop(&mut self) {
        for &address in &self.allocations {
            // Whoever freed a variable through the driver has left nothing to free here.
            let _ = self.space.free(address);
        }
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Loaded").field("allocations", &self.allocations).finish_non_exhaustive()
    }
}
