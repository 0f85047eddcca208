//! Bulk data on its way from the client: kept from its first chunk until the command that names it is issued.

use super::arena::{Arena, Leased};
use causeway_api::sys::CUresult;
use causeway_fabric::pipeline::PAST_CACHES_UP_TO;
use causeway_fabric::{Destination, Lease, TransferError};
use causeway_gpu::{Gpu, Staging};
use memmap2::Mmap;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Transfers up to this size are received into memory that the GPU copies from directly. Pinning more would cost more
/// than the copy it saves.
const MOST_STAGED: u64 = 64 << 20;

/// Bytes that may wait for their commands. A client that sends more without naming it in a command gets
/// `CUDA_ERROR_OUT_OF_MEMORY` for the commands that come too late.
const MOST_WAITING: u64 = 4 << 30;

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
    pub fn settled(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Staged(staging) => Cow::Borrowed(staging.as_slice()),
            Self::Leased(leased) => Cow::Owned(leased.to_vec()),
            Self::Plain(bytes) => Cow::Borrowed(bytes),
            Self::Mapped(bytes) => Cow::Borrowed(bytes),
            Self::Shared(buffer) => buffer.settled(),
        }
    }
}

enum Slot {
    /// An image that a command names, which is looked for in the cache.
    Sought,
    /// What the client has been asked for: bytes of a copy, or an image.
    Wanted {
        is_copy: bool,
    },
    Arriving,
    Arrived(Buffer),
    Failed(CUresult),
}

#[derive(Default)]
struct Table {
    slots: HashMap<u64, Slot>,
    waiting: u64,
}

/// The transfers of a session that have begun to arrive.
#[derive(Clone, Default)]
pub struct Incoming {
    table: Arc<Mutex<Table>>,
}

