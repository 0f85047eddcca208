//! Receive buffer of a transfer: direct, scattered, or through a bounce buffer.

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
        // SAFETY: the caller keeps the memory writable until the transfer is done, which it is when the
        // callback has run.
        ReceiveBuffer::Direct(address, length) if !is_blocked => unsafe {
            Destination::raw(address, length, move |outcome| transfer.ended(outcome))
        },
        ReceiveBuffer::Direct(address, length) => {
            let bounced = Mutex::default();
            let ordered = Arc::new(OrderedBuffer { transfer: transfer.clone(), address, bounced });
            let on_end = {
                let ordered = ordered.clone();
                move |outcome: Result<(), TransferError>| match (outcome, ordered.bounced_bytes()) {
                    (Ok(()), bytes @ 1..) => transfer.clone().store(bytes, move || {
                        // SAFETY: the transfer is not done yet, and all its bytes have arrived.
                        unsafe { ordered.store(threads) };
                    }),
                    (outcome, _) => transfer.ended(outcome),
                }
            };
            // SAFETY: the caller keeps the program's memory valid until the transfer is done, and the bounce
            // buffer lasts as long as `ordered`, which the callback holds.
            unsafe { Destination::chosen(ordered, length, on_end) }
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

/// Stands for a part that is not to be stored.
const NOTHING: Range<usize> = usize::MAX..usize::MAX;

/// Memory of the program, and bounce buffers for the parts of a transfer that come before its turn.
struct OrderedBuffer {
    transfer: Arc<Transfer>,
    address: *mut u8,
    /// The parts that lie elsewhere than where they belong.
    bounced: Mutex<rank::BouncedParts, Vec<(Range<usize>, Bounce)>>,
}

// SAFETY: an address of the program, which whoever expects the transfer allows any thread to write behind.
unsafe impl Send for OrderedBuffer {}
// SAFETY: an address of the program, which whoever expects the transfer allows any thread to write behind.
unsafe impl Sync for OrderedBuffer {}

impl OrderedBuffer {
    fn bounced_bytes(&self) -> usize {
        self.bounced.lock().iter().map(|(part, _)| part.len()).sum()
    }

    /// Copies what lies in bounce buffers to where it belongs.
    ///
    /// # Safety
    /// The program's memory must be writable, and nobody may write to the bounce buffers any more.
    unsafe fn store(&self, threads: usize) {
        let bounced = core::mem::take(&mut *self.bounced.lock());
        for (part, bounce) in bounced {
            let to = self.address.wrapping_add(part.start);
            // SAFETY: the bounce buffer was made for as many bytes, and the caller has as many writable in
            // the program's memory.
            unsafe { copy_threads::copy(to, bounce.memory(), part.len(), threads) };
        }
    }
}

impl ChooseMemory for OrderedBuffer {
    fn memory(&self, part: Range<usize>) -> *mut u8 {
        let mut bounced = self.bounced.lock();
        // A part comes again where its lane has died: to the same place, since what came of it before must not
        // cover it in the end.
        if let Some((known, bounce)) = bounced.iter_mut().find(|(known, _)| known.start == part.start) {
            if known.len() == part.len() {
                return bounce.memory();
            }
            // No peer that keeps to what is agreed cuts it in another way. The buffer stays, for who may still
            // write to it.
            *known = NOTHING;
        }
        let is_next = self.transfer.is_next();
        delays::inject();
        if is_next {
            return self.address.wrapping_add(part.start);
        }
        let bounce = Bounce::of(part.len());
        let memory = bounce.memory();
        bounced.push((part, bounce));
        memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device;
    use crate::model::transfers::{self, Carrier, TRANSFERS};

    struct Nowhere;

    impl Carrier for Nowhere {
        fn wake_receiver(&self) {}
        fn cancel(&self, _: u64) {}
    }

    #[test]
    fn early_parts_are_stored_after_their_predecessors() {
        let memory = Box::leak(Box::new([0_u8; 16])).as_mut_ptr();
        let address = memory.wrapping_add(8);
        let before = transfers::begin_apart(&Nowhere, 0, memory as usize..address as usize).transfer;
        let barrier = device::fresh();
        assert!(TRANSFERS.pending.lock().add_barrier(barrier, [before.key()], []));
        let range = address as usize..address as usize + 8;
        let expected = transfers::enter(TRANSFERS.pending.lock(), &Nowhere, 0, Some(barrier), range);
        assert!(expected.is_blocked);
        let ordered = Arc::new(OrderedBuffer {
            transfer: expected.transfer.clone(),
            address,
            bounced: Mutex::default(),
        });
        let early = ordered.memory(0..4);
        assert_ne!(early, address);
        // SAFETY: both places are writable for as many bytes, and the test's own.
        unsafe { early.write_bytes(7, 4) };
        before.ended(Ok::<(), TransferError>(()));
        let late = ordered.memory(4..8);
        assert_eq!(late, address.wrapping_add(4));
        // SAFETY: both places are writable for as many bytes, and the test's own.
        unsafe { late.write_bytes(9, 4) };
        assert_eq!(ordered.memory(0..4), early, "a part that comes again goes where it went");
        assert_eq!(ordered.bounced_bytes(), 4);
        let storing = ordered.clone();
        // SAFETY: both places are writable for as many bytes, and the test's own.
        expected.transfer.clone().store(4, move || unsafe { storing.store(1) });
        assert!(expected.transfer.is_done());
        // SAFETY: nobody writes to it any more.
        let found = unsafe { core::slice::from_raw_parts(address, 8) };
        assert_eq!(found, [7, 7, 7, 7, 9, 9, 9, 9]);
    }
}
