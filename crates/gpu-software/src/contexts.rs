//! Contexts: which there are, and which one a thread's calls mean.

use super::context::{Context, ContextId};
use super::scheduler::Scheduler;
use super::stream::StreamKind;
use causeway_api::handle::{self, Native};
use causeway_api::sys::{CUdevice, CUresult};
use causeway_gpu::CuResult;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

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

/// A context with its legacy default stream.
fn make(scheduler: &Scheduler, device: CUdevice) -> Arc<Context> {
    let context = Arc::new(Context::new(device));
    scheduler.add_stream(context.legacy, &context, StreamKind::Legacy, 0);
    context
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
            let context = make(scheduler, device);
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
        let context = make(scheduler, device);
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

    /// The calling thread's context, whatever its state.
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
        context.close();
        Some(context)
    }
}
