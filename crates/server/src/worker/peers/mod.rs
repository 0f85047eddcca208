//! Copies between the devices of two servers, whose workers move the bytes without the client.
//!
//! The client asks the source's worker for a *ticket* and has the destination's worker connect with it; so each pair of
//! workers has a link of its own, encrypted where the server demands a key. The client *offers* the source of a copy, which
//! is all that the other worker may read, and puts the copy into a stream of the destination's worker. When the stream
//! gets there, that worker reads the offer piece by piece, several at a time, and writes each to the device when it
//! has come. The stream goes on when the last one is there.
//!
//! | Module        | Question it answers                                             |
//! |---------------|-----------------------------------------------------------------|
//! | `source`      | What may another worker read, and how does it get it?             |
//! | `destination` | What is read when, and when does the stream go on?                |

mod destination;
mod source;

use super::engine::{Engine, Head};
use super::pool::Pool;
use crate::broker::PeerCaller;
use causeway_api::calls::{peer_connect, peer_offer};
use causeway_api::handle::{Context, Handle, Native, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};
use causeway_api::types::PeerTicket;
use causeway_fabric::{ConnectOptions, Key, Link, Target, connect_peer, threads};
use causeway_gpu::CuResult;
use causeway_gpu::objects::Translate as _;
use causeway_wire::codec::Encode;
use causeway_wire::handshake::{LaneToken, SessionId};
use destination::Reader;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use source::{Offer, Offered, Reading};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Lanes that may wait for the connection that carries their link's messages. The broker lets no more come with a ticket than a
/// link has lanes.
const MOST_EARLY: usize = 256;

/// A worker's part in copies between servers.
pub struct Peers {
    /// What other workers may read, by the client's numbers.
    offers: Mutex<FxHashMap<u64, Offered>>,
    /// The workers of which this one reads, by the client's numbers.
    readers: Mutex<FxHashMap<u64, Arc<Reader>>>,
    /// Links by which other workers read, by their tickets.
    links: Mutex<Vec<(LaneToken, Link)>>,
    /// By context: the stream in which what was read is written to the device.
    writing: Mutex<FxHashMap<u64, Native<Stream>>>,
    /// The one thread that takes each copy's next step.
    steps: Pool,
    is_expecting: AtomicBool,
}

impl Default for Peers {
    fn default() -> Self {
        Self {
            offers: Mutex::default(),
            readers: Mutex::default(),
            links: Mutex::default(),
            writing: Mutex::default(),
            steps: Pool::new("causeway-peers", 1),
            is_expecting: AtomicBool::new(false),
        }
    }
}

impl Peers {
    /// Ends all links to other workers.
    pub fn close(&self) {
        self.links.lock().iter().for_each(|(_, link)| link.close());
        self.readers.lock().values().for_each(|reader| reader.link().close());
    }

    /// Forgets a context that is about to end, and the streams in it with it.
    pub fn context_ends(&self, context: Handle<Context>) {
        self.writing.lock().remove(&context.value());
        self.offers.lock().retain(|_, offered| !offered.is_of(context));
    }
}

impl Engine {
    /// Gives the client a ticket for the worker of another server.
    pub(super) fn give_ticket(self: &Arc<Self>, head: Head) {
        let engine = Arc::clone(self);
        // The broker is asked.
        self.aside.run(move || {
            engine.expect_callers();
            match engine.exchange.ticket() {
                Some((session, ticket)) => {
                    let ticket = PeerTicket { session: session.0, secret: ticket.0 };
                    engine.answer_with(head, |out| ticket.encode(out));
                }
                None => engine.answer(head, Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM), &[]),
            }
        });
    }

    /// Starts the thread that takes in connections of other workers.
    fn expect_callers(self: &Arc<Self>) {
        if self.peers.is_expecting.swap(true, Ordering::SeqCst) {
            return;
        }
        let (engine, callers) = (Arc::clone(self), self.exchange.callers());
        let started = threads::spawn("peers", move || {
            // The broker hands each connection over on a thread of its own, so a lane may come before the link that it is for.
            let mut early: Vec<PeerCaller> = Vec::new();
            for caller in callers {
                let mut links = engine.peers.links.lock();
                let known = links.iter().find(|(ticket, _)| *ticket == caller.ticket).map(|(_, link)| link);
                match (known, caller.number) {
                    (Some(link), 1..) => link.attach_lane(caller.connection),
                    (None, 0) => match Link::accepted(caller.connection) {
                        Ok((link, receiver)) => {
                            source::serve(&engine, &link, receiver);
                            early
                                .extract_if(.., |lane| lane.ticket == caller.ticket)
                                .for_each(|lane| link.attach_lane(lane.connection));
                            links.push((caller.ticket, link));
                        }
                        Err(cause) => tracing::error!("another server's worker cannot be served: {cause}"),
                    },
                    (None, 1..) if early.len() < MOST_EARLY => early.push(caller),
                    _ => tracing::warn!("another server's worker opened a connection out of turn"),
                }
            }
        });
        if let Err(cause) = started {
            tracing::error!("workers of other servers cannot be served: {cause}");
        }
    }

    /// Connects to the worker of another server, and tells the client how that went.
    pub(super) fn connect_to_peer(self: &Arc<Self>, head: Head, request: &peer_connect<'_>) {
        let target = Target {
            host: request.host.to_owned(),
            port: u16::try_from(request.port).unwrap_or_default(),
            // Which one it is does not matter: the ticket takes its place.
            key: request.encrypted.then(Key::generate),
        };
        let (engine, peer) = (Arc::clone(self), request.peer);
        let (session, ticket) = (SessionId(request.ticket.session), LaneToken(request.ticket.secret));
        self.aside.run(move || {
            let trouble = match connect_peer(&target, session, ticket, &ConnectOptions::default()) {
                Ok((link, receiver)) => {
                    tracing::info!("copies come from the server at {target} via {}", link.via());
                    let reader = Reader::start(&engine, link, receiver);
                    engine.peers.readers.lock().insert(peer, reader);
                    String::new()
                }
                Err(cause) => {
                    tracing::warn!("no way for copies from another server: {cause}");
                    cause.to_string()
                }
            };
            engine.answer_with(head, |out| trouble.encode(out));
        });
    }

    /// Lets whoever knows the offer's number read a place, in the order of a stream that waits for nothing. Readings that
    /// came before the offer go on, also where it cannot be had.
    pub(super) fn offer_to_peer(&self, head: Head, request: &peer_offer) -> CuResult<()> {
        let offer = request.source.natives(&self.objects).and_then(|place| {
            let stream = self.objects.native(request.stream)?;
            Ok(Offer { context: head.context, place, stream })
        });
        let offered = offer.map_or_else(Offered::Refused, Offered::Here);
        let before = self.peers.offers.lock().insert(request.offer, offered);
        if let Some(Offered::Awaited(readings)) = before {
            self.peers.steps.run(move || readings.into_iter().for_each(Reading::go_on));
        }
        offer.map(drop)
    }

    /// The stream in which what comes from other workers is written in a context, which must be current.
    fn writing_stream(&self, context: Handle<Context>) -> CuResult<Native<Stream>> {
        let mut streams = self.peers.writing.lock();
        if let Some(stream) = streams.get(&context.value()) {
            return Ok(*stream);
        }
        let stream = self.gpu.stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING.0, 0)?;
        streams.insert(context.value(), stream);
        Ok(stream)
    }
}
