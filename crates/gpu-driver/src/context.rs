//! Contexts: making and ending them, and which one a thread's calls mean.

use super::Driver;
use super::functions::Functions;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{CUdevice, CUlimit, CUresult};
use causeway_gpu::CuResult;
use causeway_gpu::calls::ContextCalls;
use core::sync::atomic::{AtomicU64, Ordering};
use parking_lot::Mutex;
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
pub(super) fn set(functions: &Functions, context: Native<Context>) -> CuResult<()> {
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
pub(super) fn current(functions: &Functions) -> CuResult<Native<Context>> {
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
pub(super) fn within<T>(
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

/// To be called when a context has ended: what threads remember as their current one may be that one.
fn ended() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// The contexts that exist now.
#[derive(Default)]
pub(super) struct Contexts {
    live: Mutex<Vec<Native<Context>>>,
    /// The primary contexts by device, each with the number of times that it is retained.
    primary: Mutex<HashMap<CUdevice, (Native<Context>, usize)>>,
}

impl Contexts {
    /// Some context, the oldest one, for work that any of them can do.
    pub(super) fn any(&self) -> Option<Native<Context>> {
        self.live.lock().first().copied()
    }

    fn add(&self, context: Native<Context>) {
        let mut live = self.live.lock();
        if !live.contains(&context) {
            live.push(context);
        }
    }
}

impl ContextCalls for Driver {
    causeway_api_macros::driver_calls!(context);

    fn primary_context_retain(&self, device: CUdevice, flags: u32) -> CuResult<Native<Context>> {
        if flags != 0 {
            // SAFETY: no pointers.
            unsafe { self.functions.cuDevicePrimaryCtxSetFlags_v2(device, flags)? };
        }
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuDevicePrimaryCtxRetain(&mut raw, device)? };
        let context = Native::from_raw(raw);
        self.contexts.add(context);
        self.contexts.primary.lock().entry(device).or_insert((context, 0)).1 += 1;
        Ok(context)
    }

    /// Gives back one use of a primary context; the last one ends it, and may block for its work.
    fn primary_context_release(&self, _context: Native<Context>, device: CUdevice) -> CuResult<()> {
        let ended = {
            let mut primary = self.contexts.primary.lock();
            match primary.get_mut(&device) {
                Some((_, uses)) if *uses > 1 => {
                    *uses -= 1;
                    None
                }
                Some(_) => primary.remove(&device).map(|(context, _)| context),
                None => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
            }
        };
        // SAFETY: no pointers.
        let release = || unsafe { self.functions.cuDevicePrimaryCtxRelease_v2(device) };
        match ended {
            Some(context) => self.end_context(context, release),
            None => release(),
        }
    }

    fn context_create(&self, device: CUdevice, flags: u32) -> CuResult<Native<Context>> {
        let before = current(self.functions)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCtxCreate_v2(&mut raw, flags, device)? };
        let context = Native::from_raw(raw);
        self.contexts.add(context);
        // The driver has put the new context on top of the thread's stack: it must not stay there.
        let mut popped = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCtxPopCurrent_v2(&mut popped)? };
        KNOWN.set((0, 0));
        set(self.functions, before)?;
        Ok(context)
    }

    fn context_layout(&self) -> CuResult<Vec<u8>> {
        self.read_layout()
    }

    fn context_limit_get(&self, limit: CUlimit) -> CuResult<usize> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCtxGetLimit(&mut value, limit)? };
        Ok(value)
    }

    fn context_limit_set(&self, limit: CUlimit, value: usize) -> CuResult<()> {
        // SAFETY: no pointers.
        unsafe { self.functions.cuCtxSetLimit(limit, value) }
    }
}

impl Driver {
    pub(super) fn primary_reset(&self, device: CUdevice) -> CuResult<()> {
        let context = self.contexts.primary.lock().remove(&device);
        // SAFETY: no pointers.
        let reset = || unsafe { self.functions.cuDevicePrimaryCtxReset_v2(device) };
        match context {
            Some((context, _)) => self.end_context(context, reset),
            None => {
                let result = reset();
                ended();
                result
            }
        }
    }

    pub(super) fn destroy_context(&self, context: Native<Context>) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        self.end_context(context, || unsafe { self.functions.cuCtxDestroy_v2(context.as_raw()) })
    }

    /// Ends `context` by `end`, and all that ends with it. Its completions come before, since a stream that `end` waits for may
    /// stop until one has come; the memory that they would free is kept until the device has stopped.
    pub(super) fn end_context(
        &self,
        context: Native<Context>,
        end: impl FnOnce() -> CuResult<()>,
    ) -> CuResult<()> {
        let _ending = self.set_aside.end_context();
        self.waits.abandon(context);
        self.staging.forget(context);
        self.registrations.forget(context);
        self.gates.forget(context);
        self.streams.forget(context);
        self.textures.forget(context);
        self.contexts.live.lock().retain(|other| *other != context);
        let result = end();
        ended();
        result
    }
}
