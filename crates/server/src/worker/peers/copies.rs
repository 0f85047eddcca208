//! Copies between servers: the requests of the engine.

use super::accept::Acceptor;
use super::connect::connect;
use super::destination::{self, Reader};
use super::ipc_imports::{self, IpcImports};
use super::source::{Offer, Offers};
use crate::locks::{Mutex, rank};
use crate::worker::peers::accept::Links;
use crate::worker::pool::Pool;
use crate::worker::rdma::DeviceBlocks;
use crate::worker::session::{Head, Session};
use causeway_api::calls::{
    peer_connect, peer_copy, peer_copy_imported, peer_export, peer_import, peer_offer,
};
use causeway_api::handle::{Context, Handle, Native, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};
use causeway_api::types::PeerTicket;
use causeway_gpu::CuResult;
use causeway_gpu::objects::Translate as _;
use causeway_wire::codec::Encode;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The session's part in copies between servers.
pub struct PeerCopies {
    blocks: Arc<DeviceBlocks>,
    offers: Arc<Offers>,
    /// Links by which other workers read.
    links: Arc<Links>,
    /// The workers of which this one reads, by the client's numbers.
    readers: Readers,
    imports: IpcImports,
    /// By context: the stream in which what was read is written to the device.
    writing: Mutex<rank::Leaf, FxHashMap<u64, Native<Stream>>>,
    /// The one thread that takes each copy's next step.
    event_loop: Arc<Pool>,
    is_expecting: Arc<AtomicBool>,
}

type Readers = Arc<Mutex<rank::PeerReaders, FxHashMap<u64, Arc<Reader>>>>;

impl PeerCopies {
    /// Without any yet. `blocks` are those of device memory that cards of their links may come to reach.
    pub fn new(blocks: &Arc<DeviceBlocks>) -> Self {
        Self {
            blocks: Arc::clone(blocks),
            offers: Arc::default(),
            links: Arc::default(),
            readers: Arc::default(),
            imports: IpcImports::default(),
            writing: Mutex::default(),
            event_loop: Arc::new(Pool::new("causeway-peers", 1)),
            is_expecting: Arc::default(),
        }
    }

    /// Ends all links to other workers.
    pub fn close(&self) {
        self.links.close();
        // What they end with is told to copies, without the lock.
        let readers: Vec<_> = self.readers.lock().values().cloned().collect();
        readers.iter().for_each(|reader| reader.close());
    }

    /// Forgets a context that is about to end, and the streams in it with it.
    pub fn context_ends(&self, context: Handle<Context>) {
        self.writing.lock().remove(&context.value());
        self.offers.context_ends(context);
    }

    /// Gives the client a ticket for the worker of another server.
    pub fn issue_ticket(&self, session: &Arc<Session>, head: Head) {
        let (asker, is_expecting) = (Arc::clone(session), Arc::clone(&self.is_expecting));
        let acceptor = Acceptor {
            session: Arc::clone(session),
            blocks: Arc::clone(&self.blocks),
            offers: Arc::clone(&self.offers),
            links: Arc::clone(&self.links),
        };
        // The broker is asked.
        session.in_background(move || {
            if !is_expecting.swap(true, Ordering::SeqCst) {
                acceptor.start();
            }
            match asker.exchange().ticket() {
                Some((session, ticket, proof)) => {
                    let ticket = PeerTicket { session: session.0, secret: ticket.0, proof };
                    asker.reply_with(head, |out| ticket.encode(out));
                }
                None => asker.reply(head, Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM), &[]),
            }
        });
    }

    /// Connects to the worker of another server, and tells the client how that went.
    pub fn connect(&self, session: &Arc<Session>, head: Head, request: &peer_connect<'_>) {
        let (readers, peer) = (Arc::clone(&self.readers), request.peer);
        connect(session, &self.blocks, &self.event_loop, head, request, move |reader| {
            readers.lock().insert(peer, reader);
        });
    }

    /// Lets whoever knows the offer's number read a place, in the order of a stream that waits for nothing.
    /// Readings that came before the offer go on, also where it cannot be had.
    pub fn offer(&self, session: &Session, head: Head, request: &peer_offer) -> CuResult<()> {
        let offer = request.source.natives(session.objects()).and_then(|place| {
            let stream = session.objects().native(request.stream)?;
            Ok(Offer { context: head.context, place, stream })
        });
        self.offers.make(request.offer, offer, &self.event_loop);
        offer.map(drop)
    }

    /// Puts a copy from another worker into a stream.
    pub fn copy(&self, session: &Arc<Session>, head: Head, request: &peer_copy) -> CuResult<()> {
        let reader = self.reader(request.peer)?;
        let writing = self.writing_stream(session, head.context)?;
        destination::copy(session, &self.event_loop, reader, writing, head, request)
    }

    /// Hands an allocation to the worker that has come with a ticket.
    pub fn export(&self, session: &Arc<Session>, head: Head, request: &peer_export) -> CuResult<()> {
        ipc_imports::export(session, &self.links, head, request)
    }

    /// Maps what another worker has exported, for copies to a device.
    pub fn import(&self, session: &Arc<Session>, head: Head, request: &peer_import) -> CuResult<()> {
        let reader = self.reader(request.peer)?;
        self.imports.import(session, reader, head, request);
        Ok(())
    }

    /// Puts a copy from imported memory into a stream.
    pub fn copy_imported(&self, session: &Session, head: Head, request: &peer_copy_imported) -> CuResult<()> {
        self.imports.copy(session, head, request)
    }

    /// Ends an import; its memory stays mapped until the copies that were put into streams are done.
    pub fn release(&self, session: &Session, import: u64) {
        self.imports.release(session, import);
    }

    /// The worker of another server that the client knows by this number.
    fn reader(&self, peer: u64) -> CuResult<Arc<Reader>> {
        self.readers.lock().get(&peer).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// The stream in which what comes from other workers is written in a context, which must be current.
    fn writing_stream(&self, session: &Session, context: Handle<Context>) -> CuResult<Native<Stream>> {
        let mut streams = self.writing.lock();
        if let Some(stream) = streams.get(&context.value()) {
            return Ok(*stream);
        }
        let stream = session.gpu().stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING.0, 0)?;
        streams.insert(context.value(), stream);
        Ok(stream)
    }
}
