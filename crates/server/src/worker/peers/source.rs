//! Source side of copies between servers: offers and read requests.

use crate::locks::{Mutex, rank};
use crate::worker::arena::{Arena, DownloadBuffer};
use crate::worker::pool::Pool;
use crate::worker::rdma::GpuDirect;
use crate::worker::session::Session;
use causeway_api::handle::{Context, Handle, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_gpu::in_flight::InFlight;
use causeway_gpu::{CuResult, NativeLocation, Staging};
use causeway_link::{DeviceMemory, Link, LinkError, LinkEvents, Receiver, TransferOptions};
use causeway_sync::threads;
use causeway_wire::codec::Encode;
use causeway_wire::message::{Messages, PeerMessage};
use causeway_wire::remote_region::RemoteRegion;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a peer may have asked for and not received. It asks for a quarter of that at most.
const MAX_REQUESTED_BYTES: usize = 512 << 20;

/// What a reading counts for at least.
const MIN_COUNTED_BYTES: usize = 16 << 10;

/// What is known of an offer.
enum Offered {
    /// It has come.
    Here(Offer),
    /// The client made it, and it cannot be had.
    Refused(CUresult),
    /// The other worker was faster than the client.
    Awaited(Vec<Reading>),
}

impl Offered {
    /// Whether the memory lies in a context.
    fn is_of(&self, context: Handle<Context>) -> bool {
        matches!(self, Self::Here(offer) if offer.context == context)
    }
}

/// What other workers may read, by the client's numbers.
#[derive(Default)]
pub struct Offers(Mutex<rank::Leaf, FxHashMap<u64, Offered>>);

impl Offers {
    /// The client has made an offer. Readings that came before it go on, on a thread of `event_loop`, also
    /// where it cannot be had.
    pub fn make(&self, number: u64, offer: CuResult<Offer>, event_loop: &Pool) {
        let offered = offer.map_or_else(Offered::Refused, Offered::Here);
        let before = self.0.lock().insert(number, offered);
        if let Some(Offered::Awaited(readings)) = before {
            event_loop.run(move || readings.into_iter().for_each(Reading::resume));
        }
    }

    /// Forgets what lies in a context that is about to end.
    pub fn context_ends(&self, context: Handle<Context>) {
        self.0.lock().retain(|_, offered| !offered.is_of(context));
    }
}

/// What the client lets other workers read.
#[derive(Clone, Copy)]
pub struct Offer {
    /// Whose commands put it there.
    pub context: Handle<Context>,
    /// The place.
    pub place: NativeLocation,
    /// The stream in which it is read.
    pub stream: Native<Stream>,
}

/// One worker that reads here.
struct Source {
    session: Arc<Session>,
    offers: Arc<Offers>,
    link: Link,
    /// Memory shared with it, where the link has any.
    arena: Option<Arc<Arena>>,
    /// Device memory that the link's card reaches, where it has one.
    direct: Option<GpuDirect>,
    requested: AtomicUsize,
}

/// A part of an offer that a peer wants.
struct Reading {
    source: Arc<Source>,
    offer: u64,
    at: [u64; 3],
    size: [u64; 3],
    transfer: u64,
    /// Whether the peer's card may fetch the bytes.
    by_rdma: bool,
    /// What it counts for.
    bytes: usize,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.source.requested.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A filled piece on its way to the peer.
struct Outgoing {
    reading: Reading,
    download_buffer: DownloadBuffer,
}

/// What is sent of staging, kept until it has left.
struct Leaving {
    staging: Staging,
    _reading: Reading,
}

struct Events;

impl LinkEvents for Events {
    fn lost(&self, cause: &LinkError) {
        tracing::debug!("the link of another server's worker is lost: {cause}");
    }
}

/// Serves a worker that has come with a ticket, on a thread of its own, until it goes.
pub fn serve(
    session: &Arc<Session>,
    offers: &Arc<Offers>,
    link: &Link,
    mut receiver: Receiver,
    direct: Option<GpuDirect>,
) {
    link.start(Arc::new(Events));
    let source = Arc::new(Source {
        session: Arc::clone(session),
        offers: Arc::clone(offers),
        link: link.clone(),
        arena: link.regions().map(Arena::new),
        direct,
        requested: AtomicUsize::new(0),
    });
    let started = threads::spawn("peer", move || {
        // An error says that the peer is gone.
        while let Ok(body) = receiver.recv() {
            for message in Messages::<PeerMessage>::new(body) {
                if let Err(why) = message.map_err(|cause| cause.to_string()).and_then(|it| source.take(it)) {
                    tracing::warn!("the link of another server's worker ends: {why}");
                    source.link.close();
                    return;
                }
            }
        }
    });
    if let Err(cause) = started {
        tracing::error!("cannot serve a worker of another server: {cause}");
        link.close();
    }
}

impl Source {
    /// Does what the peer says; fails when the peer does not keep to what is agreed.
    fn take(self: &Arc<Self>, message: PeerMessage) -> Result<(), String> {
        match message {
            PeerMessage::Read { offer, at, size, transfer, by_rdma } => {
                let bytes = size.into_iter().try_fold(1, u64::checked_mul);
                let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
                let before = self.requested.load(Ordering::Relaxed);
                if bytes > MAX_REQUESTED_BYTES || before > MAX_REQUESTED_BYTES {
                    return Err("it asks for more than it takes".to_owned());
                }
                // However little it asks for, a reading costs memory.
                let bytes = bytes.max(MIN_COUNTED_BYTES);
                self.requested.fetch_add(bytes, Ordering::Relaxed);
                Reading { source: Arc::clone(self), offer, at, size, transfer, by_rdma, bytes }.resume();
                Ok(())
            }
            PeerMessage::Done { offer } => {
                self.offers.0.lock().remove(&offer);
                Ok(())
            }
            PeerMessage::Failed { .. } | PeerMessage::Region { .. } => {
                Err("it was asked for nothing and answers".to_owned())
            }
        }
    }

    fn fail(&self, transfer: u64, status: CUresult) {
        // A lost link is noticed by the receiving thread.
        let _ = self.link.send(|out| PeerMessage::Failed { transfer, status: status.0 }.encode(out));
    }
}

impl Reading {
    /// Reads, or waits for the client's offer to come.
    fn resume(self) {
        let source = Arc::clone(&self.source);
        let offer = {
            let mut offers = source.offers.0.lock();
            match offers.entry(self.offer).or_insert_with(|| Offered::Awaited(Vec::new())) {
                Offered::Here(offer) => Ok(*offer),
                Offered::Refused(status) => Err(*status),
                Offered::Awaited(readings) => return readings.push(self),
            }
        };
        let transfer = self.transfer;
        if let Err(status) = offer.and_then(|offer| self.begin(&offer)) {
            source.fail(transfer, status);
        }
    }

    /// Starts to read, after which the bytes leave.
    fn begin(self, offer: &Offer) -> CuResult<()> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let part = offer.place.part(self.at, self.size).ok_or(invalid)?;
        let bytes = part.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.filter(|bytes| *bytes > 0).ok_or(invalid)?;
        let session = Arc::clone(&self.source.session);
        session.enter_context(offer.context)?;
        let direct = self.source.direct.as_ref().filter(|_| session.exchange().allows_gpudirect());
        let window = direct.and_then(|direct| direct.map_window(session.gpu(), &part));
        let reading = match window {
            Some((memory, address, length)) => match self.send_by_rdma(&memory, address, length) {
                None => return Ok(()),
                Some(reading) => reading,
            },
            None => self,
        };
        let download_buffer = match (&reading.source.arena, reading.source.link.piece(bytes)) {
            (Some(arena), Some(piece)) => {
                arena.prepare(session.gpu(), piece.as_ptr(), piece.len());
                // The stream in which it is filled waits for nothing.
                DownloadBuffer::Shared(piece, None)
            }
            _ => DownloadBuffer::Staged(session.gpu().staging(bytes)?),
        };
        let copy = InFlight::copy_from_device(session.gpu(), &part, download_buffer, offer.stream)?;
        copy.after(session.gpu(), move |outcome| match outcome {
            Ok(download_buffer) => Outgoing { reading, download_buffer }.send(),
            Err(status) => reading.source.fail(reading.transfer, status),
        })
    }
}

impl Reading {
    /// Has cards move the bytes out of the device's memory: the peer's, which puts them into its device's, or
    /// else this side's, to the peer's arena. The reading comes back where that has no room.
    fn send_by_rdma(self, memory: &DeviceMemory, address: u64, length: usize) -> Option<Self> {
        let (link, transfer) = (self.source.link.clone(), self.transfer);
        if !self.by_rdma {
            let Some(piece) = link.piece(length) else { return Some(self) };
            // A lost link is noticed by the receiving thread.
            link.send_from_device(transfer, memory, address, piece, Box::new(move |_| drop(self)));
            return None;
        }
        if let Some(region) = link.expose_device(memory, address, length, self) {
            announce_exposed(&link, transfer, region);
        }
        None
    }
}

/// Tells the peer where the bytes of a transfer lie.
fn announce_exposed(link: &Link, transfer: u64, memory: RemoteRegion) {
    // A lost link is noticed by the receiving thread; what was exposed ends with it.
    let _ = link.send(|out| PeerMessage::Region { transfer, memory }.encode(out));
}

impl Outgoing {
    fn send(self) {
        let (link, transfer) = (self.reading.source.link.clone(), self.reading.transfer);
        match self.download_buffer {
            DownloadBuffer::Shared(piece, _) if self.reading.by_rdma => {
                if let Ok(memory) = link.expose_piece(piece) {
                    announce_exposed(&link, transfer, memory);
                }
            }
            DownloadBuffer::Shared(piece, _) => {
                // As below.
                let _ = link.send_piece(transfer, piece);
            }
            DownloadBuffer::Staged(staging) => {
                let leaving = Leaving { staging, _reading: self.reading };
                let (start, length) = (leaving.staging.as_slice().as_ptr(), leaving.staging.len());
                // SAFETY: the memory belongs to the staging, which is kept and not written to. A lost link is
                // noticed by the receiving thread.
                let _ = unsafe {
                    link.post_transfer(transfer, start, length, TransferOptions::default(), leaving)
                };
            }
        }
    }
}
