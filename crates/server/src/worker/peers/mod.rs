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
//! | `arrivals`    | Where does the link of another worker go on?                      |
//! | `loans`       | What do devices of one machine copy without the workers?          |

mod arrivals;
mod destination;
mod loans;
mod source;

pub use arrivals::Arrival;

use super::direct::Direct;
use super::engine::{Engine, Head};
use super::pool::Pool;
use crate::broker::{Exchange, PeerCaller};
use arrivals::{Arrivals, Step};
use causeway_access::{Endpoint, Target};
use causeway_api::calls::{peer_connect, peer_offer};
use causeway_api::handle::{Context, Handle, Native, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};
use causeway_api::types::{PeerTicket, PeerWay};
use causeway_connection::Dial;
use causeway_connection::channel::Connection;
use causeway_gpu::CuResult;
use causeway_gpu::objects::Translate as _;
use causeway_link::transport_choice::why_not_better;
use causeway_link::transports::NotJoined;
use causeway_link::{ConnectOptions, DeviceUse, Link, PeerAddress, PeerLink, Upgrade, connect_peer};
use causeway_sync::threads;
use causeway_wire::codec::Encode;
use causeway_wire::handshake::{LaneToken, Locality, SessionId};
use causeway_wire::text::Printable;
use destination::Reader;
use loans::Loan;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use source::{Offer, Offered, Reading};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Has the broker make connections, as a worker may not.
struct ByBroker {
    exchange: Arc<Exchange>,
    /// What the other server has proved of its address.
    proof: [u8; 32],
}

impl core::fmt::Debug for ByBroker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ByBroker(..)")
    }
}

impl Dial for ByBroker {
    fn dial(&self, endpoint: &Endpoint, timeout: Duration) -> io::Result<OwnedFd> {
        self.exchange.dial(endpoint, timeout, self.proof)
    }
}

/// How long one end may need for what the other end, or the client, knows to be done.
const PATIENCE: Duration = Duration::from_secs(5);

/// A worker's part in copies between servers.
pub struct Peers {
    /// What other workers may read, by the client's numbers.
    offers: Mutex<FxHashMap<u64, Offered>>,
    /// The workers of which this one reads, by the client's numbers.
    readers: Mutex<FxHashMap<u64, Arc<Reader>>>,
    /// Links by which other workers read, by their tickets.
    links: Mutex<Vec<(LaneToken, Link)>>,
    /// There is one more of them.
    link_came: Condvar,
    /// Memory of other workers' devices, by the client's numbers.
    loans: Mutex<FxHashMap<u64, Loan>>,
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
            link_came: Condvar::default(),
            loans: Mutex::default(),
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
        self.readers.lock().values().for_each(|reader| reader.close());
    }

    /// The link of the worker that has come with a ticket, or is about to.
    fn link_of(&self, ticket: LaneToken) -> Option<Link> {
        let deadline = Instant::now() + PATIENCE;
        let mut links = self.links.lock();
        loop {
            if let Some((_, link)) = links.iter().find(|(known, _)| *known == ticket) {
                return Some(link.clone());
            }
            if self.link_came.wait_until(&mut links, deadline).timed_out() {
                return None;
            }
        }
    }

    /// The worker of another server that the client knows by this number.
    fn reader(&self, peer: u64) -> CuResult<Arc<Reader>> {
        self.readers.lock().get(&peer).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Forgets a context that is about to end, and the streams in it with it.
    pub fn context_ends(&self, context: Handle<Context>) {
        self.writing.lock().remove(&context.value());
        self.offers.lock().retain(|_, offered| !offered.is_of(context));
    }
}

