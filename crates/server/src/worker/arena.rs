//! Arena: memory that this worker shares with a client of the same host, as the GPU knows it, and buffers that receive
//! copies from a device.
//!
//! A segment is registered with the GPU when it is first used. Where that is refused, copies go through it
//! all the same, only slower.

use crate::locks::{Mutex, rank};
use causeway_gpu::in_flight::{HostMemory, HostMemoryMut};
use causeway_gpu::{Gpu, Registration, Staging};
use causeway_link::{Lease, Piece, Region};
use causeway_memory::pages::{self, Access};
use causeway_transport::slots::SEGMENT;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The part of the client's half that may wait for commands, and the part that the GPU may hold. What comes
/// beyond is moved to memory of this process, so that a stream which stands still does not stop the client's
/// other copies.
const MAX_QUEUED: usize = 4;
const MAX_HELD_BLOCKS: usize = 2;

/// The part of this side's half that copies to the client may have from when they are put into their streams.
/// What comes beyond lands in memory of this process, and is sent through the rest of the half when its stream
/// has passed it, which no stream that stands still can fill.
const MAX_RECEIVE_BLOCKS: usize = 2;

/// The shared memory of a session.
pub struct Arena {
    uploads: Half,
    downloads: Half,
    /// Bytes of transfers from the client that wait for their commands.
    waiting: AtomicUsize,
    /// Bytes of them that the GPU may still read.
    held: AtomicUsize,
    /// Bytes of copies to the client that streams have still to pass.
    downloading: AtomicUsize,
    refused: AtomicBool,
}

struct Half {
    region: Region,
    segments: Vec<Mutex<rank::Leaf, Segment>>,
}

enum Segment {
    Unused,
    Registered(Box<dyn Registration>),
    /// The GPU does not take it.
    Refused,
}

/// Bytes that count as waiting or as held until this is dropped.
pub struct ArenaBytes {
    arena: Arc<Arena>,
    bytes: usize,
    counter: fn(&Arena) -> &AtomicUsize,
}

impl Drop for ArenaBytes {
    fn drop(&mut self) {
        (self.counter)(&self.arena).fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A transfer that lies in shared memory.
pub struct Leased {
    lease: Lease,
    _credit: ArenaBytes,
}

impl Leased {
    /// Where its bytes are. The client can change them at any moment.
    pub fn as_ptr(&self) -> *const u8 {
        self.lease.as_ptr()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lease.len()
    }

    /// Its bytes, in memory that the client does not reach.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.lease.len()];
        // SAFETY: the vector has the lease's bytes.
        unsafe { self.lease.empty_into(bytes.as_mut_ptr(), 1) };
        bytes
    }

    /// Copies its bytes.
    ///
    /// # Safety
    /// As many bytes at `destination` must be writable.
    pub unsafe fn empty_into(&self, destination: *mut u8) {
        // SAFETY: the caller has as many bytes writable at `destination` as the lease has.
        unsafe { self.lease.empty_into(destination, 1) };
    }
}

impl Half {
    fn new(region: Region) -> Self {
        let count = region.len().div_ceil(SEGMENT);
        Self { region, segments: (0..count).map(|_| Mutex::new(Segment::Unused)).collect() }
    }
}

impl Arena {
    /// The memory of a link, if it has any: for transfers to the client, and for those of the client.
    pub fn new([downloads, uploads]: [Region; 2]) -> Arc<Self> {
        Arc::new(Self {
            uploads: Half::new(uploads),
            downloads: Half::new(downloads),
            waiting: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            downloading: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
        })
    }

    /// Takes a transfer that waits for its command in place, unless too many do.
    pub fn keep_waiting(self: &Arc<Self>, lease: Lease) -> Result<Leased, Lease> {
        match self.credit(&self.uploads, lease.len(), MAX_QUEUED, |arena| &arena.waiting) {
            Some(credit) => Ok(Leased { lease, _credit: credit }),
            None => Err(lease),
        }
    }

