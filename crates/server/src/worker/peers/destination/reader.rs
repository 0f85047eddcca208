//! Reader: read requests to another worker, dispatch of its responses, and the fair queue of the copies that
//! read from it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_api::sys::CUresult;
use causeway_gpu::in_flight::HostMemory;
use causeway_gpu::{CuResult, Staging};
use causeway_link::{
    Counters, DescriptorError, Destination, DeviceMemory, Lease, Link, LinkError, LinkEvents, Receiver,
};
use causeway_pipeline::Piece;
use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::message::{Messages, PeerMessage};
use causeway_wire::remote_region::RemoteRegion;
use rustc_hash::FxHashMap;

use crate::locks::{Mutex, rank};
use crate::worker::arena::Arena;
use crate::worker::peers::gpudirect::Descriptors;
use crate::worker::pool::Pool;
use crate::worker::rdma::GpuDirect;
use crate::worker::session::Session;

/// A worker of another server, of which this one reads.
pub struct Reader {
    session: Arc<Session>,
    pub(super) link: Link,
    /// Memory shared with it, where the link has any.
    pub(super) arena: Option<Arc<Arena>>,
    /// Device memory that the link's card reaches, where it has one.
    pub(super) direct: Option<GpuDirect>,
    /// The one thread that takes each copy's next step.
    event_loop: Arc<Pool>,
    next_transfer: AtomicU64,
    /// Which pieces were asked for, by the numbers of the transfers that bring them.
    outstanding: Mutex<rank::Leaf, FxHashMap<u64, OutstandingRead>>,
    queue: Mutex<rank::Leaf, FairQueue>,
    /// Device memory that it exports.
    exported: Descriptors,
}

/// What a copy asks for.
pub(super) struct ReadRequest {
    /// The copy.
    pub(super) asker: Arc<dyn Asker>,
    /// The piece.
    pub(super) piece: Piece,
    /// Where the card may put it: the memory, the first byte's address, and bytes.
    pub(super) by_rdma: Option<(DeviceMemory, u64, usize)>,
}

/// What the link tells the reader.
struct Events(Arc<Reader>);

impl LinkEvents for Events {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let read = self.0.outstanding.lock().remove(&transfer)?;
        match self.0.session.gpu().staging(read.piece.bytes()) {
            Ok(staging) if staging.len() as u64 == total => Some(read.expect(staging)),
            Ok(_) => {
                read.end(Err(CUresult::CUDA_ERROR_UNKNOWN));
                None
            }
            Err(status) => {
                read.end(Err(status));
                None
            }
        }
    }

    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        let Some(read) = self.0.outstanding.lock().remove(&transfer) else { return Err(lease) };
        read.end(Ok(Arrived::Leased(lease)));
        Ok(())
    }

    fn allocation(&self, number: u64, allocation: Result<OwnedFd, DescriptorError>) {
        if !self.0.exported.arrive(number, allocation) {
            tracing::warn!("a worker of another server exported memory that was not requested");
            self.0.close();
        }
    }

    fn lost(&self, cause: &LinkError) {
        tracing::warn!("the link to another server is lost: {cause}");
        let outstanding = core::mem::take(&mut *self.0.outstanding.lock());
        outstanding.into_values().for_each(|read| read.end(Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)));
    }
}

