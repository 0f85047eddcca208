//! Exposing of memory to the peer (rkey).

use causeway_wire::remote_region::RemoteRegion;

use crate::state::State;
use causeway_transport::BufferGuard;
use causeway_transport::staging::Piece;

impl State {
    /// Registered memory, for the peer to write to.
    pub fn expose_for_write(&self, start: *const u8, length: usize) -> Option<RemoteRegion> {
        let region = self.registrations.read().find(start as usize, length, true)?;
        Some(RemoteRegion { address: start as u64, key: region.remote_key(), number: 0 })
    }

    /// Registered memory, for the peer to read; `guard` keeps it until the peer gives it back.
    pub fn expose_for_read(
        &self,
        start: *const u8,
        length: usize,
        guard: BufferGuard,
    ) -> Option<RemoteRegion> {
        let region = self.registered(start, length)?;
        let key = region.remote_key();
        Some(self.expose_by_key(start as u64, key, length, guard))
    }

    /// A filled piece, for the peer to read where it lies; it is free again when the peer has.
    pub fn expose_piece(&self, piece: Piece) -> RemoteRegion {
        let (address, length) = (piece.as_ptr() as u64, piece.len());
        self.expose_by_key(address, self.staging.region().remote_key(), length, Box::new(piece))
    }

    /// Takes memory back that was exposed for reading.
    pub fn recall(&self, memory: RemoteRegion) {
        let held = self.exposed_regions.lock().end(memory.number);
        drop(held);
    }

    /// Exposes memory by the key of its registration; `guard` keeps it until the peer gives it back.
    pub fn expose_by_key(&self, address: u64, key: u32, length: usize, guard: BufferGuard) -> RemoteRegion {
        let number = self.exposed_regions.lock().begin(length as u64, guard);
        if self.is_over() {
            self.abandon();
        }
        RemoteRegion { address, key, number }
    }
}
