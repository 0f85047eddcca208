//! One-sided interface of transports with RDMA.
//!
//! Memory is *registered* with the cards once. Transfers whose bytes lie there are not copied, and it can be
//! *exposed* for one copy: the peer's card writes it, or reads it, and says so. A transport without such
//! cards does not implement this, and callers that need it use [`Memory::one_sided`](crate::Memory::one_sided)
//! first.

use core::fmt;
use std::error::Error as StdError;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_pipeline::TransportKind;
use causeway_wire::remote_region::RemoteRegion;
use thiserror::Error;

use crate::error::LinkError;
use crate::sending::BufferGuard;
use crate::shared::Shared;
use crate::staging::Piece;

/// Why memory is not known to a card.
#[derive(Debug, Error)]
pub enum NotRegistered {
    /// The transport of the link has no cards.
    #[error("memory is registered only with network cards, and this session uses {0}")]
    NotRdma(TransportKind),
    /// The card, or the kernel on its behalf, refuses.
    #[error("{0}")]
    Refused(#[source] Box<dyn StdError + Send + Sync>),
}

impl NotRegistered {
    /// The card, or the kernel on its behalf, refuses.
    pub fn refused(cause: impl StdError + Send + Sync + 'static) -> Self {
        Self::Refused(Box::new(cause))
    }
}

/// What follows the end of a copy. It runs once, on a thread of the link or the one that ends it, and must be
/// short.
pub type OnComplete = Box<dyn FnOnce(Result<(), LinkError>) + Send>;

/// What the cards of a link do with device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceUse {
    /// This side's card reads and writes it, by its own requests alone.
    Own,
    /// This side's card reads it, and the peer's does where it was exposed ([`OneSided::expose_device`]).
    ExposedForRead,
}

/// Bytes in memory of this side that the card knows.
#[derive(Debug, Clone, Copy)]
pub struct RegionSlice {
    /// The first byte.
    pub address: u64,
    /// The key by which this side's requests name the registration.
    pub key: u32,
    /// How many there are.
    pub length: usize,
}

/// Device memory that the card of a link knows. Copies from and to it hold it until they are over.
#[derive(Clone)]
pub struct DeviceMemory(Arc<Registered>);

struct Registered {
    address: u64,
    length: u64,
    local_key: u32,
    remote_key: u32,
    /// What keeps the registration.
    _region: Box<dyn Send + Sync>,
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registered { address, length, .. } = *self.0;
        f.debug_struct("DeviceMemory").field("address", &address).field("length", &length).finish()
    }
}

impl DeviceMemory {
    /// Memory that is registered as long as `region` lives, and the keys of that registration: this side's
    /// and the peer's.
    pub fn new(
        address: u64,
        length: u64,
        (local_key, remote_key): (u32, u32),
        region: impl Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Registered { address, length, local_key, remote_key, _region: Box::new(region) }))
    }

    /// The key by which the peer's requests name the registration.
    pub fn remote_key(&self) -> u32 {
        self.0.remote_key
    }

    /// Bytes of it, if they lie in it.
    pub fn slice(&self, address: u64, length: usize) -> Option<RegionSlice> {
        let offset = address.checked_sub(self.0.address)?;
        let is_within = offset <= self.0.length && length as u64 <= self.0.length - offset;
        is_within.then_some(RegionSlice { address, key: self.0.local_key, length })
    }

    /// `then`, with the memory held until it is called.
    pub fn held(&self, then: OnComplete) -> OnComplete {
        let held = self.clone();
        Box::new(move |outcome| {
            then(outcome);
            drop(held);
        })
    }
}

/// Memory at both ends that network cards read and write by themselves.
pub trait OneSided: Send + Sync {
    /// Registers memory of this side's owner: transfers from it are not copied, and it can be exposed. What
    /// may not be written is registered for being read.
    ///
    /// # Safety
    /// The memory must stay mapped until it has been [forgotten](Self::forget) or the link has been dropped,
    /// and nobody may rely on its bytes while it is exposed for writing.
    unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), NotRegistered>;

    /// Takes the registration of memory back: no card reaches it any more. Nothing may be exposed of it, or
    /// on its way.
    fn forget(&self, start: *mut u8);

    /// Whether all of this memory is registered.
    fn knows(&self, start: *const u8, length: usize) -> bool;

    /// Registers device memory: by a buffer that stands for it, and the offset of `address` in that, or else
    /// by the address alone.
    ///
    /// # Safety
    /// The memory must stay allocated as long as the result lives.
    unsafe fn register_device(
        &self,
        buffer: Option<(BorrowedFd<'_>, u64)>,
        address: u64,
        length: usize,
        usage: DeviceUse,
    ) -> Result<DeviceMemory, NotRegistered>;

    /// Why there is less registered memory for transfers than there should be, as a sentence without its full
    /// stop.
    fn shortage(&self) -> Option<&str>;

    /// Exposes memory for a transfer that the peer will put there; nothing where it is not registered.
    fn expose_for_write(&self, start: *const u8, length: usize) -> Option<RemoteRegion>;

    /// Exposes memory to the peer, which reads it; nothing where it is not registered. `guard` keeps the
    /// bytes as they are, and is dropped when the peer has read them or the link has ended.
    fn expose_for_read(&self, start: *const u8, length: usize, guard: BufferGuard) -> Option<RemoteRegion>;

    /// Exposes device memory to the peer, which reads it. The bytes must lie in `memory`, which must have
    /// been registered for that. `guard` is as above.
    fn expose_device(
        &self,
        memory: &DeviceMemory,
        address: u64,
        length: usize,
        guard: BufferGuard,
    ) -> RemoteRegion;

    /// Exposes a filled piece to the peer, which reads it in place; it is free again when the peer has.
    fn expose_piece(&self, piece: Piece) -> RemoteRegion;

    /// Takes memory back that was exposed for reading, because the peer will never hear of it.
    fn recall(&self, memory: RemoteRegion);

    /// Reads memory that the peer has exposed into device memory, and returns it. The bytes must be free
    /// to be written until `then` has run.
    fn read_to_device(&self, link: &Arc<Shared>, from: RemoteRegion, into: RegionSlice, then: OnComplete);

    /// Reads memory that the peer has exposed to where no card can write; it is not released by that.
    /// Blocks.
    ///
    /// # Safety
    /// `length` bytes must be writable at `into`.
    unsafe fn read_to_host(
        &self,
        link: &Arc<Shared>,
        from: RemoteRegion,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError>;

    /// Gives memory back that the peer has exposed for reading.
    fn decline(&self, memory: RemoteRegion);

    /// Writes a whole transfer from device memory to memory that the peer has exposed for it. The bytes must
    /// stay as they are until `then` has run.
    fn put_from_device(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        from: RegionSlice,
        to: RemoteRegion,
        then: OnComplete,
    );

    /// Sends device memory as a whole transfer through the slots of a piece that stays unfilled, whose length
    /// counts. The bytes must stay as they are until `then` has run.
    fn send_from_device(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        from: RegionSlice,
        piece: Piece,
        then: OnComplete,
    );

    /// Writes a filled piece of this link to memory that the peer has exposed for its transfer.
    fn put_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece, to: RemoteRegion);
}