impl Incoming {
    /// Makes room for a transfer whose first chunk has come; calls `arrived` when all of it is there, or has
    /// failed. Nothing is returned when its bytes must be thrown away.
    pub fn open(
        &self,
        gpu: &dyn Gpu,
        number: u64,
        total: u64,
        arrived: impl FnOnce() + Send + 'static,
    ) -> Option<Destination> {
        let mut table = self.table.lock();
        let is_image = match table.slots.get(&number) {
            None => false,
            Some(Slot::Wanted { is_copy }) => !is_copy,
            Some(_) => return None,
        };
        let length =
            usize::try_from(total).ok().filter(|_| table.waiting.saturating_add(total) <= MOST_WAITING);
        let Some(length) = length else {
            table.slots.insert(number, Slot::Failed(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
            return None;
        };
        table.slots.insert(number, Slot::Arriving);
        table.waiting += total;
        drop(table);
        let shared = self.clone();
        let finish = move |result: Result<Buffer, TransferError>| {
            let slot = match result {
                Ok(buffer) => Slot::Arrived(buffer),
                Err(_) => Slot::Failed(CUresult::CUDA_ERROR_UNKNOWN),
            };
            shared.table.lock().slots.insert(number, slot);
            arrived();
        };
        let in_caches = length > PAST_CACHES_UP_TO;
        if total <= MOST_STAGED
            && !is_image
            && let Ok(staging) = if in_caches { gpu.warm_staging(length) } else { gpu.staging(length) }
        {
            let address = staging.as_ptr();
            let finish = move |result: Result<(), _>| finish(result.map(|()| Buffer::Staged(staging)));
            // SAFETY: the memory belongs to `staging`, which the callback owns until it has run.
            let destination = unsafe { Destination::raw(address, length, finish) };
            return Some(if in_caches { destination } else { destination.past_caches() });
        }
        Some(Destination::buffer(vec![0; length], move |result| finish(result.map(Buffer::Plain))))
    }

    /// Takes a whole transfer where it lies in memory shared with the client. It is given back when it is an image, which
    /// must not change, or when too many wait there; then it is copied.
    pub fn open_in_place(&self, arena: &Arc<Arena>, number: u64, lease: Lease) -> Result<(), Lease> {
        let mut table = self.table.lock();
        let total = lease.len() as u64;
        if table.slots.contains_key(&number) || table.waiting.saturating_add(total) > MOST_WAITING {
            return Err(lease);
        }
        let leased = arena.keep_waiting(lease)?;
        table.waiting += total;
        table.slots.insert(number, Slot::Arrived(Buffer::Leased(leased)));
        Ok(())
    }

    /// Whether a command that names the transfer can be issued: all bytes are there, or never will be.
    pub fn is_settled(&self, number: u64) -> bool {
        matches!(self.table.lock().slots.get(&number), Some(Slot::Arrived(_) | Slot::Failed(_)))
    }

    /// Begins to look for an image; false when the number is in use already.
    pub fn seek(&self, number: u64) -> bool {
        let mut table = self.table.lock();
        let fresh = !table.slots.contains_key(&number);
        if fresh {
            table.slots.insert(number, Slot::Sought);
        }
        fresh
    }

    /// Ends the search for an image, or for the bytes of a copy: here they are, or the client has to send them.
    pub fn sought(&self, number: u64, found: Option<Mmap>, is_copy: bool) {
        let mut table = self.table.lock();
        let slot = match found {
            // It takes no memory that the system could not have back.
            Some(map) => Slot::Arrived(Buffer::Mapped(map)),
            None => Slot::Wanted { is_copy },
        };
        table.slots.insert(number, slot);
    }

    /// Lent bytes that were [sought](Self::seek) are there, or never will be.
    pub fn brought(&self, number: u64, outcome: Result<Buffer, CUresult>) {
        let mut table = self.table.lock();
        let slot = match outcome {
            Ok(buffer) => {
                table.waiting += buffer.len() as u64;
                Slot::Arrived(buffer)
            }
            Err(error) => Slot::Failed(error),
        };
        table.slots.insert(number, slot);
    }

    /// Whether so many more bytes may wait for their command.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.table.lock().waiting.saturating_add(bytes) <= MOST_WAITING
    }

    /// Whether anything is known of a transfer.
    pub fn knows(&self, number: u64) -> bool {
        self.table.lock().slots.contains_key(&number)
    }

    /// Forgets a transfer that is settled; false where nothing is known of it.
    pub fn forget(&self, number: u64) -> bool {
        let mut table = self.table.lock();
        let known = table.slots.remove(&number);
        if let Some(Slot::Arrived(buffer)) = &known {
            table.waiting -= buffer.len() as u64;
        }
        known.is_some()
    }

    /// Takes in the bytes of an image that the client was asked for; false when it was not.
    pub fn put(&self, number: u64, bytes: &[u8]) -> bool {
        let mut table = self.table.lock();
        let is_wanted = matches!(table.slots.get(&number), Some(Slot::Wanted { is_copy: false }));
        if is_wanted {
            table.waiting += bytes.len() as u64;
            table.slots.insert(number, Slot::Arrived(Buffer::Plain(bytes.to_vec())));
        }
        is_wanted
    }

    /// Takes the bytes of a settled transfer; `length` is what the command says they should be.
    pub fn take(&self, number: u64, length: u64) -> Result<Buffer, CUresult> {
        let mut table = self.table.lock();
        match table.slots.remove(&number) {
            Some(Slot::Arrived(buffer)) => {
                let arrived = buffer.len() as u64;
                if !matches!(buffer, Buffer::Mapped(_)) {
                    table.waiting -= arrived;
                }
                if arrived == length { Ok(buffer) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
            }
            Some(Slot::Failed(error)) => Err(error),
            Some(Slot::Sought | Slot::Wanted { .. } | Slot::Arriving) | None => {
                Err(CUresult::CUDA_ERROR_UNKNOWN)
            }
        }
    }
}