impl Reader {
    /// Begins to listen to what the other worker says. `direct` is GPUDirect for the link, where it has any.
    pub fn start(
        session: &Arc<Session>,
        event_loop: &Arc<Pool>,
        link: Link,
        mut receiver: Receiver,
        direct: Option<GpuDirect>,
    ) -> Arc<Self> {
        let reader = Arc::new(Self {
            session: Arc::clone(session),
            event_loop: Arc::clone(event_loop),
            arena: link.regions().map(Arena::new),
            link,
            direct,
            next_transfer: AtomicU64::new(1),
            outstanding: Mutex::default(),
            queue: Mutex::default(),
            exported: Descriptors::default(),
        });
        reader.link.start(Arc::new(Events(Arc::clone(&reader))));
        let listener = Arc::clone(&reader);
        let started = threads::spawn("peer", move || {
            while let Ok(body) = receiver.recv() {
                for message in Messages::<PeerMessage>::new(body) {
                    match message {
                        Ok(PeerMessage::Failed { transfer, status }) => {
                            let failed = listener.outstanding.lock().remove(&transfer);
                            if let Some(failed) = failed {
                                failed.end(Err(CUresult(status)));
                            }
                        }
                        Ok(PeerMessage::Region { transfer, memory }) if listener.fetch(transfer, memory) => {}
                        _ => {
                            tracing::warn!("malformed message from a worker of another server");
                            listener.close();
                            return;
                        }
                    }
                }
            }
        });
        if let Err(cause) = started {
            tracing::error!("cannot receive from a worker of another server: {cause}");
            reader.close();
        }
        reader
    }

    /// Has the card fetch a transfer; false where it was not asked for so.
    fn fetch(&self, transfer: u64, memory: RemoteRegion) -> bool {
        let read = self.outstanding.lock().remove(&transfer);
        read.is_some_and(|read| read.fetch(&self.link, memory).is_some())
    }

    /// Ends the link; nothing more comes of what was asked for.
    pub fn close(&self) {
        let Counters { transfer_bytes_received: all, direct_bytes_received: direct, .. } =
            self.link.counters();
        tracing::info!("received {all} bytes from another server, {direct} of them by GPUDirect");
        self.link.close();
        let outstanding = core::mem::take(&mut *self.outstanding.lock());
        outstanding.into_values().for_each(|read| read.end(Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)));
    }

    /// Asks for a piece, for a copy that hears of it when it has come or never will.
    ///
    /// # Errors
    /// When the link is lost and nobody hears of the piece.
    pub(super) fn ask(&self, offer: u64, at: [u64; 3], size: [u64; 3], pending: ReadRequest) -> CuResult<()> {
        let ReadRequest { asker, piece, by_rdma } = pending;
        let transfer = self.next_transfer.fetch_add(1, Ordering::Relaxed);
        let message = PeerMessage::Read { offer, at, size, transfer, by_rdma: by_rdma.is_some() };
        let read = OutstandingRead { asker, piece, by_rdma, event_loop: Arc::clone(&self.event_loop) };
        self.outstanding.lock().insert(transfer, read);
        let sent = self.link.send(|out| message.encode(out));
        // Whoever notices the loss of the link ends what is outstanding by then.
        if sent.is_err() && self.outstanding.lock().remove(&transfer).is_some() {
            return Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE);
        }
        Ok(())
    }

    /// Lets a copy begin to read, now or when another one has ended.
    pub(super) fn enqueue(&self, copy: Begin) {
        let begins = self.queue.lock().take(copy);
        if let Some(begin) = begins {
            begin();
        }
    }

    /// A copy has ended: the next one's turn has come.
    pub(super) fn finish_copy(&self) {
        let next = self.queue.lock().end();
        if let Some(next) = next {
            self.event_loop.run(next);
        }
    }

    /// What the other worker has exported and nobody has taken yet.
    pub fn exported(&self) -> &Descriptors {
        &self.exported
    }
}

/// Copies that read of one worker at a time; others whose streams have come to them wait. It bounds the
/// memory that both sides need.
const MAX_ACTIVE_READS: usize = 4;

/// What begins a copy's reading.
pub(super) type Begin = Box<dyn FnOnce() + Send>;

/// Whose turn it is to read.
#[derive(Default)]
pub(super) struct FairQueue {
    reading: usize,
    waiting: VecDeque<Begin>,
}

