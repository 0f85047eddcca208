//! How does a kernel come to run where memory lies?

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::element::{Element, Operation};
use super::ptx::{self, MOST_SOURCES};
use crate::cuda::{CudaError, DeviceMemory, Driver, Function, Scope};

/// Threads of a block.
const THREADS: u32 = 256;

/// Blocks of a kernel at most: each thread then takes several elements.
const MOST_BLOCKS: u64 = 1024;

/// Kernels that are loaded, by context and name. Modules go with their context, whose address another one may
/// get: a launch that fails is tried again with a module that is loaded anew.
static LOADED: Mutex<Option<HashMap<(u64, String), Function>>> = Mutex::new(None);

/// Runs a kernel with one thread for each of `work` items, as far as there are so many, and waits for its end.
///
/// # Safety
/// The parameters are what the kernel takes, and it stays within memory that is nobody else's.
///
/// # Errors
/// What the driver says.
pub unsafe fn run(
    scope: &Scope<'_>,
    name: &str,
    text: impl Fn() -> String,
    work: u64,
    parameters: &[u64],
) -> Result<(), CudaError> {
    let blocks = work.div_ceil(u64::from(THREADS)).clamp(1, MOST_BLOCKS) as u32;
    let key = (scope.context(), name.to_owned());
    let lock = || LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().get_or_insert_default().get(&key).copied();
    if let Some(function) = known {
        // SAFETY: as promised by the caller.
        if unsafe { scope.launch(function, blocks, THREADS, parameters) }.is_ok() {
            return Ok(());
        }
    }
    let function = scope.load(&text(), ptx::ENTRY)?;
    lock().get_or_insert_default().insert(key, function);
    // SAFETY: as promised by the caller.
    unsafe { scope.launch(function, blocks, THREADS, parameters) }
}

/// Puts elements of several sources together, in their order. Each of them may be the target, too. What the first
/// kernel of several makes goes to `partial`, which is one of the first two sources, or the target.
///
/// # Safety
/// All addresses are of memory on the GPU of the scope with so many elements; the target and `partial` are nobody
/// else's. No source overlaps the target in part. With more than [`MOST_SOURCES`] of them, `partial` is the target
/// only where no source is.
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
    if !element.takes(operation) {
        return Err(CudaError { call: "a reduction that is not defined", code: 1 });
    }
    if let [only] = sources {
        let bytes = (count * element.bytes()) as usize;
        // SAFETY: as promised by the caller.
        return if *only == target { Ok(()) } else { unsafe { scope.copy(target, *only, bytes) } };
    }
    let mut left = sources;
    let mut begun = false;
    while !left.is_empty() {
        // What there is already is the first source of the next kernel.
        let taken = left.len().min(MOST_SOURCES - usize::from(begun));
        let mut these: Vec<u64> = if begun { vec![partial] } else { Vec::new() };
        these.extend_from_slice(&left[..taken]);
        left = &left[taken..];
        begun = true;
        let name = format!("{element:?} {operation:?} {}", these.len());
        let text = || ptx::reduction(element, operation, these.len()).unwrap_or_default();
        let mut parameters = vec![if left.is_empty() { target } else { partial }, count];
        parameters.extend_from_slice(&these);
        // SAFETY: as promised by the caller.
        unsafe { run(scope, &name, text, count, &parameters) }?;
    }
    Ok(())
}

/// The memory at an address, if it is on a GPU.
pub fn memory_at(address: u64) -> Option<(&'static Driver, DeviceMemory)> {
    let driver = Driver::loaded()?;
    Some((driver, DeviceMemory::at(driver, address)?))
}
