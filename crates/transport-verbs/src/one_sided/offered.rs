//! What is offered to a link whose cards reach memory by themselves?

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_transport::staging::Piece;
use causeway_transport::{
    DeviceMemory, DeviceUse, Keeper, LinkError, NotRegistered, OneSided, RegionSlice, Shared, Then,
};
use causeway_wire::lent::LentMemory;

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
        self.known(start, length).is_some()
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

    fn lend(&self, start: *const u8, length: usize) -> Option<LentMemory> {
        self.lend(start, length)
    }

    fn lend_to_read(&self, start: *const u8, length: usize, keeper: Keeper) -> Option<LentMemory> {
        self.lend_to_read(start, length, keeper)
    }

    fn lend_device(&self, memory: &DeviceMemory, address: u64, length: usize, keeper: Keeper) -> LentMemory {
        let (key, keeper) = (memory.remote_key(), (memory.clone(), keeper));
        self.lend_for_reading(address, key, length, Box::new(keeper))
    }

    fn lend_piece(&self, piece: Piece) -> LentMemory {
        self.lend_piece(piece)
    }

    fn recall(&self, memory: LentMemory) {
        self.recall(memory);
    }

    fn read_to_device(&self, link: &Arc<Shared>, from: LentMemory, into: RegionSlice, then: Then) {
        self.read(link, from, into, true, then);
    }

    unsafe fn read_to_host(
        &self,
        link: &Arc<Shared>,
        from: LentMemory,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError> {
        // SAFETY: as this function demands.
        unsafe { self.read_by_staging(link, from, into, length) }
    }

    fn decline(&self, memory: LentMemory) {
        self.decline(memory);
    }

    fn put_from_device(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        from: RegionSlice,
        to: LentMemory,
        then: Then,
    ) {
        self.put(link, transfer, from, to, true, then);
    }

    fn send_from_device(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        from: RegionSlice,
        piece: Piece,
        then: Then,
    ) {
        let whole = (transfer, 0, piece.len() as u64);
        self.write_piece(link, piece, from, whole, true, Some(then));
    }

    fn put_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece, to: LentMemory) {
        self.put_piece(link, transfer, piece, to);
    }
}