    /// Lets the GPU have a transfer in place, unless it has too many.
    pub fn lease_for_gpu(self: &Arc<Self>, leased: Leased) -> Result<Leased, Leased> {
        match self.credit(&self.uploads, leased.len(), MAX_HELD_BLOCKS, |arena| &arena.held) {
            Some(credit) => Ok(Leased { lease: leased.lease, _credit: credit }),
            None => Err(leased),
        }
    }

    /// Lets a copy to the client have so many bytes until its stream has passed it, unless others have too
    /// many.
    pub fn lease_for_download(self: &Arc<Self>, bytes: usize) -> Option<ArenaBytes> {
        self.credit(&self.downloads, bytes, MAX_RECEIVE_BLOCKS, |arena| &arena.downloading)
    }

    fn credit(
        self: &Arc<Self>,
        half: &Half,
        bytes: usize,
        part: usize,
        counter: fn(&Self) -> &AtomicUsize,
    ) -> Option<ArenaBytes> {
        let max = half.region.len() / part;
        let counted = counter(self).fetch_add(bytes, Ordering::Relaxed);
        let credit = ArenaBytes { arena: Arc::clone(self), bytes, counter };
        (counted + bytes <= max).then_some(credit)
    }

    /// Whether the GPU holds so much that it is time to ask for some of it back.
    pub fn is_scarce(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.uploads.region.len() / (2 * MAX_HELD_BLOCKS)
    }

    /// Has the GPU, which uses nothing of it now, forget all segments.
    pub fn forget_registrations(&self) {
        for segment in self.uploads.segments.iter().chain(&self.downloads.segments) {
            let mut segment = segment.lock();
            if let Segment::Registered(_) = *segment {
                *segment = Segment::Unused;
            }
        }
    }

    /// Registers the segment in which these bytes lie with the GPU, if that has not been tried yet.
    pub fn prepare(&self, gpu: &dyn Gpu, address: *const u8, length: usize) {
        let half =
            [&self.uploads, &self.downloads].into_iter().find(|half| half.region.holds(address, length));
        let Some(Half { region, segments }) = half else { return };
        let number = (address as usize - region.as_ptr() as usize) / SEGMENT;
        let mut segment = segments[number].lock();
        match &*segment {
            Segment::Registered(registration) if registration.is_alive() => return,
            Segment::Refused => return,
            Segment::Registered(_) | Segment::Unused => {}
        }
        let start = region.as_ptr().wrapping_add(number * SEGMENT);
        let bytes = SEGMENT.min(region.len() - number * SEGMENT);
        // What is registered no more must be gone before it is registered again.
        *segment = Segment::Unused;
        pages::populate(start as usize, bytes, Access::Write);
        // SAFETY: the region keeps its memory mapped, and is dropped after its segments.
        *segment = match unsafe { gpu.register_host(start, bytes) } {
            Ok(registration) => Segment::Registered(registration),
            Err(error) => {
                if !self.refused.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        status = error.0,
                        "cannot register memory shared with the client with the GPU (is the limit of locked \
                         memory, ulimit -l, too low?); copies will be slower"
                    );
                }
                Segment::Refused
            }
        };
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        // Before the memory may go.
        self.segments.clear();
    }
}

/// Where the GPU puts what a client or another worker reads.
pub enum DownloadBuffer {
    /// In memory of this process.
    Staged(Staging),
    /// In memory shared with the reader, and what it counts for there if it may stay for long.
    Shared(Piece, Option<ArenaBytes>),
}

// SAFETY: staging owns its memory and a piece its slots, until they are dropped.
unsafe impl HostMemory for DownloadBuffer {
    fn address(&self) -> *const u8 {
        self.address_mut()
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Shared(piece, _) => piece.len(),
        }
    }
}

// SAFETY: staging owns its memory and a piece its slots, until they are dropped; nobody reads a piece before
// it is sent.
unsafe impl HostMemoryMut for DownloadBuffer {
    fn address_mut(&self) -> *mut u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Shared(piece, _) => piece.as_ptr(),
        }
    }
}
