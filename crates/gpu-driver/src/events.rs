//! Events: a pool of our own, and those of the program that are waited for.

use crate::context;
use crate::functions::Functions;
use crate::locks::{Mutex, rank};
use causeway_api::handle::{Context, Event, Native, Stream};
use causeway_api::sys::{CUevent_flags, CUstream_flags};
use causeway_gpu::CuResult;
use rustc_hash::FxHashMap;

/// Unused events of our own, and how many waits each event of the program has.
#[derive(Default)]
pub(crate) struct Events {
    free: Mutex<rank::Leaf, FxHashMap<Native<Context>, Vec<Native<Event>>>>,
    watched: Mutex<rank::Leaf, FxHashMap<Native<Event>, Watched>>,
    /// Streams of our own that hold on to records of events that are recorded anew, by context.
    retaining: Mutex<rank::Leaf, FxHashMap<Native<Context>, Native<Stream>>>,
}

#[derive(Default)]
struct Watched {
    waits: usize,
    /// The program has destroyed the event; the driver's is kept until the last wait is over.
    destroyed: bool,
}

impl Events {
    /// An event without time stamps for a mark in a stream of `context`.
    pub(crate) fn take(&self, functions: &Functions, context: Native<Context>) -> CuResult<Native<Event>> {
        if let Some(event) = self.free.lock().get_mut(&context).and_then(Vec::pop) {
            return Ok(event);
        }
        let mut raw = core::ptr::null_mut();
        context::within(functions, context, || {
            // SAFETY: the pointer is to a local.
            unsafe { functions.cuEventCreate(&mut raw, CUevent_flags::CU_EVENT_DISABLE_TIMING.0) }
        })?;
        Ok(Native::from_raw(raw))
    }

    pub(crate) fn release(&self, context: Native<Context>, event: Native<Event>) {
        self.free.lock().entry(context).or_default().push(event);
    }

    /// The events of a context end with it.
    pub(crate) fn forget(&self, context: Native<Context>) {
        self.free.lock().remove(&context);
        self.retaining.lock().remove(&context);
    }

    /// Whether something waits for an event of the program.
    pub(crate) fn is_watched(&self, event: Native<Event>) -> bool {
        self.watched.lock().contains_key(&event)
    }

    /// An event of our own that is done when the last record of the program's is: it stays so when that one
    /// is recorded anew. What the stream of ours holds was all recorded before, so that to be in line there
    /// delays nothing for ever.
    pub(crate) fn keep_record(
        &self,
        functions: &Functions,
        context: Native<Context>,
        event: Native<Event>,
    ) -> CuResult<Native<Event>> {
        let own = self.take(functions, context)?;
        let kept = self.retaining_stream(functions, context).and_then(|stream| {
            // SAFETY: the handles are the driver's own.
            unsafe {
                functions.cuStreamWaitEvent(stream.as_raw(), event.as_raw(), 0)?;
                functions.cuEventRecord(own.as_raw(), stream.as_raw())
            }
        });
        kept.map(|()| own).inspect_err(|_| self.release(context, own))
    }

    fn retaining_stream(&self, functions: &Functions, context: Native<Context>) -> CuResult<Native<Stream>> {
        let mut retaining = self.retaining.lock();
        if let Some(stream) = retaining.get(&context) {
            return Ok(*stream);
        }
        let mut raw = core::ptr::null_mut();
        context::within(functions, context, || {
            // SAFETY: the pointer is to a local.
            unsafe {
                functions.cuStreamCreateWithPriority(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING.0, 0)
            }
        })?;
        let stream = Native::from_raw(raw);
        retaining.insert(context, stream);
        Ok(stream)
    }

    /// Keeps an event of the program until as many calls of `unwatch`.
    pub(crate) fn watch(&self, event: Native<Event>) {
        self.watched.lock().entry(event).or_default().waits += 1;
    }

    /// Takes back one `watch`; destroys an event that the program has destroyed meanwhile.
    pub(crate) fn unwatch(&self, functions: &Functions, event: Native<Event>) {
        let mut watched = self.watched.lock();
        let Some(entry) = watched.get_mut(&event) else { return };
        entry.waits -= 1;
        if entry.waits > 0 {
            return;
        }
        if watched.remove(&event).is_some_and(|entry| entry.destroyed) {
            // SAFETY: the program cannot name it any more, and no wait is left.
            if let Err(status) = unsafe { functions.cuEventDestroy_v2(event.as_raw()) } {
                tracing::warn!(status = status.0, "cannot destroy an event");
            }
        }
    }

    /// Does `work` while no watched event can be recorded anew or destroyed.
    pub(crate) fn with_watched<T>(&self, work: impl FnOnce() -> T) -> T {
        let _watched = self.watched.lock();
        work()
    }

    /// Destroys an event of the program, now or when its last wait is over.
    pub(crate) fn destroy(&self, functions: &Functions, event: Native<Event>) -> CuResult<()> {
        let mut watched = self.watched.lock();
        if let Some(entry) = watched.get_mut(&event) {
            entry.destroyed = true;
            return Ok(());
        }
        // SAFETY: the event is the driver's own, and nobody waits for it.
        unsafe { functions.cuEventDestroy_v2(event.as_raw()) }
    }
}
