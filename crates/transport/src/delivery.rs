//! Delivery of received pieces from staging memory to their destination.

use std::sync::Arc;

use causeway_sync::delays;
use causeway_sync::queue::Sender as QueueEnd;
use causeway_wire::chunk::ChunkHeader;

use crate::counters::count;
use crate::destination::ChunkAddress;
use crate::error::LinkError;
use crate::shared::Shared;
use crate::staging::Lease;
use crate::transfers::ChunkDestination;

/// Copies up to this many bytes are made by the thread that finds the piece: 25 us of one thread. Another one
/// would take longer pieces over while this one is back for the next.
const COPIED_AT_ONCE: usize = 256 << 10;

/// A lease that is to be copied to its destination.
pub struct Copy {
    chunk: ChunkHeader,
    lease: Option<Lease>,
    destination: ChunkAddress,
    /// How many threads are to copy.
    threads: usize,
    link: Arc<Shared>,
}

impl Copy {
    /// Copies it, gives the lease back, and tells whoever waits for the transfer.
    pub fn carry_out(mut self) {
        delays::inject();
        if let Some(lease) = self.lease.take() {
            // SAFETY: the chunk was claimed, so the destination has room for it and stays writable until it
            // has landed; no other chunk overlaps it.
            unsafe { lease.empty_into(self.destination.get(), self.threads) };
            drop(lease);
            count(&self.link.counters().transfer_bytes_received, self.chunk.length as usize);
            self.link.transfers().landed(&self.chunk, None);
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if self.lease.is_some() {
            // Nobody was left to carry it out; its transfer must end all the same.
            self.link.transfers().landed(&self.chunk, Some(&LinkError::PeerDisconnected));
        }
    }
}

/// Brings a piece of a transfer that lies in staging memory to where it belongs: it is handed to the link's
/// owner in place, if that is what the owner wants, or else copied, by the thread behind `copies` unless
/// it is short.
pub fn deliver(
    link: &Arc<Shared>,
    chunk: ChunkHeader,
    lease: Lease,
    copies: Option<QueueEnd<Copy>>,
) -> Result<(), LinkError> {
    let length = chunk.length as usize;
    delays::inject();
    let is_whole = length > 0 && u64::from(chunk.length) == chunk.total;
    let lease = match link.events() {
        Some(events) if is_whole && !link.transfers().knows(chunk.transfer) => {
            match events.open_in_place(chunk.transfer, lease) {
                Ok(()) => {
                    count(&link.counters().transfer_bytes_received, length);
                    return Ok(());
                }
                Err(lease) => lease,
            }
        }
        _ => lease,
    };
    match link.transfers().claim(&chunk, link.events())? {
        ChunkDestination::Nowhere => {
            drop(lease);
            count(&link.counters().transfer_bytes_received, length);
            link.transfers().landed(&chunk, None);
        }
        ChunkDestination::Memory { to: destination, threads, .. } => {
            let copy = Copy { chunk, lease: Some(lease), destination, threads, link: Arc::clone(link) };
            match copies.filter(|_| length > COPIED_AT_ONCE) {
                Some(queue) => {
                    if let Err(refused) = queue.send(copy) {
                        refused.carry_out();
                    }
                }
                None => copy.carry_out(),
            }
        }
    }
    Ok(())
}