impl FairQueue {
    /// A copy wants to read: it is released where its turn has come, and waits otherwise.
    pub(super) fn take(&mut self, copy: Begin) -> Option<Begin> {
        if self.reading >= MAX_ACTIVE_READS {
            self.waiting.push_back(copy);
            return None;
        }
        self.reading += 1;
        Some(copy)
    }

    /// A copy has ended: the next one's turn has come, if one waits.
    pub(super) fn end(&mut self) -> Option<Begin> {
        let next = self.waiting.pop_front();
        self.reading -= usize::from(next.is_none());
        next
    }
}

/// Who has asked for a piece: a copy.
pub(super) trait Asker: Send + Sync {
    /// A piece has come, or never will.
    fn arrived(self: Arc<Self>, piece: Piece, outcome: CuResult<Arrived>);
    /// The card has put a piece into the device's memory, or never will.
    fn fetched(self: Arc<Self>, outcome: Result<(), LinkError>);
}

/// A piece that was asked for.
pub(super) struct OutstandingRead {
    pub(super) asker: Arc<dyn Asker>,
    pub(super) piece: Piece,
    /// Where the card may put it: the memory, the first byte's address, and bytes.
    pub(super) by_rdma: Option<(DeviceMemory, u64, usize)>,
    /// The thread on which its asker hears of it.
    pub(super) event_loop: Arc<Pool>,
}

/// The bytes of a piece.
pub(super) enum Arrived {
    /// In memory of this process.
    Staged(Staging),
    /// In memory shared with the other worker.
    Leased(Lease),
}

// SAFETY: staging owns its memory, and a lease keeps its own, until they are dropped.
unsafe impl HostMemory for Arrived {
    fn address(&self) -> *const u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Leased(lease) => lease.as_ptr(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Leased(lease) => lease.len(),
        }
    }
}

impl OutstandingRead {
    /// Where its bytes go when they come in parts.
    pub(super) fn expect(self, staging: Staging) -> Destination {
        let (start, length) = (staging.as_ptr(), staging.len());
        let arrived = move |outcome: Result<(), _>| {
            let outcome = outcome.map_err(|_| CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE);
            self.end(outcome.map(|()| Arrived::Staged(staging)));
        };
        // SAFETY: the memory belongs to the staging, which the callback owns until it has run.
        unsafe { Destination::raw(start, length, arrived) }
    }

    /// Its bytes have come, or never will.
    pub(super) fn end(self, outcome: CuResult<Arrived>) {
        let Self { asker, piece, event_loop, .. } = self;
        event_loop.run(move || asker.arrived(piece, outcome));
    }

    /// Has the card fetch its bytes from where they lie in the other worker's memory; nothing where it was
    /// not asked for so.
    pub(super) fn fetch(self, link: &Link, memory: RemoteRegion) -> Option<()> {
        let Self { asker, by_rdma, event_loop, .. } = self;
        let (device, address, length) = by_rdma?;
        let then = Box::new(move |outcome: Result<(), LinkError>| {
            event_loop.run(move || asker.fetched(outcome));
        });
        link.read_to_device(memory, &device, address, length, then);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn so_many_read_and_the_others_follow_in_order() {
        let (mut queue, last) = (FairQueue::default(), Arc::new(AtomicUsize::new(0)));
        let copy = |number: usize| -> Begin {
            let last = Arc::clone(&last);
            Box::new(move || last.store(number, Ordering::Relaxed))
        };
        let began = (1..=MAX_ACTIVE_READS + 2).filter_map(|number| queue.take(copy(number))).count();
        assert_eq!(began, MAX_ACTIVE_READS);
        for number in [MAX_ACTIVE_READS + 1, MAX_ACTIVE_READS + 2] {
            queue.end().expect("one waits")();
            assert_eq!(last.load(Ordering::Relaxed), number);
        }
        assert!((0..MAX_ACTIVE_READS).all(|_| queue.end().is_none()));
        assert!(queue.take(copy(0)).is_some());
    }
}
