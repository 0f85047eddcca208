//! Access to memory that the peer has exposed (RDMA read and write).

use std::sync::Arc;

use causeway_ibverbs::RemoteMemory;
use causeway_wire::chunk::ChunkHeader;
use causeway_wire::remote_region::RemoteRegion;

use super::pending::{Ends, LONG_STEP};
use crate::message::{Announcement, Released};
use crate::operation::Operation;
use crate::path::{Notice, Work};
use crate::state::State;
use causeway_transport::RegionSlice;
use causeway_transport::staging::Piece;
use causeway_transport::{LinkError, OnComplete, Shared, count};

impl State {
    /// Writes a whole transfer to memory that the peer has exposed for it; `then` follows when it is there.
    pub fn put(
        &self,
        link: &Shared,
        transfer: u64,
        source: RegionSlice,
        to: RemoteRegion,
        is_direct: bool,
        then: OnComplete,
    ) {
        let length = source.length as u32;
        let chunk = ChunkHeader { transfer, offset: 0, total: length.into(), length };
        let to = RemoteMemory { address: to.address, key: to.key };
        let notice = |stripes| Some(Notice::Placed(Announcement { chunk, first: 0, stripes, is_direct }));
        self.carry(source, Work::Write(to), notice, Some(then));
        count(&link.counters().transfer_bytes_sent, source.length);
        if is_direct {
            count(&link.counters().direct_bytes_sent, source.length);
        }
    }

    /// Writes a piece to memory that the peer has exposed for its transfer.
    pub fn put_piece(&self, link: &Shared, transfer: u64, piece: Piece, to: RemoteRegion) {
        let source = self.slot(piece.first(), piece.len());
        self.put(link, transfer, source, to, false, Box::new(move |_| drop(piece)));
    }

    /// Reads memory that the peer has exposed, and gives it back; `then` follows when it is there.
    pub fn read(
        &self,
        link: &Arc<Shared>,
        from: RemoteRegion,
        into: RegionSlice,
        is_direct: bool,
        then: OnComplete,
    ) {
        let RemoteRegion { address, key, number } = from;
        let (state, link) = (self.myself(), Arc::clone(link));
        let then: OnComplete = Box::new(move |outcome| {
            if outcome.is_ok() {
                count(&link.counters().transfer_bytes_received, into.length);
                if is_direct {
                    count(&link.counters().direct_bytes_received, into.length);
                }
                state.send_released(Released::Region { number, is_direct });
            }
            then(outcome);
        });
        self.carry(into, Work::Read(RemoteMemory { address, key }), |_| None, Some(then));
    }

    /// Reads memory that the peer has exposed to where no card can write, by way of staging.
    ///
    /// # Safety
    /// `length` bytes must be writable at `into`.
    pub unsafe fn read_by_staging(
        &self,
        link: &Arc<Shared>,
        from: RemoteRegion,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError> {
        let step = LONG_STEP.min(self.max_piece());
        for offset in (0..length).step_by(step) {
            let part = step.min(length - offset);
            let piece = self.wait_for(|| Ok(self.try_piece(part)))?;
            let operation = Operation::new(1, Box::new(drop));
            let ends = Ends(Arc::clone(&operation));
            let from = RemoteMemory { address: from.address.wrapping_add(offset as u64), key: from.key };
            let then: OnComplete = Box::new(move |_| drop(ends));
            self.carry(self.slot(piece.first(), part), Work::Read(from), |_| None, Some(then));
            self.wait_for(|| Ok(operation.is_over().then_some(())))?;
            // SAFETY: the caller vouches for the place; the card has written the slots, which are ours.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), into.wrapping_add(offset), part) };
        }
        count(&link.counters().transfer_bytes_received, length);
        Ok(())
    }

    /// Gives memory back that the peer has exposed for reading.
    pub fn decline(&self, memory: RemoteRegion) {
        self.send_released(Released::Region { number: memory.number, is_direct: false });
    }
}
