//! Where do the bytes of a transfer go, and who hears of its end?

use std::collections::HashMap;
use std::sync::Arc;

use causeway_wire::chunk::{ChunkError, ChunkHeader, Spans};
use parking_lot::{Condvar, Mutex};

use super::{LinkError, LinkEvents, TransferError};

/// The most transfers of a peer that are kept account of.
const MOST: usize = 1 << 16;

/// Memory for the bytes of a transfer, chosen when the first of them come.
pub trait ChooseMemory: Send + Sync {
    /// The first byte of memory that has all of the transfer's bytes; the same at every call. Runs on threads that receive: it must be
    /// short and may not block.
    fn memory(&self) -> *mut u8;
}

/// The memory of a destination.
#[derive(Clone)]
enum Start {
    Fixed(*mut u8),
    Chosen(Arc<dyn ChooseMemory>),
}

/// Where the bytes of a chunk go. Memory that is still to be chosen is when this is asked for, which had better be right before
/// the bytes are written.
pub(crate) struct ChunkAddress {
    start: Start,
    offset: usize,
}

// SAFETY: a place to write to, which the maker of the destination allowed to any thread.
unsafe impl Send for ChunkAddress {}

impl ChunkAddress {
    pub(crate) fn get(&self) -> *mut u8 {
        let start = match &self.start {
            Start::Fixed(start) => *start,
            Start::Chosen(choice) => choice.memory(),
        };
        start.wrapping_add(self.offset)
    }
}

/// Where a transfer goes, and what happens when it has ended.
pub struct Destination {
    start: Start,
    length: usize,
    threads: usize,
    past_caches: bool,
    on_end: OnEnd,
}

type OnEnd = Box<dyn FnOnce(Result<(), TransferError>) + Send>;

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
        Self { start: Start::Fixed(start), length, threads: 1, past_caches: false, on_end: Box::new(on_end) }
    }

    /// Memory that is chosen when the first bytes come; see [`raw`](Self::raw) for what `on_end` may do.
    ///
    /// # Safety
    /// What `choice` gives must be writable for `length` bytes until `on_end` has run, and must not be relied upon before that.
    pub unsafe fn chosen(
        choice: Arc<dyn ChooseMemory>,
        length: usize,
        on_end: impl FnOnce(Result<(), TransferError>) + Send + 'static,
    ) -> Self {
        let start = Start::Chosen(choice);
        Self { start, length, threads: 1, past_caches: false, on_end: Box::new(on_end) }
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
        Self { start: Start::Fixed(start), length, threads: 1, past_caches: false, on_end: Box::new(on_end) }
    }

    /// Lets up to `threads` threads write to it, where a module copies bytes there from staging.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Says that the bytes are to lie in memory, and not in the caches of a core, from which a device reads them slowly.
    #[must_use]
    pub fn past_caches(self) -> Self {
        Self { past_caches: true, ..self }
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
        // SAFETY: as in `into_vector`; this is a destination that was never used.
        drop(unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) });
    }
}

/// What a transfer's chunks do.
enum Fate {
    /// The owner is being asked.
    Asking,
    /// They are written.
    Kept(Destination),
    /// They are read and dropped.
    Dropped,
}

struct Entry {
    fate: Fate,
    total: u64,
    spans: Spans,
    /// Chunks being received right now.
    in_flight: u32,
    /// Why no more chunks are to be written.
    ended: Option<TransferError>,
}

/// Where the bytes of a chunk go.
pub(crate) enum Place {
    /// To this address.
    Memory {
        to: ChunkAddress,
        /// How many threads may copy them there, where they are copied.
        threads: usize,
        /// Whether they are to lie in memory, and not in the caches of a core.
        past_caches: bool,
    },
    /// Nowhere.
    Nowhere,
}

#[derive(Default)]
pub(crate) struct Transfers {
    entries: Mutex<HashMap<u64, Entry>>,
    changed: Condvar,
}

/// What remains to be done for a transfer once the lock is released.
struct Ending(OnEnd, Result<(), TransferError>);

impl Ending {
    fn tell(self) {
        (self.0)(self.1);
    }
}

/// A chunk that is in its place.
#[must_use = "somebody waits for the end of its transfer"]
pub(crate) struct Landed {
    is_complete: bool,
    is_alone: bool,
    ending: Option<Ending>,
}

impl Landed {
    /// Whether its transfer has ended with it, of which somebody is still to be told.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether no transfer is expected or under way any more.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Tells whoever waits for the transfer, if it has ended. Whether it is complete.
    pub(crate) fn tell(self) -> bool {
        if let Some(ending) = self.ending {
            ending.tell();
        }
        self.is_complete
    }
}

impl Entry {
    fn new(fate: Fate, total: u64) -> Self {
        Self { fate, total, spans: Spans::default(), in_flight: 0, ended: None }
    }
}

impl Transfers {
    pub(super) fn expect(&self, transfer: u64, destination: Destination) -> Result<(), TransferError> {
        let mut entries = self.entries.lock();
        if entries.contains_key(&transfer) {
            return Err(TransferError::AlreadyUnderWay(transfer));
        }
        let total = destination.length as u64;
        entries.insert(transfer, Entry::new(Fate::Kept(destination), total));
        Ok(())
    }

    /// Whether somebody expects the transfer, or some of it has come.
    pub(crate) fn knows(&self, transfer: u64) -> bool {
        self.entries.lock().contains_key(&transfer)
    }

