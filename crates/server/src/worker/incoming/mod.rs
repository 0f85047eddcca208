//! Bulk data on its way from the client: kept from its first chunk until the command that names it is issued.
//!
//! | module | contents |
//! | --- | --- |
//! | `table` | Table of incoming transfers, their credit, and the buffer of each: staged, leased, plain or mapped |

mod table;
#[cfg(test)]
mod tests;

pub use table::Buffer;

use crate::locks::{Mutex, rank};
use crate::worker::arena::Arena;
use causeway_api::sys::CUresult;
use causeway_gpu::Gpu;
use causeway_link::{Destination, Lease, TransferError};
use causeway_pipeline::NONTEMPORAL_UP_TO;
use memmap2::Mmap;
use parking_lot::Condvar;
use std::sync::Arc;
use table::{QueuedBytes, Slot, Table};

/// Transfers up to this size are received into memory that the GPU copies from directly. Pinning more would
/// cost more than the copy it saves.
const MAX_STAGED_BYTES: u64 = 64 << 20;

/// The transfers of a session that have begun to arrive.
#[derive(Clone, Default)]
pub struct Incoming {
    table: Arc<Mutex<rank::IncomingTransfers, Table>>,
    /// Transfers may begin to come again.
    released: Arc<Condvar>,
}

/// A transfer whose bytes are coming.
struct Arrival {
    incoming: Incoming,
    number: u64,
    length: usize,
    credit: QueuedBytes,
}

