//! Contexts: which there are, which one a thread's calls mean, and the error that ended one.

use super::handles;
use super::scheduler::Scheduler;
use super::stream::{StreamId, StreamKind};
use causeway_api::handle::{self, Native};
use causeway_api::sys::{CUdevice, CUlimit, CUresult};
use causeway_gpu::CuResult;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Names a context; never used again in this process.
pub(super) type ContextId = u64;

/// Bytes of local memory of a thread, of the buffer for `printf` and of the heap of `malloc`, as CUDA has them at
/// first, and bytes that one miss brings into the cache.
const DEFAULT_LIMITS: [(CUlimit, usize); 4] = [
    (CUlimit::CU_LIMIT_STACK_SIZE, 1024),
    (CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20),
    (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20),
    (CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64),
];

/// One context.
pub(super) struct Context {
    pub(super) id: ContextId,
    /// The number of its device.
    pub(super) device: CUdevice,
    /// The legacy default stream.
    pub(super) legacy: StreamId,
    /// The `CUresult` that ended it, or 0.
    failure: AtomicU32,
    closed: AtomicBool,
    limits: Mutex<[(CUlimit, usize); 4]>,
}

impl Context {
    fn new(scheduler: &Arc<Scheduler>, device: CUdevice) -> Arc<Self> {
        let context = Arc::new(Self {
            id: handles::next(),
            device,
            legacy: handles::next(),
            failure: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            limits: Mutex::new(DEFAULT_LIMITS),
        });
        scheduler.add_stream(context.legacy, &context, StreamKind::Legacy, 0);
        context
    }

    /// Whether calls in this context can still succeed; after a fault every call gets the fault's error.
    pub(super) fn check(&self) -> CuResult<()> {
        if self.closed.load(Relaxed) {
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        self.outcome()
    }

    /// The fault that ended the context, if one did.
    pub(super) fn outcome(&self) -> CuResult<()> {
        match self.failure.load(Relaxed) {
            0 => Ok(()),
            error => Err(CUresult(error)),
        }
    }

    /// Ends the context with an error; the first one stays.
    pub(super) fn fail(&self, error: CUresult) {
        let _ = self.failure.compare_exchange(0, error.0, Relaxed, Relaxed);
    }

    /// The value of a limit.
    pub(super) fn limit(&self, limit: CUlimit) -> CuResult<usize> {
        let limits = self.limits.lock();
        let found = limits.iter().find(|(number, _)| *number == limit);
        found.map(|(_, value)| *value).ok_or(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)
    }

    /// Sets a limit. All of them are least sizes, and this device takes what kernels need anyway.
    pub(super) fn set_limit(&self, limit: CUlimit, value: usize) -> CuResult<()> {
        let mut limits = self.limits.lock();
        let found = limits.iter_mut().find(|(number, _)| *number == limit);
        found.ok_or(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)?.1 = value;
        Ok(())
    }
}

#[derive(Default)]
struct Table {
    contexts: HashMap<ContextId, Arc<Context>>,
    /// By device: the primary context, and how often it was retained and not yet released.
    primary: HashMap<CUdevice, (ContextId, usize)>,
}

/// All contexts of all devices.
#[derive(Default)]
pub(super) struct Contexts {
    table: Mutex<Table>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Context>>> = const { RefCell::new(None) };
}

impl Contexts {
    /// The primary context of a device, made when nobody holds it.
    pub(super) fn retain_primary(&self, scheduler: &Arc<Scheduler>, device: CUdevice) -> Arc<Context> {
        let mut table = self.table.lock();
        let held = table.primary.get(&device).copied();
        let existing = held.and_then(|(id, count)| Some((table.contexts.get(&id)?.clone(), count)));
        let (context, count) = existing.unwrap_or_else(|| {
            let context = Context::new(scheduler, device);
            table.contexts.insert(context.id, Arc::clone(&context));
            (context, 0)
        });
        table.primary.insert(device, (context.id, count + 1));
        context
    }

    /// Undoes one retain; gives the context back when that was the last and it has to be destroyed.
    pub(super) fn release_primary(
        &self,
        device: CUdevice,
        context: Native<handle::Context>,
    ) -> CuResult<Option<Arc<Context>>> {
        let mut table = self.table.lock();
        match table.primary.get_mut(&device) {
            Some((id, count)) if *id == context.value() => {
                *count -= 1;
                if *count > 0 {
                    return Ok(None);
                }
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        }
        Ok(table.close_primary(device))
    }

    /// Takes the primary context of a device out, however often it is retained.
    pub(super) fn reset_primary(&self, device: CUdevice) -> Option<Arc<Context>> {
        self.table.lock().close_primary(device)
    }

    /// Makes a context that is not primary.
    pub(super) fn create(&self, scheduler: &Arc<Scheduler>, device: CUdevice) -> Arc<Context> {
        let context = Context::new(scheduler, device);
        self.table.lock().contexts.insert(context.id, Arc::clone(&context));
        context
    }

    /// Takes out a context that is not primary.
    pub(super) fn remove(&self, context: Native<handle::Context>) -> CuResult<Arc<Context>> {
        let mut table = self.table.lock();
        if table.primary.values().any(|(id, _)| *id == context.value()) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        table.close(context.value()).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// Makes `context` the calling thread's; the null context takes the current one away.
    pub(super) fn make_current(&self, context: Native<handle::Context>) -> CuResult<()> {
        let wanted = context.value();
        let already =
            CURRENT.with_borrow(|current| current.as_ref().map_or(0, |context| context.id) == wanted);
        if already {
            return Ok(());
        }
        let context = match wanted {
            0 => None,
            id => Some(
                self.table.lock().contexts.get(&id).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?,
            ),
        };
        CURRENT.set(context);
        Ok(())
    }

    /// The calling thread's context, if calls in it can still succeed.
    pub(super) fn current(&self) -> CuResult<Arc<Context>> {
        let current = self.entered()?;
        current.check()?;
        Ok(current)
    }

    /// The calling thread's context, whatever has become of it.
    pub(super) fn entered(&self) -> CuResult<Arc<Context>> {
        CURRENT.with_borrow(Clone::clone).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }
}

impl Table {
    fn close_primary(&mut self, device: CUdevice) -> Option<Arc<Context>> {
        let (primary, _) = self.primary.remove(&device)?;
        self.close(primary)
    }

    fn close(&mut self, id: ContextId) -> Option<Arc<Context>> {
        let context = self.contexts.remove(&id)?;
        context.closed.store(true, Relaxed);
        Some(context)
    }
}
