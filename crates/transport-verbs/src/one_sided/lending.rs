//! How is memory lent to the peer?

use causeway_wire::lent::LentMemory;

use crate::state::State;
use causeway_transport::Keeper;
use causeway_transport::staging::Piece;

impl State {
    /// Registered memory, for the peer to write to.
    pub fn lend(&self, start: *const u8, length: usize) -> Option<LentMemory> {
        let region = self.known.read().find(start as usize, length, true)?;
        Some(LentMemory { address: start as u64, key: region.remote_key(), number: 0 })
    }

    /// Registered memory, for the peer to read; `keeper` keeps it until the peer gives it back.
    pub fn lend_to_read(&self, start: *const u8, length: usize, keeper: Keeper) -> Option<LentMemory> {
        let region = self.known(start, length)?;
        let key = region.remote_key();
        Some(self.lend_for_reading(start as u64, key, length, keeper))
    }

    /// A filled piece, for the peer to read where it lies; it is free again when the peer has.
    pub fn lend_piece(&self, piece: Piece) -> LentMemory {
        let (address, length) = (piece.as_ptr() as u64, piece.len());
        self.lend_for_reading(address, self.staging.region().remote_key(), length, Box::new(piece))
    }

    /// Takes memory back that was lent to be read.
    pub fn recall(&self, memory: LentMemory) {
        let kept = self.lendings.lock().end(memory.number);
        drop(kept);
    }

    /// Lends memory by the key of its registration; `keeper` keeps it until the peer gives it back.
    pub fn lend_for_reading(&self, address: u64, key: u32, length: usize, keeper: Keeper) -> LentMemory {
        let number = self.lendings.lock().begin(length as u64, keeper);
        if self.is_over() {
            self.abandon();
        }
        LentMemory { address, key, number }
    }
}
