//! Host memory for copies, and the account of memory that is set aside because its use by a device has no end
//! that could be known.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use causeway_api::sys::CUresult;
use parking_lot::Mutex;

/// A piece of host memory for copies; freed or reused when dropped.
pub struct Staging {
    address: *mut u8,
    bytes: usize,
    release: Option<Box<dyn FnOnce(*mut u8, usize) + Send>>,
}

// SAFETY: a `Staging` owns its memory like a `Box<[u8]>` does.
unsafe impl Send for Staging {}
// SAFETY: shared references give out only the address; bytes are reached through `&mut` or by unsafe code.
unsafe impl Sync for Staging {}

impl Staging {
    /// Wraps memory of a back end.
    ///
    /// # Safety
    /// `address` must be valid for reads and writes of `bytes` initialised bytes until `release` is called.
    pub unsafe fn new(
        address: *mut u8,
        bytes: usize,
        release: impl FnOnce(*mut u8, usize) + Send + 'static,
    ) -> Self {
        Self { address, bytes, release: Some(Box::new(release)) }
    }

    /// The memory's address.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the staging memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: valid and initialised by the contract of `new`; nobody writes while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(self.address, self.bytes) }
    }

    /// Its bytes for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: valid and initialised by the contract of `new`, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release(self.address, self.bytes);
        }
    }
}

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
                "the driver does not report when a device has finished with memory, which is therefore never \
                 freed"
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
    pub fn release_after_error<T: Send + 'static>(&self, memory: T, bytes: usize, error: CUresult) {
        match (self.after_failure, error) {
            (AfterFailure::Free, _) => drop(memory),
            (AfterFailure::Unknown, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED) => {
                self.ending.lock().memory.push(Box::new(memory));
            }
            (AfterFailure::Unknown, _) => self.add(memory, bytes),
        }
    }
}
