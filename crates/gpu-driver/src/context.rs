//! Which contexts exist, and which one a thread's calls mean.

use crate::functions::Functions;
use crate::locks::{Mutex, rank};
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{CUdevice, CUresult};
use causeway_gpu::CuResult;
use core::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;
use std::collections::HashMap;

/// Counts how often a context ended. What a thread remembers of its current context holds for one count only,
/// since the driver takes an ended context from the thread that ended it and may use its address again.
static GENERATION: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The count at which the thread's current context was last known, and that context.
    static KNOWN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Makes `context` current; costs nothing when it is already.
pub(crate) fn set(functions: &Functions, context: Native<Context>) -> CuResult<()> {
    let generation = GENERATION.load(Ordering::Acquire);
    if KNOWN.get() == (generation, context.value()) {
        return Ok(());
    }
    // SAFETY: the handle is the driver's own, or null for "no context".
    unsafe { functions.cuCtxSetCurrent(context.as_raw())? };
    KNOWN.set((generation, context.value()));
    Ok(())
}

/// The calling thread's current context, null when it has none.
pub(crate) fn current(functions: &Functions) -> CuResult<Native<Context>> {
    let generation = GENERATION.load(Ordering::Acquire);
    let (known_at, context) = KNOWN.get();
    if known_at == generation {
        return Ok(Native::from_value(context));
    }
    let mut raw = core::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    unsafe { functions.cuCtxGetCurrent(&mut raw)? };
    let context = Native::from_raw(raw);
    KNOWN.set((generation, context.value()));
    Ok(context)
}

/// Does `work` with `context` current and leaves the thread's own context as it was.
pub(crate) fn within<T>(
    functions: &Functions,
    context: Native<Context>,
    work: impl FnOnce() -> CuResult<T>,
) -> CuResult<T> {
    let before = current(functions)?;
    if before == context {
        return work();
    }
    set(functions, context)?;
    let result = work();
    set(functions, before)?;
    result
}

/// To be called when the driver has changed the calling thread's current context by itself.
pub(crate) fn forget_current() {
    KNOWN.set((0, 0));
}

/// To be called when a context has ended: what threads remember as their current one may be that one.
pub(crate) fn ended() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// The contexts that exist now.
#[derive(Default)]
pub(crate) struct Contexts {
    live: Mutex<rank::Leaf, Vec<Native<Context>>>,
    /// The primary contexts by device, each with the number of times that it is retained.
    primary: Mutex<rank::Leaf, HashMap<CUdevice, (Native<Context>, usize)>>,
}

impl Contexts {
    /// Some context, the oldest one, for work that any of them can do.
    pub(crate) fn any(&self) -> Option<Native<Context>> {
        self.live.lock().first().copied()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Native<Context>> {
        self.live.lock().clone()
    }

    /// A context has been made.
    pub(crate) fn add(&self, context: Native<Context>) {
        let mut live = self.live.lock();
        if !live.contains(&context) {
            live.push(context);
        }
    }

    /// A context is about to end.
    pub(crate) fn remove(&self, context: Native<Context>) {
        self.live.lock().retain(|other| *other != context);
    }

    /// The primary context of a device has been retained once more.
    pub(crate) fn retain_primary(&self, device: CUdevice, context: Native<Context>) {
        self.add(context);
        self.primary.lock().entry(device).or_insert((context, 0)).1 += 1;
    }

    /// Takes back one use of a device's primary context, which is given where that was the last.
    pub(crate) fn release_primary(&self, device: CUdevice) -> CuResult<Option<Native<Context>>> {
        let mut primary = self.primary.lock();
        match primary.get_mut(&device) {
            Some((_, uses)) if *uses > 1 => {
                *uses -= 1;
                Ok(None)
            }
            Some(_) => Ok(primary.remove(&device).map(|(context, _)| context)),
            None => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        }
    }

    /// Takes back all uses of a device's primary context, if there are any.
    pub(crate) fn reset_primary(&self, device: CUdevice) -> Option<Native<Context>> {
        self.primary.lock().remove(&device).map(|(context, _)| context)
    }
}
