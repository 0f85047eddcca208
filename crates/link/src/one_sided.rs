//! One-sided operations (RDMA read and write) of a link.
//!
//! See [`causeway_transport::OneSided`]. On a link without such cards nothing is registered, so that nothing
//! is exposed.

use std::os::fd::BorrowedFd;

use causeway_transport::staging::Piece;
use causeway_transport::{DeviceMemory, DeviceUse, LinkError, NotRegistered, OnComplete};
use causeway_wire::remote_region::RemoteRegion;

use crate::link::Link;

impl Link {
    fn cannot(&self) -> LinkError {
        LinkError::NotWithThisTransport(self.kind())
    }

    /// Whether network cards read and write memory by themselves, so that it makes sense to register some.
    pub fn is_one_sided(&self) -> bool {
        self.rdma().is_some()
    }

    /// Makes memory of the program known to the card: transfers from it are not copied, and it can be
    /// exposed.
    ///
    /// # Safety
    /// The memory must stay mapped until it has been [forgotten](Self::forget) or the link has been dropped,
    /// and nobody may rely on its bytes while it is exposed for writing.
    pub unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), NotRegistered> {
        let rdma = self.rdma().ok_or(NotRegistered::NotRdma(self.kind()))?;
        // SAFETY: the caller keeps the memory mapped until it is forgotten or the link is dropped.
        unsafe { rdma.register(start, length) }
    }

    /// The card does not reach the memory any more that was registered from here on. Nothing may be exposed
    /// of it, or on its way.
    pub fn forget(&self, start: *mut u8) {
        if let Some(rdma) = self.rdma() {
            rdma.forget(start);
        }
    }

    /// Makes device memory known to the card: by a buffer that stands for it, and the offset of `address` in
    /// that, or else by the address alone.
    ///
    /// # Safety
    /// The memory must stay allocated as long as the result lives.
    pub unsafe fn register_device(
        &self,
        buffer: Option<(BorrowedFd<'_>, u64)>,
        address: u64,
        length: usize,
        usage: DeviceUse,
    ) -> Result<DeviceMemory, NotRegistered> {
        let rdma = self.rdma().ok_or(NotRegistered::NotRdma(self.kind()))?;
        // SAFETY: the caller keeps the memory allocated as long as the result lives.
        unsafe { rdma.register_device(buffer, address, length, usage) }
    }

    /// Why there is less registered memory for transfers than there should be, as a sentence without its full
    /// stop.
    pub fn shortage(&self) -> Option<&str> {
        self.rdma()?.shortage()
    }

    /// Whether all of this memory is registered.
    pub fn knows(&self, start: *const u8, length: usize) -> bool {
        self.rdma().is_some_and(|rdma| rdma.knows(start, length))
    }

    /// Exposes memory for a transfer that the peer will put there; nothing where it is not registered.
    pub fn expose_for_write(&self, start: *const u8, length: usize) -> Option<RemoteRegion> {
        self.rdma()?.expose_for_write(start, length)
    }

    /// Exposes memory to the peer, which reads it; nothing where it is not registered. `guard` keeps the
    /// bytes as they are, and is dropped when the peer has read them or the link has ended.
    pub fn expose_for_read(
        &self,
        start: *const u8,
        length: usize,
        guard: impl Send + 'static,
    ) -> Option<RemoteRegion> {
        self.rdma()?.expose_for_read(start, length, Box::new(guard))
    }

    /// Exposes device memory to the peer, which reads it; nothing where the bytes do not lie in that memory.
    /// The memory must have been registered for that. `guard` is as above.
    pub fn expose_device(
        &self,
        memory: &DeviceMemory,
        address: u64,
        length: usize,
        guard: impl Send + 'static,
    ) -> Option<RemoteRegion> {
        memory.slice(address, length)?;
        Some(self.rdma()?.expose_device(memory, address, length, Box::new(guard)))
    }

    /// Takes memory back that was exposed for reading, because the peer will never hear of it.
    pub fn recall(&self, memory: RemoteRegion) {
        if let Some(rdma) = self.rdma() {
            rdma.recall(memory);
        }
    }

    /// Exposes a filled piece to the peer, which reads it in place; it is released where the transport
    /// has no cards.
    pub fn expose_piece(&self, piece: Piece) -> Result<RemoteRegion, Piece> {
        match self.rdma() {
            Some(rdma) => Ok(rdma.expose_piece(piece)),
            None => Err(piece),
        }
    }

    /// Reads memory that the peer has exposed into device memory, and returns it. The bytes must be free
    /// to be written until `then` has run, which gets an error where they do not lie in that memory.
    pub fn read_to_device(
        &self,
        from: RemoteRegion,
        into: &DeviceMemory,
        address: u64,
        length: usize,
        then: OnComplete,
    ) {
        match (self.rdma(), into.slice(address, length)) {
            (Some(rdma), Some(slice)) => rdma.read_to_device(self.shared(), from, slice, into.held(then)),
            _ => then(Err(self.cannot())),
        }
    }

    /// Reads memory that the peer has exposed to where no card can write; it is not released by that.
    /// Blocks.
    ///
    /// # Safety
    /// `length` bytes must be writable at `into`.
    pub unsafe fn read_to_host(
        &self,
        from: RemoteRegion,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError> {
        let rdma = self.rdma().ok_or_else(|| self.cannot())?;
        // SAFETY: the caller has `length` bytes writable at `into`.
        unsafe { rdma.read_to_host(self.shared(), from, into, length) }
    }

    /// Gives memory back that the peer has exposed for reading.
    pub fn decline(&self, memory: RemoteRegion) {
        if let Some(rdma) = self.rdma() {
            rdma.decline(memory);
        }
    }

    /// Writes a whole transfer from device memory to memory that the peer has exposed for it. The bytes must
    /// stay as they are until `then` has run, which gets an error where they do not lie in that memory.
    pub fn put_from_device(
        &self,
        transfer: u64,
        from: &DeviceMemory,
        address: u64,
        length: usize,
        to: RemoteRegion,
        then: OnComplete,
    ) {
        match (self.rdma(), from.slice(address, length)) {
            (Some(rdma), Some(slice)) => {
                rdma.put_from_device(self.shared(), transfer, slice, to, from.held(then));
            }
            _ => then(Err(self.cannot())),
        }
    }

    /// Sends device memory as a whole transfer through the slots of a piece that stays unfilled, whose length
    /// counts. The bytes must stay as they are until `then` has run, which gets an error where they do not
    /// lie in that memory.
    pub fn send_from_device(
        &self,
        transfer: u64,
        from: &DeviceMemory,
        address: u64,
        piece: Piece,
        then: OnComplete,
    ) {
        match (self.rdma(), from.slice(address, piece.len())) {
            (Some(rdma), Some(slice)) => {
                rdma.send_from_device(self.shared(), transfer, slice, piece, from.held(then));
            }
            _ => then(Err(self.cannot())),
        }
    }

    /// Writes a filled piece of this link to memory that the peer has exposed for its transfer.
    pub fn put_piece(&self, transfer: u64, piece: Piece, to: RemoteRegion) -> Result<(), LinkError> {
        self.shared().check()?;
        let rdma = self.rdma().ok_or_else(|| self.cannot())?;
        rdma.put_piece(self.shared(), transfer, piece, to);
        Ok(())
    }
}
