//! Memory through which transfers pass, whatever transport it belongs to: pieces that are filled, leases that
//! are read, and the regions in which they lie.

use core::ops::Deref;
use std::sync::Arc;

use causeway_memory::copy_threads;

/// What lends pieces: their slots are given up when a piece is dropped without having been sent.
pub trait SlotOwner: Send + Sync {
    /// Takes back the range of slots that begins with this one.
    fn give_up(&self, first: u32);
}

/// Whom leases are released to.
pub trait Owns: Send + Sync {
    /// The range of slots that begins with this one is not in use any more.
    fn release(&self, first: u32);
}

/// Bytes of staging memory.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    address: *mut u8,
    length: usize,
}

// SAFETY: a span gives out only its address; access to its bytes is the business of its users.
unsafe impl Send for Span {}
// SAFETY: a span gives out only its address; access to its bytes is the business of its users.
unsafe impl Sync for Span {}

impl Span {
    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.address
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether these bytes lie in it.
    pub fn holds(&self, address: *const u8, length: usize) -> bool {
        let offset = (address as usize).wrapping_sub(self.address as usize);
        offset < self.length && length <= self.length - offset
    }
}

/// A span, and whom it belongs to: the memory stays mapped as long as that lives.
struct Owned<O: ?Sized> {
    span: Span,
    owner: Arc<O>,
}

impl<O: ?Sized> core::fmt::Debug for Owned<O> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.span.fmt(f)
    }
}

/// Part of staging memory, for whoever registers it with a device. It stays mapped as long as this lives.
#[derive(Debug)]
pub struct Region(Owned<dyn Send + Sync>);

impl Region {
    /// Memory that stays mapped as long as `memory` lives.
    pub fn new(address: *mut u8, length: usize, memory: Arc<dyn Send + Sync>) -> Self {
        Self(Owned { span: Span { address, length }, owner: memory })
    }
}

impl Deref for Region {
    type Target = Span;

    #[inline]
    fn deref(&self) -> &Span {
        &self.0.span
    }
}

/// A range of slots that this side fills; its bytes are writable until it is sent. Given up when it is
/// dropped without having been sent.
#[derive(Debug)]
pub struct Piece {
    memory: Owned<dyn SlotOwner>,
    first: u32,
    is_sent: bool,
}

impl Piece {
    /// The range of slots of `owner` that begins with `first`; its bytes are at `address` as long as the
    /// owner lives.
    pub fn new(owner: Arc<dyn SlotOwner>, first: u32, address: *mut u8, length: usize) -> Self {
        Self { memory: Owned { span: Span { address, length }, owner }, first, is_sent: false }
    }

    /// Its first slot.
    #[inline]
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Its slots are the peer's from here on.
    pub fn sent(mut self) {
        self.is_sent = true;
    }

    /// Fills the piece from memory of the program, with up to `threads` threads, for a device that reads it
    /// next.
    ///
    /// # Safety
    /// As many bytes at `source` as the piece has must be readable. Other threads may write to them; then
    /// either value is taken.
    pub unsafe fn fill(&mut self, source: *const u8, threads: usize) {
        // SAFETY: the caller has as many bytes readable at `source`; the slots are ours until they are sent.
        unsafe { copy_threads::copy_nontemporal(self.as_ptr(), source, self.len(), threads) };
    }
}

impl Deref for Piece {
    type Target = Span;

    #[inline]
    fn deref(&self) -> &Span {
        &self.memory.span
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.is_sent {
            self.memory.owner.give_up(self.first);
        }
    }
}

/// A piece of a transfer as it lies in staging memory. It is released when it is dropped.
///
/// The peer can change the bytes at any moment: whoever interprets them copies them first.
#[derive(Debug)]
pub struct Lease {
    memory: Owned<dyn Owns>,
    first: u32,
}

impl Lease {
    /// The range of slots of `owner` that begins with `first`; its bytes are at `address` as long as the
    /// owner lives.
    pub fn new(owner: Arc<dyn Owns>, first: u32, address: *mut u8, length: usize) -> Self {
        Self { memory: Owned { span: Span { address, length }, owner }, first }
    }

    /// Copies the bytes to where they belong, with up to `threads` threads.
    ///
    /// # Safety
    /// As many bytes at `destination` as the lease has must be writable.
    pub unsafe fn empty_into(&self, destination: *mut u8, threads: usize) {
        // SAFETY: the caller has as many bytes writable at `destination`; the piece was checked to lie in
        // staging memory.
        unsafe { copy_threads::copy(destination, self.as_ptr(), self.len(), threads) };
    }
}

impl Deref for Lease {
    type Target = Span;

    #[inline]
    fn deref(&self) -> &Span {
        &self.memory.span
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.memory.owner.release(self.first);
    }
}
