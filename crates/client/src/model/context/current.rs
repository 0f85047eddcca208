//! Context stack of a thread (`cuCtxPushCurrent`), and its current context.

use super::{ContextState, state};
use crate::model::handles;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use core::cell::{Cell, RefCell};
use std::sync::Arc;

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
