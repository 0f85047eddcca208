//! What can be moved without a copy where the module has network cards that reach memory by themselves?
//!
//! Memory is [registered](Link::register) with the card once. Transfers whose bytes lie there are not copied, and it can be
//! *lent* for one copy: the peer's card writes it, or reads it, and says so. Other modules know nothing of all this: they
//! register nothing, so that nothing is lent.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_ibverbs::{MemoryRegion, RegisterError};
use causeway_wire::lent::LentMemory;
use thiserror::Error;

use super::{Link, LinkError};
use crate::staging::Piece;
use crate::verbs::one_sided::Stretch;
use crate::via::Via;

/// Why memory is not known to a card.
#[derive(Debug, Error)]
pub enum NotRegistered {
    /// The module of the link has no cards.
    #[error("memory is registered with network cards alone, and this session goes over {0}")]
    NoCard(Via),
    /// The card, or the kernel on its behalf, refuses.
    #[error(transparent)]
    Refused(#[from] RegisterError),
}

/// What follows the end of a copy. It runs once, on a thread of the link or the one that ends it, and must be short.
pub type Then = Box<dyn FnOnce(Result<(), LinkError>) + Send>;

/// What the cards of a link do with device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceUse {
    /// This side's card reads and writes it, by its own requests alone.
    Own,
    /// This side's card reads it, and the peer's does where it was [lent](Link::lend_device).
    LentToRead,
}

/// Device memory that the card of a link knows. Copies from and to it hold it until they are over.
#[derive(Debug, Clone)]
pub struct DeviceMemory(Arc<MemoryRegion>);

impl DeviceMemory {
    /// Bytes of it, if they lie in it.
    fn stretch(&self, address: u64, length: usize) -> Option<Stretch> {
        let offset = address.checked_sub(self.0.address())?;
        let is_inside = offset <= self.0.len() as u64 && length as u64 <= self.0.len() as u64 - offset;
        is_inside.then(|| Stretch::of(&self.0, address, length))
    }

    /// `then`, with the memory held until it is called.
    fn held(&self, then: Then) -> Then {
        let held = self.clone();
        Box::new(move |outcome| {
            then(outcome);
            drop(held);
        })
    }
}

