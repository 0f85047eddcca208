//! Where are the bytes of a transfer received, and how do they get to where they belong?

use crate::model::host_writes::Bounce;
use crate::model::transfers::{TRANSFERS, Transfer};
use causeway_link::{ChooseMemory, Destination, TransferError};
use causeway_memory::copy_threads;
use causeway_sync::delays;
use core::ops::Range;
use std::sync::{Arc, OnceLock};

/// Spreads the bytes of a transfer over the program's memory.
pub type Scatter = Box<dyn FnOnce(&[u8]) + Send>;

/// Where a transfer's bytes go.
pub enum ReceiveBuffer {
    /// Straight into memory of the program: address and length.
    Direct(*mut u8, usize),
    /// Into a buffer of this many bytes that is then given to the function, which spreads it over the
    /// program's memory from the first address to the second.
    Scatter { length: usize, start: usize, end: usize, scatter: Scatter },
}

impl ReceiveBuffer {
    /// The addresses from its first byte to behind its last.
    pub fn range(&self) -> Range<usize> {
        match self {
            Self::Direct(address, length) => *address as usize..*address as usize + length,
            Self::Scatter { start, end, .. } => *start..*end,
        }
    }
}

/// Where the bytes of a transfer are received, and how they get to where they belong.
///
/// # Safety
/// The memory that `buffer` means must be valid for writes until the transfer is done.
pub unsafe fn destination(
    transfer: &Arc<Transfer>,
    buffer: ReceiveBuffer,
    is_blocked: bool,
    threads: usize,
) -> Destination {
    let transfer = transfer.clone();
    match buffer {
        // SAFETY: valid until the transfer is done, as this function demands; it is done when the callback
        // has run.
        ReceiveBuffer::Direct(address, length) if !is_blocked => unsafe {
            Destination::raw(address, length, move |outcome| transfer.ended(outcome))
        },
        ReceiveBuffer::Direct(address, length) => {
            let place =
                Arc::new(InTurn { number: transfer.number, address, length, bounce: OnceLock::new() });
            let on_end = {
                let place = place.clone();
                move |outcome: Result<(), TransferError>| match (outcome, place.is_bounced()) {
                    (Ok(()), true) => transfer.clone().store(move || {
                        // SAFETY: the transfer is not done yet, and all its bytes have arrived.
                        unsafe { place.store(threads) };
                    }),
                    (outcome, _) => transfer.ended(outcome),
                }
            };
            // SAFETY: the program's memory is valid until the transfer is done, as this function demands, and
            // the bounce buffer as long as `place`, which the callback holds.
            unsafe { Destination::chosen(place, length, on_end) }
        }
        ReceiveBuffer::Scatter { length, scatter, .. } => {
            Destination::buffer(vec![0; length], move |outcome| match outcome {
                Ok(bytes) if is_blocked => transfer.clone().store(move || scatter(&bytes)),
                outcome => transfer.ended(outcome.map(|bytes| scatter(&bytes))),
            })
        }
    }
}

/// Memory of the program, or a bounce buffer if the transfer's turn has not come when its first bytes do.
struct InTurn {
    number: u64,
    address: *mut u8,
    length: usize,
    /// Decided once, when the first bytes come: chunks come on several threads at a time, and all go the same
    /// way. Nothing in it is in place.
    bounce: OnceLock<Option<Bounce>>,
}

// SAFETY: an address of the program, which whoever expects the transfer allows any thread to write behind.
unsafe impl Send for InTurn {}
// SAFETY: as above.
unsafe impl Sync for InTurn {}

impl InTurn {
    fn is_bounced(&self) -> bool {
        matches!(self.bounce.get(), Some(Some(_)))
    }

    /// Copies what lies in the bounce buffer to where it belongs.
    ///
    /// # Safety
    /// The program's memory must be writable, and nobody may write to the bounce buffer any more.
    unsafe fn store(&self, threads: usize) {
        if let Some(Some(bounce)) = self.bounce.get() {
            // SAFETY: the buffer has as many bytes; for the rest as this function demands.
            unsafe { copy_threads::copy(self.address, bounce.memory(), self.length, threads) };
        }
    }
}

impl ChooseMemory for InTurn {
    fn memory(&self) -> *mut u8 {
        let bounce = self.bounce.get_or_init(|| {
            let is_next = TRANSFERS.pending.lock().is_next(self.number);
            delays::inject();
            (!is_next).then(|| Bounce::of(self.length))
        });
        bounce.as_ref().map_or(self.address, Bounce::memory)
    }
}
