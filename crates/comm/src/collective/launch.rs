//! Launch of reduction kernels.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::element::{Element, Operation};
use super::kernels::{self, Kernel, Makes};
use crate::cuda::{CudaError, DeviceMemory, Driver, Function, Scope};

/// Threads of a block.
const THREADS: u32 = 256;

/// Blocks of a kernel at most: each thread then takes several elements.
const MAX_BLOCKS: u64 = 1024;

/// The most sources of a reduction by one kernel; more are reduced by several, one after another.
const MAX_CONCURRENT: usize = 8;

/// A kernel of this room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Name {
    /// It puts elements together.
    Elements(Kernel),
    /// It copies runs of bytes, in units of so many, to or from where they lie one behind the other.
    Runs {
        /// Bytes of a unit.
        unit: u64,
        /// Whether they go there.
        is_pack: bool,
    },
}

/// Kernels that are loaded, by context (`Scope::life`) and name. Modules go with their context, and not every
/// driver says that it has ended: a launch that fails is tried again with a module that is loaded anew.
static LOADED: Mutex<Option<HashMap<(u64, Name), Function>>> = Mutex::new(None);

/// Runs a kernel with one thread for each of `work` items, as far as there are so many, and waits for its
/// end.
///
/// # Safety
/// The parameters are what the kernel takes, and it stays within memory that is not shared.
///
/// # Errors
/// What the driver says.
pub unsafe fn run(
    scope: &Scope<'_>,
    name: Name,
    text: impl Fn() -> String,
    work: u64,
    parameters: &[u64],
) -> Result<(), CudaError> {
    let blocks = work.div_ceil(u64::from(THREADS)).clamp(1, MAX_BLOCKS) as u32;
    let key = (scope.life(), name);
    let lock = || LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().get_or_insert_default().get(&key).copied();
    if let Some(function) = known {
        // SAFETY: as promised by the caller.
        if unsafe { scope.launch(function, blocks, THREADS, parameters) }.is_ok() {
            return Ok(());
        }
    }
    let function = scope.load(&text(), kernels::ENTRY)?;
    lock().get_or_insert_default().insert(key, function);
    // SAFETY: as promised by the caller.
    unsafe { scope.launch(function, blocks, THREADS, parameters) }
}

/// Runs a kernel on so many elements of all its sources, and waits for its end.
///
/// # Safety
/// All addresses are of memory that the GPU of the scope reaches, with so many elements, as many as the
/// kernel has of each. Targets are not shared; each of them may be a source, and overlaps none in part.
///
/// # Errors
/// What the driver says, or that there is no such kernel.
pub unsafe fn run_kernel(
    scope: &Scope<'_>,
    kernel: &Kernel,
    targets: &[u64],
    sources: &[u64],
    count: u64,
) -> Result<(), CudaError> {
    if kernel.sources != sources.len() || kernel.targets() != targets.len() || !kernel.is_one() {
        return Err(CudaError { call: "a reduction that is not defined", code: 1 });
    }
    let addresses = [targets, sources].concat();
    let (work, vectors) = kernel.work(count, &addresses);
    let text = || kernel.text().unwrap_or_default();
    let parameters = [&[count, vectors], addresses.as_slice()].concat();
    // SAFETY: as promised by the caller; these are the kernel's parameters.
    unsafe { run(scope, Name::Elements(*kernel), text, work, &parameters) }
}

/// Puts elements of several sources together, in their order. Each of them may be the target, too. What the
/// first kernel of several makes goes to `partial`, which is one of the first two sources, or the target.
///
/// # Safety
/// All addresses are of memory on the GPU of the scope with so many elements; the target and `partial` are
/// nobody else's. No source overlaps the target in part. With more than `MAX_CONCURRENT` of them, `partial`
/// is the target only where no source is.
///
/// # Errors
/// What the driver says.
pub unsafe fn reduce(
    scope: &Scope<'_>,
    element: Element,
    operation: Operation,
    (target, partial): (u64, u64),
    count: u64,
    sources: &[u64],
) -> Result<(), CudaError> {
    if let [only] = sources {
        let bytes = (count * element.bytes()) as usize;
        // SAFETY: as promised by the caller.
        return if *only == target { Ok(()) } else { unsafe { scope.copy(target, *only, bytes) } };
    }
    let mut left = sources;
    let mut has_partial = false;
    while !left.is_empty() {
        // What there is already is the first source of the next kernel.
        let taken = left.len().min(MAX_CONCURRENT - usize::from(has_partial));
        let mut these: Vec<u64> = if has_partial { vec![partial] } else { Vec::new() };
        these.extend_from_slice(&left[..taken]);
        left = &left[taken..];
        has_partial = true;
        let kernel = Kernel { element, operation, sources: these.len(), makes: Makes::Whole(1) };
        let to = if left.is_empty() { target } else { partial };
        // SAFETY: as promised by the caller.
        unsafe { run_kernel(scope, &kernel, &[to], &these, count) }?;
    }
    Ok(())
}

/// The memory at an address, if it is on a GPU.
pub fn memory_at(address: u64) -> Option<(&'static Driver, DeviceMemory)> {
    let driver = Driver::loaded()?;
    Some((driver, DeviceMemory::at(driver, address)?))
}

/// Whether an address is on a GPU.
pub fn is_on_gpu(address: u64) -> bool {
    Driver::loaded().is_some_and(|driver| DeviceMemory::is_at(driver, address))
}

/// Whether two addresses are on a GPU, and kernels of one context use both.
pub fn share_context(one: u64, other: u64) -> bool {
    memory_at(one)
        .zip(memory_at(other))
        .is_some_and(|((_, one), (_, other))| one.common_context(other).is_some())
}
