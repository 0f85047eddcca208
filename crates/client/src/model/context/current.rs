//! Context stack of a thread (`cuCtxPushCurrent`), its current context, and completion of the work of
//! contexts and streams.

use core::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::CUresult;

use crate::model::context::{ContextState, state};
use crate::model::handles;
use crate::model::stream::{self, StreamState};

thread_local! {
    /// The current context, kept where no destructor can take it away before the program's own run.
    static CURRENT: Cell<Handle<Context>> = const { Cell::new(Handle::NULL) };
    /// The contexts below the current one.
    static STACK: RefCell<Vec<Handle<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread's current context, or null.
#[inline]
pub fn current_or_none() -> Handle<Context> {
    CURRENT.get()
}

/// Where a command goes that needs no context: in the current one if there is one, else in the first server's
/// null one.
pub fn anywhere() -> Handle<Context> {
    current().unwrap_or(Handle::NULL)
}

/// Where a command goes that needs no context but this server: in the current context if it is there, else in
/// the null one.
pub fn anywhere_on(server: usize) -> Handle<Context> {
    Some(anywhere()).filter(|current| current.server() == server).unwrap_or(Handle::null_of(server))
}

/// The calling thread's current context, which must exist.
#[inline]
pub fn current() -> Result<Handle<Context>, CUresult> {
    let handle = CURRENT.get();
    if handles::is_valid(handle) { Ok(handle) } else { missing(handle) }
}

#[cold]
fn missing(handle: Handle<Context>) -> Result<Handle<Context>, CUresult> {
    if handle.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    // Released, reset or destroyed; a primary context is valid again after the next retain.
    Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
}

/// What is kept of the calling thread's current context, which must exist.
pub fn current_state() -> Result<Arc<ContextState>, CUresult> {
    state(current()?)
}

/// Replaces the calling thread's current context; null takes it away.
pub fn set_current(handle: Handle<Context>) {
    if handle.is_null() {
        CURRENT.set(pop_below());
    } else {
        CURRENT.set(handle);
    }
}

/// Puts a context on top of the calling thread's stack.
pub fn push(handle: Handle<Context>) {
    let previous = CURRENT.replace(handle);
    if !previous.is_null() {
        // After the thread's destructors there is no stack any more, and nobody left to pop.
        let _ = STACK.try_with(|stack| stack.borrow_mut().push(previous));
    }
}

/// Takes the top of the calling thread's stack.
pub fn pop() -> Result<Handle<Context>, CUresult> {
    let top = CURRENT.get();
    if top.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    CURRENT.set(pop_below());
    Ok(top)
}

/// Takes a context that has ended from the calling thread, if it is the current one.
pub fn leave(handle: Handle<Context>) {
    if CURRENT.get() == handle {
        CURRENT.set(pop_below());
    }
}

fn pop_below() -> Handle<Context> {
    STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten().unwrap_or(Handle::NULL)
}

impl ContextState {
    /// Whether nothing has been put into it since all of its work was last known to be done.
    #[inline]
    pub fn is_idle(&self) -> bool {
        let newest = handles::sequence(self.handle);
        self.watermark.done() >= newest || self.is_done_by_streams(newest)
    }

    /// Whether each of its streams is known to have done what was put into the context up to `newest`. So a
    /// program that has waited for its default stream, as with a copy, need not wait again for the device.
    fn is_done_by_streams(&self, newest: u64) -> bool {
        // The legacy default stream answers for all blocking ones.
        let is_done = self.legacy_stream.has_done(newest)
            && self.left_behind.load(Ordering::Acquire) <= self.watermark.done()
            && non_blocking_are_done(self.handle);
        if is_done {
            self.watermark.advance(newest);
        }
        is_done
    }

    /// A stream that the legacy default stream does not wait for is destroyed; `newest` is its newest
    /// sequence number.
    pub fn leave_behind(&self, newest: u64) {
        self.left_behind.fetch_max(newest, Ordering::AcqRel);
    }

    /// Whether nothing is under way in it, as far as is known, but copies that were
    /// [published](Self::publish).
    pub fn has_only_published(&self) -> bool {
        self.has_published(handles::sequence(self.handle)) || self.is_idle()
    }

    /// Everything up to `sequence` is done or belongs to synchronous copies that the server puts all later
    /// work behind.
    pub fn publish(&self, sequence: u64) {
        self.published.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Whether everything up to `sequence` is done or belongs to such copies: to the program it is done, so
    /// that whoever asks waits for it.
    pub fn has_published(&self, sequence: u64) -> bool {
        self.published.load(Ordering::Acquire) >= sequence
    }
}

impl StreamState {
    /// Whether everything up to a sequence number is known to be done.
    pub fn has_done(&self, sequence: u64) -> bool {
        self.watermark.done() >= sequence
            || state(self.context).is_ok_and(|context| context.watermark.done() >= sequence)
    }

    /// Whether everything up to a sequence number is done or belongs to published copies, and some of it is
    /// not known to be done.
    pub fn has_published(&self, sequence: u64) -> bool {
        !self.has_done(sequence) && state(self.context).is_ok_and(|context| context.has_published(sequence))
    }

    /// How many commands may be before the stream's end and not be known to be done, those of other streams
    /// among them.
    pub fn unfinished(&self) -> u64 {
        let context = state(self.context).map_or(0, |context| context.watermark.done());
        self.newest().saturating_sub(self.watermark.done().max(context))
    }
}

/// What is kept of a stream; null means the legacy default stream of the current context.
pub fn stream(handle: Handle<Stream>) -> Result<Arc<StreamState>, CUresult> {
    if handle.is_null() { Ok(current_state()?.legacy_stream.clone()) } else { stream::get(handle) }
}

/// Whether all streams of a context that its legacy default stream does not wait for are known to have done
/// their work.
fn non_blocking_are_done(context: Handle<Context>) -> bool {
    let is_at_work = |stream: &StreamState| {
        stream.context == context && !stream.is_blocking() && !stream.has_done(stream.newest())
    };
    stream::select(is_at_work).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_of_a_thread_pushes_pops_and_replaces() {
        std::thread::spawn(|| {
            let (a, b) = (Handle::new(1, 0), Handle::new(2, 0));
            assert_eq!(pop(), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
            push(a);
            push(b);
            assert_eq!(current_or_none(), b);
            set_current(a);
            assert_eq!(pop(), Ok(a));
            assert_eq!(current_or_none(), a);
            set_current(Handle::NULL);
            assert!(current_or_none().is_null());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_without_context_is_told_so() {
        std::thread::spawn(|| assert_eq!(current(), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT)))
            .join()
            .unwrap();
    }
}
