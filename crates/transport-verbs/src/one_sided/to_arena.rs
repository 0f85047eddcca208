//! RDMA writes to the receiver's staging arena.

use std::sync::Arc;

use causeway_ibverbs::{MemoryRegion, RemoteMemory};
use causeway_wire::chunk::ChunkHeader;
use parking_lot::Mutex;

use super::pending::{Ends, LONG_STEP, PendingOperation};
use crate::carry::slice_of;
use crate::message::{Announcement, Offer};
use crate::operation::Operation;
use crate::path::{Notice, Work};
use crate::state::State;
use causeway_transport::slots::SLOT;
use causeway_transport::staging::Piece;
use causeway_transport::{
    Address, BufferGuard, LinkError, OnComplete, Order, RegionSlice, Sending, Shared, count,
};

impl State {
    /// Writes `source` to the slots of a piece in the peer's arena; `then` follows when its bytes are there.
    pub fn write_piece(
        &self,
        link: &Shared,
        piece: Piece,
        source: RegionSlice,
        (transfer, offset, total): (u64, u64, u64),
        is_direct: bool,
        then: Option<OnComplete>,
    ) {
        let (first, length) = (piece.first(), piece.len());
        let chunk = ChunkHeader { transfer, offset, total, length: length as u32 };
        let RemoteMemory { address, key } = self.peer_arena;
        let to = RemoteMemory { address: address + first as u64 * SLOT as u64, key };
        // From here on the peer gives the slots back.
        self.slots.lock().send(first);
        piece.sent();
        let notice = |stripes| Some(Notice::Announcement(Announcement { chunk, first, stripes, is_direct }));
        self.carry(source, Work::Write(to), notice, then);
        count(&link.counters().transfer_bytes_sent, length);
        if is_direct {
            count(&link.counters().direct_bytes_sent, length);
        }
    }

    /// Offers registered memory to the peer, which reads it into the slots of a piece. `guard` keeps it
    /// until it has been read.
    fn offer(&self, piece: Piece, source: RemoteMemory, chunk: ChunkHeader, guard: BufferGuard) {
        let first = piece.first();
        self.slots.lock().send(first);
        piece.sent();
        self.exposed_regions.lock().begin_offer(first, chunk.length.into(), guard);
        let announcement = Announcement { chunk, first, stripes: 1, is_direct: false };
        let nothing = RegionSlice { address: 0, key: 0, length: 0 };
        self.carry(nothing, Work::None, |_| Some(Notice::Offer(Offer { announcement, from: source })), None);
    }

    /// Sends a transfer of registered memory, without a copy of it. Waits for slots, not for the bytes.
    pub(crate) fn send_from(
        &self,
        link: &Arc<Shared>,
        order: Order,
        region: &MemoryRegion,
    ) -> Result<Sending, LinkError> {
        let Order { transfer, start: Address(start), length, guard, .. } = order;
        let reads = self.prefers.reads(length);
        count(&link.counters().registered_bytes_sent, length);
        let (guard, sending) = match guard {
            Some(guard) => (guard, Sending::done()),
            None => {
                let operation = Operation::new(1, Box::new(drop));
                let (link, state) = (Arc::clone(link), self.myself());
                let pending = PendingOperation { link, state, operation: Arc::clone(&operation) };
                (Box::new(Ends(operation)) as BufferGuard, Sending::pending(pending))
            }
        };
        let guard = Arc::new(Mutex::new(guard));
        let max_piece = self.max_piece();
        let step = if length <= max_piece { length } else { LONG_STEP.min(max_piece) };
        for offset in (0..length).step_by(step) {
            link.check()?;
            let part = step.min(length - offset);
            let piece = self.wait_for(|| Ok(self.try_piece(part))).map_err(|error| link.lose(error))?;
            let address = start as u64 + offset as u64;
            let held = Arc::clone(&guard);
            let (offset, total) = (offset as u64, length as u64);
            if reads {
                let from = RemoteMemory { address, key: region.remote_key() };
                let chunk = ChunkHeader { transfer, offset, total, length: part as u32 };
                self.offer(piece, from, chunk, Box::new(held));
                count(&link.counters().transfer_bytes_sent, part);
            } else {
                let source = slice_of(region, address, part);
                let then: OnComplete = Box::new(move |_| drop(held));
                self.write_piece(link, piece, source, (transfer, offset, total), false, Some(then));
            }
        }
        Ok(sending)
    }
}