    /// Claims the place of a chunk that is about to be received; [`landed`](Self::landed) must follow.
    pub(crate) fn claim(
        &self,
        chunk: &ChunkHeader,
        events: Option<&dyn LinkEvents>,
    ) -> Result<Place, LinkError> {
        let mut entries = self.entries.lock();
        if !entries.contains_key(&chunk.transfer) {
            if entries.len() >= MOST {
                return Err(LinkError::TooManyTransfers(MOST));
            }
            entries.insert(chunk.transfer, Entry::new(Fate::Asking, chunk.total));
            // The owner is asked without the lock; other lanes wait below for its answer.
            drop(entries);
            let destination = events.and_then(|events| events.open_transfer(chunk.transfer, chunk.total));
            entries = self.entries.lock();
            if let Some(entry) = entries.get_mut(&chunk.transfer) {
                entry.fate = match destination {
                    Some(destination) => {
                        if destination.length as u64 != chunk.total {
                            entry.ended = Some(TransferError::WrongSize {
                                expected: destination.length as u64,
                                found: chunk.total,
                            });
                        }
                        Fate::Kept(destination)
                    }
                    None => Fate::Dropped,
                };
            }
            self.changed.notify_all();
        }
        while entries.get(&chunk.transfer).is_some_and(|entry| matches!(entry.fate, Fate::Asking)) {
            self.changed.wait(&mut entries);
        }
        let Some(entry) = entries.get_mut(&chunk.transfer) else {
            // Cancelled while the owner was asked.
            return Ok(Place::Nowhere);
        };
        if entry.total != chunk.total {
            match &entry.fate {
                Fate::Kept(_) if entry.spans.is_empty() => {
                    entry.ended =
                        Some(TransferError::WrongSize { expected: entry.total, found: chunk.total });
                    entry.total = chunk.total;
                }
                _ => {
                    return Err(ChunkError::TotalChanged { expected: entry.total, found: chunk.total }.into());
                }
            }
        }
        entry.spans.claim(chunk)?;
        entry.in_flight += 1;
        Ok(match &entry.fate {
            // The chunk lies inside the transfer, and the transfer is as long as the destination.
            Fate::Kept(Destination { start, threads, past_caches, .. }) if entry.ended.is_none() => {
                let to = ChunkAddress { start: start.clone(), offset: chunk.offset as usize };
                Place::Memory { to, threads: *threads, past_caches: *past_caches }
            }
            _ => Place::Nowhere,
        })
    }

    /// Says that a claimed chunk has been received, or why its link failed. Whether the transfer is complete.
    pub(crate) fn landed(&self, chunk: &ChunkHeader, failure: Option<&LinkError>) -> bool {
        self.land(chunk, failure).tell()
    }

    /// The same, for a caller that has something to do before whoever waits for the transfer is told.
    pub(crate) fn land(&self, chunk: &ChunkHeader, failure: Option<&LinkError>) -> Landed {
        self.unclaim(chunk, |entry| {
            if let Some(error) = failure {
                entry.ended.get_or_insert_with(|| error.clone().into());
            }
        })
    }

    /// Says that a claimed chunk did not come whole; it may come again.
    pub(crate) fn missed(&self, chunk: &ChunkHeader) {
        self.unclaim(chunk, |entry| entry.spans.release(chunk)).tell();
    }

    fn unclaim(&self, chunk: &ChunkHeader, note: impl FnOnce(&mut Entry)) -> Landed {
        let more_is_to_come = Landed { is_complete: false, is_alone: false, ending: None };
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&chunk.transfer) else {
            return more_is_to_come;
        };
        entry.in_flight -= 1;
        note(entry);
        if entry.in_flight > 0 {
            return more_is_to_come;
        }
        self.changed.notify_all();
        let is_complete = entry.spans.covers(entry.total) && !(entry.total == 0 && entry.spans.is_empty());
        let lost = matches!(entry.ended, Some(TransferError::Link(_)));
        // Of a transfer that has failed the remaining chunks are still to come and to be dropped.
        let ending = Self::end(entry, is_complete || entry.ended.is_some());
        if is_complete || lost {
            entries.remove(&chunk.transfer);
        }
        Landed { is_complete, is_alone: entries.is_empty(), ending }
    }

    /// Takes the destination out of an entry that has ended.
    fn end(entry: &mut Entry, ended: bool) -> Option<Ending> {
        if !ended {
            return None;
        }
        match core::mem::replace(&mut entry.fate, Fate::Dropped) {
            Fate::Kept(destination) => {
                let outcome = entry.ended.clone().map_or(Ok(()), Err);
                Some(Ending(destination.on_end, outcome))
            }
            Fate::Asking | Fate::Dropped => None,
        }
    }

    pub(super) fn cancel(&self, transfer: u64) {
        let mut entries = self.entries.lock();
        while let Some(entry) = entries.get_mut(&transfer) {
            if matches!(entry.fate, Fate::Dropped) {
                return;
            }
            entry.ended.get_or_insert(TransferError::Cancelled);
            if entry.in_flight == 0 && !matches!(entry.fate, Fate::Asking) {
                let ending = Self::end(entry, true);
                if entry.spans.is_empty() {
                    // Nothing came yet and perhaps nothing will, so nothing needs to be remembered.
                    entries.remove(&transfer);
                }
                drop(entries);
                if let Some(ending) = ending {
                    ending.tell();
                }
                return;
            }
            self.changed.wait(&mut entries);
        }
    }

    /// Fails every transfer; those being received end when their lane notices.
    pub(super) fn fail_all(&self, cause: &LinkError) {
        let mut endings = Vec::new();
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| {
            entry.ended.get_or_insert_with(|| cause.clone().into());
            let busy = entry.in_flight > 0 || matches!(entry.fate, Fate::Asking);
            if !busy {
                endings.extend(Self::end(entry, true));
            }
            busy
        });
        drop(entries);
        self.changed.notify_all();
        endings.into_iter().for_each(Ending::tell);
    }
}