impl Link {
    /// Makes memory of the program known to the card: transfers from it are not copied, and it can be lent.
    ///
    /// # Safety
    /// The memory must stay mapped until it has been [forgotten](Self::forget) or the link has been dropped, and nobody may rely
    /// on its bytes while it is lent to be written.
    pub unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), NotRegistered> {
        let cards = self.0.memory.cards().ok_or(NotRegistered::NoCard(self.via()))?;
        // SAFETY: as this function demands.
        Ok(unsafe { cards.register(start, length) }?)
    }

    /// The card does not reach the memory any more that was registered from here on. Nothing may be lent of it, or on its way.
    pub fn forget(&self, start: *mut u8) {
        if let Some(cards) = self.0.memory.cards() {
            cards.forget(start);
        }
    }

    /// Makes device memory known to the card: by a buffer that stands for it, and the offset of `address` in that, or else by
    /// the address alone.
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
        let cards = self.0.memory.cards().ok_or(NotRegistered::NoCard(self.via()))?;
        // SAFETY: as this function demands.
        let region = unsafe { cards.register_device(buffer, address, length, usage) }?;
        Ok(DeviceMemory(Arc::new(region)))
    }

    /// Why there is less registered memory for transfers than there should be, as a sentence without its full stop.
    pub fn shortage(&self) -> Option<&str> {
        self.0.memory.cards()?.shortage.as_deref()
    }

    /// Whether all of this memory is registered.
    pub fn knows(&self, start: *const u8, length: usize) -> bool {
        self.0.memory.cards().is_some_and(|cards| cards.known(start, length).is_some())
    }

    /// Lends memory for a transfer that the peer will put there; nothing where it is not registered.
    pub fn lend(&self, start: *const u8, length: usize) -> Option<LentMemory> {
        self.0.memory.cards()?.lend(start, length)
    }

    /// Lends memory to the peer, which reads it; nothing where it is not registered. `keeper` keeps the bytes as they are, and
    /// is dropped when the peer has read them or the link has ended.
    pub fn lend_to_read(
        &self,
        start: *const u8,
        length: usize,
        keeper: impl Send + 'static,
    ) -> Option<LentMemory> {
        self.0.memory.cards()?.lend_to_read(start, length, Box::new(keeper))
    }

    /// Lends device memory to the peer, which reads it; nothing where the bytes do not lie in that memory. The memory must have
    /// been registered for that. `keeper` is as above.
    pub fn lend_device(
        &self,
        memory: &DeviceMemory,
        address: u64,
        length: usize,
        keeper: impl Send + 'static,
    ) -> Option<LentMemory> {
        memory.stretch(address, length)?;
        let (key, keeper) = (memory.0.remote_key(), (memory.clone(), keeper));
        Some(self.0.memory.cards()?.lend_for_reading(address, key, length, Box::new(keeper)))
    }

    /// Takes memory back that was lent to be read, because the peer will never hear of it.
    pub fn recall(&self, memory: LentMemory) {
        if let Some(cards) = self.0.memory.cards() {
            cards.recall(memory);
        }
    }

    /// Lends a filled piece to the peer, which reads it where it lies; it is given back where the module has no cards.
    pub fn lend_piece(&self, piece: Piece) -> Result<LentMemory, Piece> {
        match self.0.memory.cards() {
            Some(cards) => Ok(cards.lend_piece(piece)),
            None => Err(piece),
        }
    }

    /// Reads memory that the peer has lent into device memory, and gives it back. The bytes must be free to be written until
    /// `then` has run, which gets an error where they do not lie in that memory.
    pub fn read_to_device(
        &self,
        from: LentMemory,
        into: &DeviceMemory,
        address: u64,
        length: usize,
        then: Then,
    ) {
        match (self.0.memory.cards(), into.stretch(address, length)) {
            (Some(cards), Some(stretch)) => cards.read(&self.0, from, stretch, true, into.held(then)),
            _ => then(Err(LinkError::NotWithThisModule(self.via()))),
        }
    }

    /// Reads memory that the peer has lent to where no card can write; it is not given back by that. Blocks.
    ///
    /// # Safety
    /// `length` bytes must be writable at `into`.
    pub unsafe fn read_to_host(
        &self,
        from: LentMemory,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError> {
        let cards = self.0.memory.cards().ok_or(LinkError::NotWithThisModule(self.via()))?;
        // SAFETY: as this function demands.
        unsafe { cards.read_by_staging(&self.0, from, into, length) }
    }

    /// Gives memory back that the peer has lent to be read.
    pub fn decline(&self, memory: LentMemory) {
        if let Some(cards) = self.0.memory.cards() {
            cards.decline(memory);
        }
    }

    /// Writes a whole transfer from device memory to memory that the peer has lent for it. The bytes must stay as they are
    /// until `then` has run, which gets an error where they do not lie in that memory.
    pub fn put_from_device(
        &self,
        transfer: u64,
        from: &DeviceMemory,
        address: u64,
        length: usize,
        to: LentMemory,
        then: Then,
    ) {
        match (self.0.memory.cards(), from.stretch(address, length)) {
            (Some(cards), Some(stretch)) => {
                cards.put(&self.0, transfer, stretch, to, true, from.held(then));
            }
            _ => then(Err(LinkError::NotWithThisModule(self.via()))),
        }
    }

    /// Sends device memory as a whole transfer through the slots of a piece that stays unfilled, whose length counts. The bytes
    /// must stay as they are until `then` has run, which gets an error where they do not lie in that memory.
    pub fn send_from_device(
        &self,
        transfer: u64,
        from: &DeviceMemory,
        address: u64,
        piece: Piece,
        then: Then,
    ) {
        match (self.0.memory.cards(), from.stretch(address, piece.len())) {
            (Some(cards), Some(stretch)) => {
                let whole = (transfer, 0, piece.len() as u64);
                cards.write_piece(&self.0, piece, stretch, whole, true, Some(from.held(then)));
            }
            _ => then(Err(LinkError::NotWithThisModule(self.via()))),
        }
    }

    /// Writes a filled piece of this link to memory that the peer has lent for its transfer.
    pub fn put_piece(&self, transfer: u64, piece: Piece, to: LentMemory) -> Result<(), LinkError> {
        self.0.check()?;
        let cards = self.0.memory.cards().ok_or(LinkError::NotWithThisModule(self.via()))?;
        cards.put_piece(&self.0, transfer, piece, to);
        Ok(())
    }
}
