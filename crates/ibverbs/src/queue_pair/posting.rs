//! Posting of send and receive work requests.

use core::ptr;

use super::lifetime::QueuePair;
use crate::sys::*;
use crate::work::{PostError, Receive, Segment, SendBatch};

impl QueuePair {
    /// Posts all requests of a batch with one doorbell, and clears it. After an error the requests before the
    /// one that was refused are on their way.
    ///
    /// # Safety
    /// The bytes of every request must stay mapped until its completion, or that of a later one in this
    /// queue, has been polled, or the queue pair has been dropped; those of sends and writes must be readable
    /// and those of reads writable by nobody else meanwhile. Of a read only its own completion counts, and of
    /// a send or write only its own says that its bytes may be changed: with Soft-iWARP (Linux 6.1) later
    /// requests complete before a read, and TCP fetches the bytes of unsignalled sends and writes when it
    /// comes to them. Bytes of inline requests must be readable now.
    pub unsafe fn post(&self, batch: &mut SendBatch) -> Result<(), PostError> {
        let Some(first) = batch.chain() else { return Ok(()) };
        let mut refused = ptr::null_mut();
        // SAFETY: the chain's vectors are not touched meanwhile; its segments are the caller's duty.
        let code = unsafe { (self.post_send)(self.raw.as_ptr(), first, &mut refused) };
        let posted = match code {
            0 => Ok(()),
            code => Err(PostError::new(batch.position(refused), code)),
        };
        batch.clear();
        posted
    }

    /// Posts receives, in their order.
    ///
    /// # Safety
    /// The bytes of every receive must stay mapped, and nobody else may access them, until its completion has
    /// been polled or the queue pair has been dropped.
    pub unsafe fn post_receives(&self, receives: &[Receive]) -> Result<(), PostError> {
        /// Receives that are handed over at a time.
        const AT_ONCE: usize = 32;
        for (index, some) in receives.chunks(AT_ONCE).enumerate() {
            let mut segments = [ibv_sge { addr: 0, length: 0, lkey: 0 }; AT_ONCE];
            let mut requests =
                [ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
                    AT_ONCE];
            for (position, receive) in some.iter().enumerate() {
                let Segment { address, length, key } = receive.segment;
                segments[position] = ibv_sge { addr: address, length, lkey: key };
                requests[position].wr_id = receive.id;
                requests[position].num_sge = i32::from(length > 0);
            }
            let (first, segment) = (requests.as_mut_ptr(), segments.as_mut_ptr());
            for position in 0..some.len() {
                // SAFETY: both arrays have at least as many elements as there are receives in a chunk.
                unsafe {
                    (*first.add(position)).sg_list = segment.add(position);
                    if position + 1 < some.len() {
                        (*first.add(position)).next = first.add(position + 1);
                    }
                }
            }
            let mut refused: *mut ibv_recv_wr = ptr::null_mut();
            // SAFETY: the chain lies in the arrays above; its segments are the caller's duty.
            let code = unsafe { (self.post_receive)(self.raw.as_ptr(), first, &mut refused) };
            if code != 0 {
                let position = requests.iter().position(|one| ptr::eq(one, refused)).unwrap_or(0);
                return Err(PostError::new(index * AT_ONCE + position, code));
            }
        }
        Ok(())
    }
}
