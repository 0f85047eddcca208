//! Table of incoming transfers, their credit, and the buffer of each: staged, leased, plain or mapped.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_api::sys::CUresult;
use causeway_gpu::Staging;
use causeway_gpu::in_flight::HostMemory;
use memmap2::Mmap;
use rustc_hash::FxHashSet;

use crate::worker::arena::Leased;

/// Bytes that may wait for their commands. A client that sends more without naming it in a command gets
/// `CUDA_ERROR_OUT_OF_MEMORY` for the commands that come too late.
pub const MAX_QUEUED: u64 = 4 << 30;

/// Transfers that are remembered because their commands were refused before they came.
pub const MAX_REFUSED: usize = 1 << 10;

/// Bytes that count as waiting until this is dropped.
pub struct QueuedBytes {
    waiting: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for QueuedBytes {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What is known of a transfer.
pub enum Slot {
    /// An image that a command names, or bytes of a copy, which are looked for.
    Sought,
    /// What the client has been asked for: bytes of a copy, or an image.
    Expected { is_copy: bool },
    /// Some of it has come.
    Arriving,
    /// All of it has. What lies in the cache's files counts for nothing: the system can have that memory
    /// back.
    Arrived(Buffer, Option<QueuedBytes>),
    /// It will not come.
    Failed(CUresult),
    /// Nobody wants it: the command that named it has been refused.
    Refused,
}

/// The transfers, and how many bytes wait.
#[derive(Default)]
pub struct Table {
    /// By the numbers of the transfers.
    pub slots: HashMap<u64, Slot>,
    /// How many slots are refused.
    pub refused: usize,
    /// Bytes that wait.
    pub waiting: Arc<AtomicU64>,
    /// Whether nothing may begin to come.
    pub is_held: bool,
    /// The last transfers of which a command has taken the bytes. The client may not know that they have come.
    pub taken: VecDeque<u64>,
    /// Those of the worker that had the session before: what comes of them again is thrown away.
    pub stale: FxHashSet<u64>,
}

/// Transfers that are remembered: more than a client has on its lanes without having heard that they came.
pub const MAX_TAKEN: usize = 4096;

impl Table {
    /// Lets so many more bytes wait, unless they are too many.
    pub fn credit(&self, bytes: u64) -> Option<QueuedBytes> {
        // Others only subtract: whoever adds holds the table.
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting.saturating_add(bytes) > MAX_QUEUED {
            return None;
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        Some(QueuedBytes { waiting: Arc::clone(&self.waiting), bytes })
    }

    /// Settles a transfer, unless nobody wants it any more.
    pub fn complete(&mut self, number: u64, slot: Slot) {
        match self.slots.get(&number) {
            Some(Slot::Refused) => self.forget_refused(number),
            Some(Slot::Sought | Slot::Expected { .. } | Slot::Arriving) => {
                self.slots.insert(number, slot);
            }
            Some(Slot::Arrived(..) | Slot::Failed(_)) | None => {}
        }
    }

    /// A command has taken the bytes of a transfer.
    pub fn note_taken(&mut self, number: u64) {
        if self.taken.len() == MAX_TAKEN {
            self.taken.pop_front();
        }
        self.taken.push_back(number);
    }

    /// Has the bytes thrown away when they come.
    pub fn refuse(&mut self, number: u64) {
        // Of what comes for more than these the bytes wait in vain, and no more than may wait at all.
        if self.refused < MAX_REFUSED && !matches!(self.slots.get(&number), Some(Slot::Refused)) {
            self.refused += 1;
            self.slots.insert(number, Slot::Refused);
        }
    }

    /// The bytes have come of a transfer that nobody wants.
    pub fn forget_refused(&mut self, number: u64) {
        self.refused -= 1;
        self.slots.remove(&number);
    }
}

/// Received bytes.
pub enum Buffer {
    /// In memory that the GPU copies from directly.
    Staged(Staging),
    /// In memory shared with the client, who may still write to it.
    Leased(Leased),
    /// In ordinary memory.
    Plain(Vec<u8>),
    /// In a file of the image cache.
    Mapped(Mmap),
    /// Anywhere, and being kept for later sessions at the same time.
    Shared(Arc<Buffer>),
}

impl Buffer {
    /// Where the bytes are.
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Leased(leased) => leased.as_ptr(),
            Self::Plain(bytes) => bytes.as_ptr(),
            Self::Mapped(bytes) => bytes.as_ptr(),
            Self::Shared(buffer) => buffer.as_ptr(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Leased(leased) => leased.len(),
            Self::Plain(bytes) => bytes.len(),
            Self::Mapped(bytes) => bytes.len(),
            Self::Shared(buffer) => buffer.len(),
        }
    }

    /// The bytes, for whoever interprets them: nobody else can change them.
    pub fn contents(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Staged(staging) => Cow::Borrowed(staging.as_slice()),
            Self::Leased(leased) => Cow::Owned(leased.to_vec()),
            Self::Plain(bytes) => Cow::Borrowed(bytes),
            Self::Mapped(bytes) => Cow::Borrowed(bytes),
            Self::Shared(buffer) => buffer.contents(),
        }
    }
}

// SAFETY: each of these owns its bytes, or keeps them mapped, until it is dropped.
unsafe impl HostMemory for Buffer {
    fn address(&self) -> *const u8 {
        self.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}
