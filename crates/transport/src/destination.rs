//! Destination of a transfer's bytes.

use core::ops::Range;
use std::sync::Arc;

use crate::error::TransferError;

/// Memory for the bytes of a transfer, chosen for each part of them when it comes.
pub trait ChooseMemory: Send + Sync {
    /// Where the bytes of this part of the transfer go: there must be room for as many. Runs on threads that
    /// receive: it must be short and may not block.
    fn memory(&self, part: Range<usize>) -> *mut u8;
}

/// The memory of a destination.
#[derive(Clone)]
pub(crate) enum Start {
    Fixed(*mut u8),
    Chosen(Arc<dyn ChooseMemory>),
}

/// Where the bytes of a chunk go. Memory that is still to be chosen is when this is asked for, which had
/// better be right before the bytes are written, and once.
pub struct ChunkAddress {
    start: Start,
    part: Range<usize>,
}

impl core::fmt::Debug for ChunkAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ChunkAddress").field("part", &self.part).finish_non_exhaustive()
    }
}

// SAFETY: a place to write to, which the maker of the destination allowed to any thread.
unsafe impl Send for ChunkAddress {}

impl ChunkAddress {
    /// A part of a destination.
    pub(crate) fn new(start: Start, part: Range<usize>) -> Self {
        Self { start, part }
    }

    /// Where the first byte of the chunk goes.
    #[inline]
    pub fn get(&self) -> *mut u8 {
        match &self.start {
            Start::Fixed(start) => start.wrapping_add(self.part.start),
            Start::Chosen(choice) => choice.memory(self.part.clone()),
        }
    }
}

/// Where a transfer goes, and what happens when it has ended.
pub struct Destination {
    pub(crate) start: Start,
    pub(crate) length: usize,
    pub(crate) threads: usize,
    pub(crate) nontemporal: bool,
    pub(crate) on_end: OnEnd,
}

/// What happens when a transfer has ended.
pub(crate) type OnEnd = Box<dyn FnOnce(Result<(), TransferError>) + Send>;

// SAFETY: the pointer is only a place to write to, which the maker of a destination allowed to any thread.
unsafe impl Send for Destination {}

impl core::fmt::Debug for Destination {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Destination").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Destination {
    /// Memory of the program. `on_end` runs exactly once, on one of the link's threads or on the thread
    /// that ends the link or cancels the transfer; it must be short, may not block and may not cancel
    /// transfers.
    ///
    /// # Safety
    /// The memory must stay writable until `on_end` has run, and must not be relied upon before that.
    pub unsafe fn raw(
        start: *mut u8,
        length: usize,
        on_end: impl FnOnce(Result<(), TransferError>) + Send + 'static,
    ) -> Self {
        Self { start: Start::Fixed(start), length, threads: 1, nontemporal: false, on_end: Box::new(on_end) }
    }

    /// Memory that is chosen when bytes come, for each part of them; see [`raw`](Self::raw) for what `on_end`
    /// may do.
    ///
    /// # Safety
    /// What `choice` gives for a part of the `length` bytes must be writable for as many until `on_end` has
    /// run, and must not be relied upon before that.
    pub unsafe fn chosen(
        choice: Arc<dyn ChooseMemory>,
        length: usize,
        on_end: impl FnOnce(Result<(), TransferError>) + Send + 'static,
    ) -> Self {
        let start = Start::Chosen(choice);
        Self { start, length, threads: 1, nontemporal: false, on_end: Box::new(on_end) }
    }

    /// A buffer that is handed back, filled, to `on_end`; see [`raw`](Self::raw) for what that may do. All
    /// of the buffer's bytes are the destination.
    pub fn buffer(
        buffer: Vec<u8>,
        on_end: impl FnOnce(Result<Vec<u8>, TransferError>) + Send + 'static,
    ) -> Self {
        let mut buffer = core::mem::ManuallyDrop::new(buffer);
        let (start, length, capacity) = (buffer.as_mut_ptr(), buffer.len(), buffer.capacity());
        // The pointer is what the lanes write through, so the vector is taken apart and put together again
        // from it; in between nobody else can reach the memory.
        let parts = BufferParts { start, length, capacity };
        let on_end = move |ended: Result<(), TransferError>| {
            let buffer = parts.into_vector();
            on_end(ended.map(|()| buffer));
        };
        Self { start: Start::Fixed(start), length, threads: 1, nontemporal: false, on_end: Box::new(on_end) }
    }

    /// Lets up to `threads` threads write to it, where a transport copies bytes there from staging.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Says that the bytes are to lie in memory, and not in the caches of a core, from which a device reads
    /// them slowly.
    #[must_use]
    pub fn nontemporal(self) -> Self {
        Self { nontemporal: true, ..self }
    }
}

struct BufferParts {
    start: *mut u8,
    length: usize,
    capacity: usize,
}

// SAFETY: the parts own the memory as the vector did, and vectors of bytes may change threads.
unsafe impl Send for BufferParts {}

impl BufferParts {
    fn into_vector(self) -> Vec<u8> {
        let parts = core::mem::ManuallyDrop::new(self);
        // SAFETY: these are the parts of a vector that was not dropped, and they are used once: `self` was
        // consumed and its destructor does not run.
        unsafe { Vec::from_raw_parts(parts.start, parts.length, parts.capacity) }
    }
}

impl Drop for BufferParts {
    fn drop(&mut self) {
        // SAFETY: these are the parts of a vector that was not dropped; `into_vector`, which would use them,
        // does not run this destructor.
        drop(unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) });
    }
}
