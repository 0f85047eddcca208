//! One-sided interface that a link over verbs offers.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_transport::staging::Piece;
use causeway_transport::{
    BufferGuard, DeviceMemory, DeviceUse, LinkError, NotRegistered, OnComplete, OneSided, RegionSlice, Shared,
};
use causeway_wire::remote_region::RemoteRegion;

use crate::state::State;

impl OneSided for State {
    unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), NotRegistered> {
        // SAFETY: as this function demands.
        unsafe { self.register(start, length) }.map_err(NotRegistered::refused)
    }

    fn forget(&self, start: *mut u8) {
        self.forget(start);
    }

    fn knows(&self, start: *const u8, length: usize) -> bool {
        self.registered(start, length).is_some()
    }

    unsafe fn register_device(
        &self,
        buffer: Option<(BorrowedFd<'_>, u64)>,
        address: u64,
        length: usize,
        usage: DeviceUse,
    ) -> Result<DeviceMemory, NotRegistered> {
        // SAFETY: as this function demands.
        let region = unsafe { self.register_device(buffer, address, length, usage) };
        let region = region.map_err(NotRegistered::refused)?;
        let keys = (region.local_key(), region.remote_key());
        Ok(DeviceMemory::new(region.address(), region.len() as u64, keys, region))
    }

    fn shortage(&self) -> Option<&str> {
        self.shortage.as_deref()
    }

    fn expose_for_write(&self, start: *const u8, length: usize) -> Option<RemoteRegion> {
        self.expose_for_write(start, length)
    }

    fn expose_for_read(&self, start: *const u8, length: usize, guard: BufferGuard) -> Option<RemoteRegion> {
        self.expose_for_read(start, length, guard)
    }

    fn expose_device(
        &self,
        memory: &DeviceMemory,
        address: u64,
        length: usize,
        guard: BufferGuard,
    ) -> RemoteRegion {
        let (key, guard) = (memory.remote_key(), (memory.clone(), guard));
        self.expose_by_key(address, key, length, Box::new(guard))
    }

    fn expose_piece(&self, piece: Piece) -> RemoteRegion {
        self.expose_piece(piece)
    }

    fn recall(&self, memory: RemoteRegion) {
        self.recall(memory);
    }

    fn read_to_device(&self, link: &Arc<Shared>, from: RemoteRegion, into: RegionSlice, then: OnComplete) {
        self.read(link, from, into, true, then);
    }

    unsafe fn read_to_host(
        &self,
        link: &Arc<Shared>,
        from: RemoteRegion,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError> {
        // SAFETY: as this function demands.
        unsafe { self.read_by_staging(link, from, into, length) }
    }

    fn decline(&self, memory: RemoteRegion) {
        self.decline(memory);
    }

    fn put_from_device(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        from: RegionSlice,
        to: RemoteRegion,
        then: OnComplete,
    ) {
        self.put(link, transfer, from, to, true, then);
    }

    fn send_from_device(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        from: RegionSlice,
        piece: Piece,
        then: OnComplete,
    ) {
        let whole = (transfer, 0, piece.len() as u64);
        self.write_piece(link, piece, from, whole, true, Some(then));
    }

    fn put_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece, to: RemoteRegion) {
        self.put_piece(link, transfer, piece, to);
    }
}
