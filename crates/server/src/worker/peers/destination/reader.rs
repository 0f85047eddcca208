//! Reader: read requests to another worker, and dispatch of its responses.

use super::fair_queue::{Begin, FairQueue};
use super::outstanding_read::{Arrived, Asker, OutstandingRead};
use crate::worker::arena::Arena;
use crate::worker::peers::descriptors::Descriptors;
use crate::worker::pool::Pool;
use crate::worker::rdma::GpuDirect;
use crate::worker::session::Session;
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;
use causeway_link::{
    Counters, DescriptorError, Destination, DeviceMemory, Lease, Link, LinkError, LinkEvents, Receiver,
};
use causeway_pipeline::Piece;
use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::message::{Messages, PeerMessage};
use causeway_wire::remote_region::RemoteRegion;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    outstanding: Mutex<FxHashMap<u64, OutstandingRead>>,
    queue: Mutex<FairQueue>,
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
            tracing::warn!("another server's worker exports more than anybody has asked it for");
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
                            tracing::warn!("another server's worker says something senseless");
                            listener.close();
                            return;
                        }
                    }
                }
            }
        });
        if let Err(cause) = started {
            tracing::error!("another server's worker cannot be listened to: {cause}");
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
        tracing::info!("{all} bytes came from another server, {direct} of them by GPUDirect");
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
