//! Where are the bytes of a transfer received, and how do they get to where they belong?

use crate::locks::{Mutex, rank};
use crate::model::host_writes::Bounce;
use crate::model::transfers::Transfer;
use causeway_link::{ChooseMemory, Destination, TransferError};
use causeway_memory::copy_threads;
use causeway_sync::delays;
use core::ops::Range;
use std::sync::Arc;

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
            let bounced = Mutex::default();
            let place = Arc::new(InTurn { transfer: transfer.clone(), address, length, bounced });
            let on_end = {
                let place = place.clone();
                move |outcome: Result<(), TransferError>| match (outcome, place.bounced_bytes()) {
                    (Ok(()), bytes @ 1..) => transfer.clone().store(bytes, move || {
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
                Ok(bytes) if is_blocked && !transfer.is_next() => {
                    transfer.clone().store(length, move || scatter(&bytes));
                }
                outcome => transfer.ended(outcome.map(|bytes| scatter(&bytes))),
            })
        }
    }
}

/// Memory of the program, and a bounce buffer for the parts of a transfer that come before its turn.
struct InTurn {
    transfer: Arc<Transfer>,
    address: *mut u8,
    length: usize,
    bounced: Mutex<rank::BouncedParts, Bounced>,
}

/// What lies elsewhere than where it belongs.
#[derive(Default)]
struct Bounced {
    /// It has room for the whole transfer; what is not written of it costs nothing.
    buffer: Option<Bounce>,
    /// Which parts lie in it.
    parts: Vec<Range<usize>>,
}

// SAFETY: an address of the program, which whoever expects the transfer allows any thread to write behind.
unsafe impl Send for InTurn {}
// SAFETY: as above.
unsafe impl Sync for InTurn {}

impl InTurn {
    fn bounced_bytes(&self) -> usize {
        self.bounced.lock().parts.iter().map(Range::len).sum()
    }

    /// Copies what lies in the bounce buffer to where it belongs.
    ///
    /// # Safety
    /// The program's memory must be writable, and nobody may write to the bounce buffer any more.
    unsafe fn store(&self, threads: usize) {
        let Bounced { buffer, parts } = core::mem::take(&mut *self.bounced.lock());
        let Some(buffer) = buffer else { return };
        for part in parts {
            let (to, from) =
                (self.address.wrapping_add(part.start), buffer.memory().wrapping_add(part.start));
            // SAFETY: the buffer has as many bytes as the transfer; for the rest as this function demands.
            unsafe { copy_threads::copy(to, from, part.len(), threads) };
        }
    }
}

impl ChooseMemory for InTurn {
    fn memory(&self, part: Range<usize>) -> *mut u8 {
        let start = part.start;
        let mut bounced = self.bounced.lock();
        let Bounced { buffer, parts } = &mut *bounced;
        // A part that comes again, because its lane has died, must not be covered by what came of it before.
        let known = parts.iter_mut().find(|known| known.start == start);
        if let (Some(known), Some(buffer)) = (known, &buffer) {
            known.end = known.end.max(part.end);
            return buffer.memory().wrapping_add(start);
        }
        let is_next = self.transfer.is_next();
        delays::inject();
        if is_next {
            return self.address.wrapping_add(start);
        }
        parts.push(part);
        buffer.get_or_insert_with(|| Bounce::of(self.length)).memory().wrapping_add(start)
    }
}