impl Arrival {
    /// All bytes have come, or never will.
    fn end(self, result: Result<Buffer, TransferError>) {
        let slot = match result {
            Ok(buffer) => Slot::Arrived(buffer, Some(self.credit)),
            Err(_) => Slot::Failed(CUresult::CUDA_ERROR_UNKNOWN),
        };
        self.incoming.table.lock().complete(self.number, slot);
    }
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
        let (is_image, arrival) = self.begin(number, total)?;
        let length = arrival.length;
        let finish = move |result: Result<Buffer, TransferError>| {
            arrival.end(result);
            arrived();
        };
        let in_caches = length > NONTEMPORAL_UP_TO;
        if total <= MAX_STAGED_BYTES
            && !is_image
            && let Ok(staging) = if in_caches { gpu.warm_staging(length) } else { gpu.staging(length) }
        {
            let address = staging.as_ptr();
            let finish = move |result: Result<(), _>| finish(result.map(|()| Buffer::Staged(staging)));
            // SAFETY: the memory belongs to `staging`, which the callback owns until it has run.
            let destination = unsafe { Destination::raw(address, length, finish) };
            return Some(if in_caches { destination } else { destination.nontemporal() });
        }
        Some(Destination::buffer(vec![0; length], move |result| finish(result.map(Buffer::Plain))))
    }

    /// Takes account of a transfer that begins to come, and says whether it is an image.
    fn begin(&self, number: u64, total: u64) -> Option<(bool, Arrival)> {
        let mut table = self.table.lock();
        while table.is_held {
            self.released.wait(table.inner());
        }
        if table.stale.contains(&number) {
            return None;
        }
        let is_image = match table.slots.get(&number) {
            None => false,
            Some(Slot::Expected { is_copy }) => !is_copy,
            Some(Slot::Refused) => {
                table.forget_refused(number);
                return None;
            }
            Some(_) => return None,
        };
        let Some((length, credit)) = usize::try_from(total).ok().zip(table.credit(total)) else {
            table.slots.insert(number, Slot::Failed(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
            return None;
        };
        table.slots.insert(number, Slot::Arriving);
        Some((is_image, Arrival { incoming: self.clone(), number, length, credit }))
    }

    /// Takes a whole transfer where it lies in memory shared with the client. It is released when it is an
    /// image, which must not change, or when too many wait there; then it is copied.
    pub fn open_in_place(&self, arena: &Arc<Arena>, number: u64, lease: Lease) -> Result<(), Lease> {
        let mut table = self.table.lock();
        if table.slots.contains_key(&number) {
            return Err(lease);
        }
        let Some(credit) = table.credit(lease.len() as u64) else { return Err(lease) };
        let leased = arena.keep_waiting(lease)?;
        table.slots.insert(number, Slot::Arrived(Buffer::Leased(leased), Some(credit)));
        Ok(())
    }

    /// Whether a command that names the transfer can be issued: all bytes are there, or never will be.
    pub fn is_complete(&self, number: u64) -> bool {
        matches!(self.table.lock().slots.get(&number), Some(Slot::Arrived(..) | Slot::Failed(_)))
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

    /// Ends the search for an image, or for the bytes of a copy: here they are, or the client has to send
    /// them.
    pub fn sought(&self, number: u64, found: Option<Mmap>, is_copy: bool) {
        let mut table = self.table.lock();
        match found {
            Some(map) => table.complete(number, Slot::Arrived(Buffer::Mapped(map), None)),
            None if matches!(table.slots.get(&number), Some(Slot::Sought)) => {
                table.slots.insert(number, Slot::Expected { is_copy });
            }
            None => {}
        }
    }

    /// Lent bytes that were [sought](Self::seek) are there, or never will be.
    pub fn brought(&self, number: u64, outcome: Result<Buffer, CUresult>) {
        let mut table = self.table.lock();
        let slot = outcome.and_then(|buffer| {
            let credit = table.credit(buffer.len() as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            Ok(Slot::Arrived(buffer, Some(credit)))
        });
        table.complete(number, slot.unwrap_or_else(Slot::Failed));
    }

    /// Whether so many more bytes may wait for their command.
    pub fn has_capacity(&self, bytes: u64) -> bool {
        self.table.lock().credit(bytes).is_some()
    }

    /// Whether bytes are looked for, are coming, or wait for their command.
    pub fn are_any_awaited(&self) -> bool {
        let table = self.table.lock();
        table.slots.values().any(|slot| !matches!(slot, Slot::Failed(_) | Slot::Refused))
    }

    /// Lets nothing more begin to come, if nothing is coming and nothing is looked for; whether that is so.
    pub fn hold(&self) -> bool {
        let mut table = self.table.lock();
        let is_complete =
            |slot: &Slot| !matches!(slot, Slot::Sought | Slot::Expected { .. } | Slot::Arriving);
        table.is_held = table.slots.values().all(is_complete);
        table.is_held
    }

    /// Lets transfers come again.
    pub fn release(&self) {
        self.table.lock().is_held = false;
        self.released.notify_all();
    }

    /// Calls `each` with every transfer that has come and waits for its command.
    pub fn each_arrived<E>(&self, mut each: impl FnMut(u64, &Buffer) -> Result<(), E>) -> Result<(), E> {
        let table = self.table.lock();
        for (number, slot) in &table.slots {
            if let Slot::Arrived(buffer, _) = slot {
                each(*number, buffer)?;
            }
        }
        Ok(())
    }

    /// The transfers of which the client may not know that they have come, though nothing is left of them here.
    pub fn taken(&self) -> Vec<u64> {
        let table = self.table.lock();
        let unwanted = table.slots.iter().filter(|(_, slot)| matches!(slot, Slot::Failed(_)));
        table.taken.iter().chain(unwanted.map(|(number, _)| number)).copied().collect()
    }

    /// Takes up what another worker has had: a transfer that had come. False where too much waits.
    pub fn take_up(&self, number: u64, bytes: Vec<u8>) -> bool {
        let mut table = self.table.lock();
        let Some(credit) = table.credit(bytes.len() as u64) else { return false };
        table.slots.insert(number, Slot::Arrived(Buffer::Plain(bytes), Some(credit)));
        true
    }

    /// What comes of these transfers has come to another worker before.
    pub fn set_stale(&self, numbers: Vec<u64>) {
        self.table.lock().stale = numbers.into_iter().collect();
    }

    /// Whether anything is known of a transfer.
    pub fn knows(&self, number: u64) -> bool {
        self.table.lock().slots.contains_key(&number)
    }

    /// Takes in the bytes of an image that the client was asked for, if they are still wanted; false when it
    /// was not.
    pub fn put(&self, number: u64, bytes: &[u8]) -> bool {
        let mut table = self.table.lock();
        if let Some(Slot::Refused) = table.slots.get(&number) {
            table.forget_refused(number);
            return true;
        }
        let is_expected = matches!(table.slots.get(&number), Some(Slot::Expected { is_copy: false }));
        if is_expected {
            let slot = match table.credit(bytes.len() as u64) {
                Some(credit) => Slot::Arrived(Buffer::Plain(bytes.to_vec()), Some(credit)),
                None => Slot::Failed(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
            };
            table.slots.insert(number, slot);
        }
        is_expected
    }

    /// Takes the bytes of a transfer for its command; `length` is what the command says they should be. Bytes
    /// of a transfer that is not settled are thrown away when they come: its command is refused.
    pub fn take(&self, number: u64, length: u64) -> Result<Buffer, CUresult> {
        let mut table = self.table.lock();
        match table.slots.remove(&number) {
            Some(Slot::Arrived(buffer, _credit)) if buffer.len() as u64 == length => {
                table.note_taken(number);
                Ok(buffer)
            }
            Some(Slot::Arrived(..)) => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            Some(Slot::Failed(error)) => Err(error),
            unsettled => {
                if let Some(refused @ Slot::Refused) = unsettled {
                    table.slots.insert(number, refused);
                } else {
                    table.refuse(number);
                }
                Err(CUresult::CUDA_ERROR_UNKNOWN)
            }
        }
    }
}