/// GPUDirect for a link to another worker, and in words whether there is any; nothing where the link has no cards.
fn direct(engine: &Engine, link: &Link, usage: DeviceUse) -> (Option<Direct>, String) {
    match Direct::new(link, &*engine.gpu, &engine.blocks, usage) {
        Ok(direct) => {
            let text = direct.explain();
            (Some(direct), text)
        }
        Err(_) if !link.is_one_sided() => (None, String::new()),
        Err(why) => (None, why),
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
                Some((session, ticket, proof)) => {
                    let ticket = PeerTicket { session: session.0, secret: ticket.0, proof };
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
            let mut arrivals = Arrivals::default();
            for PeerCaller { ticket, arrival } in callers {
                let step = arrivals.take(ticket, arrival);
                engine.take_peer_in(&mut arrivals, ticket, step);
            }
        });
        if let Err(cause) = started {
            tracing::error!("workers of other servers cannot be served: {cause}");
        }
    }

    /// Does what has to be done with what came of another worker.
    fn take_peer_in(
        self: &Arc<Self>,
        arrivals: &mut Arrivals<Connection, Upgrade>,
        ticket: LaneToken,
        step: Step<Connection, Upgrade>,
    ) {
        let served = match step {
            Step::Wait => return,
            Step::Refuse => return tracing::warn!("another server's worker opened a connection out of turn"),
            Step::Attach(lane) => {
                let links = self.peers.links.lock();
                if let Some((_, link)) = links.iter().find(|(known, _)| *known == ticket) {
                    link.attach_lane(lane);
                }
                return;
            }
            Step::Join(connection, upgrade) => match upgrade.accept(&connection) {
                Ok(served) => Ok(served),
                Err(NotJoined::System(error)) => Err(error),
                Err(NotJoined::Unusable(why)) => {
                    tracing::info!("another server's worker: {why}");
                    let step = arrivals.not_joined(ticket, connection);
                    return self.take_peer_in(arrivals, ticket, step);
                }
            },
            Step::Serve(connection, lanes) => Link::accepted(connection)
                .inspect(|(link, _)| lanes.into_iter().for_each(|lane| link.attach_lane(lane))),
        };
        match served {
            Ok((link, receiver)) => {
                let (direct, found) = direct(self, &link, DeviceUse::LentToRead);
                let found = if found.is_empty() { found } else { format!(", out of the device by {found}") };
                tracing::info!("another server's worker reads here via {}{found}", link.kind());
                source::serve(self, &link, receiver, direct);
                self.peers.links.lock().push((ticket, link));
                self.peers.link_came.notify_all();
            }
            Err(cause) => tracing::error!("another server's worker cannot be served: {cause}"),
        }
    }

    /// Connects to the worker of another server, and tells the client how that went.
    pub(super) fn connect_to_peer(self: &Arc<Self>, head: Head, request: &peer_connect<'_>) {
        let target = match request.address.parse::<Target>() {
            Ok(target) => Target { key: None, ..target },
            Err(cause) => {
                let way = PeerWay { via: Printable::default(), reason: cause.to_string().into() };
                return self.answer_with(head, |out| way.encode(out));
            }
        };
        let locality = Locality {
            boot_id: request.boot_id.to_owned(),
            sockets: request.sockets.lines().map(str::to_owned).collect(),
        };
        let address = PeerAddress { target, locality };
        let options = ConnectOptions {
            via: request.via.parse().unwrap_or_default(),
            verbs_in_clear: request.in_clear,
            socket_folder: std::env::var_os("CAUSEWAY_SOCKET_DIR").map(PathBuf::from),
            dialer: Some(Arc::new(ByBroker {
                exchange: Arc::clone(&self.exchange),
                proof: request.ticket.proof,
            })),
            ..ConnectOptions::default()
        };
        let (engine, peer) = (Arc::clone(self), request.peer);
        let (session, ticket) = (SessionId(request.ticket.session), LaneToken(request.ticket.secret));
        self.aside.run(move || {
            let way = match connect_peer(&address, session, ticket, &options) {
                Ok(PeerLink { link, receiver, reasons }) => {
                    let via = link.kind();
                    let reason = why_not_better(via, &reasons);
                    tracing::info!("copies come from the server at {} via {via}{reason}", address.target);
                    let (direct, found) = direct(&engine, &link, DeviceUse::Own);
                    let found =
                        if found.is_empty() { found } else { format!("; into the device by {found}") };
                    let reason = format!("{reason}{found}");
                    let reader = Reader::start(&engine, link, receiver, direct);
                    engine.peers.readers.lock().insert(peer, reader);
                    PeerWay { via: via.to_string().into(), reason: reason.into() }
                }
                Err(cause) => {
                    tracing::warn!("no way for copies from another server: {cause}");
                    PeerWay { via: Printable::default(), reason: cause.to_string().into() }
                }
            };
            engine.answer_with(head, |out| way.encode(out));
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
