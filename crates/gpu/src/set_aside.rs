//! The account of memory whose use by a device has no end that could be known.

use causeway_api::sys::CUresult;
use core::sync::atomic::{AtomicUsize, Ordering};
use parking_lot::Mutex;
use std::sync::Arc;

/// What is true of memory when the work that uses it has ended with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Nothing uses it any more.
    Free,
    /// A part of the device may go on using it.
    Unknown,
}

/// The account of what a back end's users have set aside.
pub struct SetAside {
    bytes: AtomicUsize,
    after_failure: AfterFailure,
    ending: Mutex<Ending>,
}

/// Contexts that are about to end, and the memory of the work that ends with them.
#[derive(Default)]
struct Ending {
    contexts: usize,
    memory: Vec<Box<dyn Send>>,
}

/// A context that is about to end until this is dropped.
pub struct ContextEnds<'a>(&'a SetAside);

impl Drop for ContextEnds<'_> {
    fn drop(&mut self) {
        let mut ending = self.0.ending.lock();
        ending.contexts -= 1;
        // Of several contexts it is not known whose work used what.
        let freed = if ending.contexts == 0 { core::mem::take(&mut ending.memory) } else { Vec::new() };
        drop(ending);
        drop(freed);
    }
}

impl SetAside {
    /// An account without any bytes.
    pub fn new(after_failure: AfterFailure) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), after_failure, ending: Mutex::default() })
    }

    /// How many bytes have been set aside.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets memory of `bytes` aside.
    pub fn add<T>(&self, memory: T, bytes: usize) {
        core::mem::forget(memory);
        // The first time is enough to explain whatever follows from it.
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) == 0 {
            tracing::warn!(
                bytes,
                "the driver does not say when it is through with memory that a device uses, which is never freed"
            );
        }
    }

    /// A context is about to end. Memory of work that has not is kept until the result is dropped, which is
    /// to be once the context has ended.
    pub fn end_context(&self) -> ContextEnds<'_> {
        self.ending.lock().contexts += 1;
        ContextEnds(self)
    }

    /// Gives memory of `bytes` back whose work has ended with `error`, as far as nothing uses it any more.
    pub fn settle<T: Send + 'static>(&self, memory: T, bytes: usize, error: CUresult) {
        match (self.after_failure, error) {
            (AfterFailure::Free, _) => drop(memory),
            (AfterFailure::Unknown, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED) => {
                self.ending.lock().memory.push(Box::new(memory));
            }
            (AfterFailure::Unknown, _) => self.add(memory, bytes),
        }
    }
}
