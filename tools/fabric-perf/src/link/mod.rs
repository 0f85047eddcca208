//! Measurements of the messages and the memory of Causeway's own links.
//!
//! The *initiator* takes the time, and the *responder* does what it is asked: what that is stands in the
//! messages themselves, so that it needs no state but a count of transfers. Messages are commands as a
//! program's calls are; their payload is what is counted. Transfers go into the peer's arena, where the peer
//! has them in place, as a worker has what it gives to a GPU. They come from memory that is registered with
//! the card, as perftest's do and a program's pinned memory does.

mod responder;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_connection::channel::Connection;
use causeway_link::{Lease, Link, LinkError, LinkEvents, NotRegistered, Receiver, Sending, TransferOptions};
use causeway_transport_verbs::upgrade::{VerbsCapability, chance_with};
use causeway_transport_verbs::{Settings, UpgradeError};
use causeway_wire::codec::{Decode as _, Decoder};
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::Response;
use causeway_wire::message::{ClientMessage, Command, CommandHead, Messages, begin_command};
use thiserror::Error;

pub use responder::respond;

use crate::case::{Case, Operation, Quantity, Setting};
use crate::content::digest;
use crate::trips::Trips;

/// How long each end waits for the other one until they are joined.
const JOINING: Duration = Duration::from_secs(10);

/// The number of the first transfer that goes to and fro; others have smaller ones.
const FIRST_PING: u64 = 1 << 32;

/// How long a thread looks for what comes before it sleeps: perftest's programs never sleep.
const LOOKING: Duration = Duration::from_millis(10);

/// Why a link over verbs cannot be measured.
#[derive(Debug, Error)]
pub enum LinkFailure {
    /// The two ends do not come together.
    #[error("cannot establish a link over verbs: {0}")]
    Upgrade(#[from] UpgradeError),
    /// The connections beside it fail.
    #[error("cannot open the connections for a link over verbs: {0}")]
    Connection(#[from] std::io::Error),
    /// Memory is not registered.
    #[error(transparent)]
    Register(#[from] NotRegistered),
    /// The link is lost.
    #[error("the link over verbs was lost: {0}")]
    Lost(#[from] LinkError),
    /// The other end says something else.
    #[error("unexpected reply from the other end of the link over verbs")]
    Senseless,
}

/// What a command wants of the responder; its opcode.
mod request {
    /// Nothing.
    pub const NOTHING: u16 = 0;
    /// An answer without payload.
    pub const REPLY: u16 = 1;
    /// The digest of the payload.
    pub const DIGEST: u16 = 2;
    /// As many bytes back.
    pub const RETURN: u16 = 3;
    /// Transfers that follow when this has been answered: another answer when all have come.
    pub const TRANSFERS: u16 = 4;
    /// The same, with the digest of the last one.
    pub const TRANSFER_DIGEST: u16 = 5;
    /// The same, but each is to be sent back.
    pub const TRANSFERS_BACK: u16 = 6;
}

/// A command without a wish of its own in its head: `number` is a count or a digest.
fn head(request: u16, number: u64) -> CommandHead {
    CommandHead { call: 0, thread: 0, context: number, opcode: request }
}

fn send(link: &Link, request: u16, number: u64, payload: &[u8]) -> Result<(), LinkError> {
    link.send(|out| encode(out, request, number, payload))
}

fn encode(out: &mut Vec<u8>, request: u16, number: u64, payload: &[u8]) {
    let open = begin_command(out, &head(request, number));
    out.extend_from_slice(payload);
    open.finish(out);
}

/// The settings of a link that is to be compared with queue pairs of this setting.
fn settings(setting: Setting, device: Option<&str>) -> Result<Settings, UpgradeError> {
    let by_user = Settings::from_environment()?;
    Ok(Settings {
        device: device.map(str::to_owned).or_else(|| by_user.device.clone()),
        queue_pairs: setting.queue_pairs,
        depth: setting.capacity,
        mtu: causeway_ibverbs::PathMtu::from_bytes(setting.mtu),
        poll: LOOKING,
        ..by_user
    })
}

/// What the initiator is about to do, before the other one is told.
#[derive(Debug)]
pub struct Intention {
    chance: VerbsCapability,
    /// How many transfers may be under way.
    capacity: usize,
}

impl Intention {
    /// With this setting on a device; `local` is the address of the connection to the other end.
    pub fn new(setting: Setting, device: Option<&str>, local: std::net::IpAddr) -> Result<Self, LinkFailure> {
        let chance = chance_with(settings(setting, device)?, Some(local))?;
        Ok(Self { chance, capacity: setting.queue_pairs as usize * setting.capacity as usize })
    }

    /// Whether rdma_cm is to join the queue pairs.
    pub fn by_rdma_cm(&self) -> bool {
        self.chance.parameters().0
    }

    /// Joins an end that [`respond`]s at this address.
    pub fn join(self, at: std::net::SocketAddr) -> Result<Initiator, LinkFailure> {
        let command = Connection::new(TcpStream::connect_timeout(&at, JOINING)?, None);
        let mut setup = Connection::new(TcpStream::connect_timeout(&at, JOINING)?, None);
        let body = setup.receive_handshake(MAX_OPENING, Instant::now() + JOINING);
        let body = body.map_err(|error| UpgradeError::Connection(error.to_string()))?;
        let worker = match Response::decode(&mut Decoder::new(&body)) {
            Ok(Response::Verbs(worker)) => worker,
            Ok(Response::Refused { text }) => return Err(UpgradeError::Refused(text).into()),
            _ => return Err(LinkFailure::Senseless),
        };
        let (link, receiver) = Link::new(self.chance.upgrade(setup, worker)?.parts(&command)?)?;
        let ping_pong = Arc::new(PingPong::default());
        link.start(Arc::<PingPong>::clone(&ping_pong));
        Ok(Initiator { link, receiver, ping_pong, transfers: 0, capacity: self.capacity })
    }
}

/// The end that takes the time.
pub struct Initiator {
    link: Link,
    receiver: Receiver,
    ping_pong: Arc<PingPong>,
    /// Transfers sent so far; their numbers.
    transfers: u64,
    /// How many of them may be under way.
    capacity: usize,
}

impl core::fmt::Debug for Initiator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Initiator").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Initiator {
    /// Carries one message or transfer from `source`; whether what came is what was sent.
    pub fn check(&mut self, operation: Operation, source: &[u8]) -> Result<bool, LinkFailure> {
        let received = match operation {
            Operation::Send => {
                send(&self.link, request::DIGEST, 0, source)?;
                self.reply()?
            }
            _ => {
                self.announce(request::TRANSFER_DIGEST, 1)?;
                self.transfer(source)?;
                self.reply()?
            }
        };
        Ok(received == digest(source.as_ptr(), source.len() as u64))
    }

    /// One repetition: the seconds of one message (bandwidth) or one round trip (latency).
    pub fn measure(&mut self, case: Case, source: &[u8]) -> Result<f64, LinkFailure> {
        match (case.quantity, case.operation) {
            (Quantity::Bandwidth, Operation::Send) => self.messages(case.messages(), source),
            (Quantity::Bandwidth, _) => self.transfers(case.messages(), source),
            (Quantity::Latency, Operation::Send) => self.returned_messages(case.messages(), source),
            (Quantity::Latency, _) => self.returned_transfers(case.messages(), source),
        }
    }

    fn messages(&mut self, count: u32, source: &[u8]) -> Result<f64, LinkFailure> {
        let started = Instant::now();
        for _ in 1..count {
            self.link.append(|out| encode(out, request::NOTHING, 0, source))?;
        }
        send(&self.link, request::REPLY, 0, source)?;
        self.reply()?;
        Ok(started.elapsed().as_secs_f64() / f64::from(count))
    }

    fn transfers(&mut self, count: u32, source: &[u8]) -> Result<f64, LinkFailure> {
        self.announce(request::TRANSFERS, count)?;
        let mut in_flight = VecDeque::with_capacity(self.capacity);
        let started = Instant::now();
        for _ in 0..count {
            if in_flight.len() == self.capacity {
                let first: Option<Sending> = in_flight.pop_front();
                first.map_or(Ok(()), |sending| sending.wait())?;
            }
            self.transfers += 1;
            in_flight.push_back(Source::of(source).send(&self.link, self.transfers)?);
        }
        in_flight.iter().try_for_each(Sending::wait)?;
        self.reply()?;
        Ok(started.elapsed().as_secs_f64() / f64::from(count))
    }

    fn returned_messages(&mut self, count: u32, source: &[u8]) -> Result<f64, LinkFailure> {
        let mut trips = Trips::begin();
        for _ in 0..count {
            send(&self.link, request::RETURN, 0, source)?;
            self.reply()?;
            trips.one_more();
        }
        Ok(trips.median())
    }

    fn returned_transfers(&mut self, count: u32, source: &[u8]) -> Result<f64, LinkFailure> {
        self.announce(request::TRANSFERS_BACK, count)?;
        self.ping_pong.begin(&self.link, count, source)?;
        // The last one that comes back is followed by word of it.
        self.reply()?;
        Ok(self.ping_pong.end().ok_or(LinkFailure::Senseless)?.median())
    }

    /// Says that transfers follow, and waits until the other end knows: they overtake messages.
    fn announce(&mut self, request: u16, count: u32) -> Result<(), LinkFailure> {
        send(&self.link, request, count.into(), &[])?;
        self.reply().map(drop)
    }

    fn transfer(&mut self, source: &[u8]) -> Result<(), LinkError> {
        self.transfers += 1;
        Source::of(source).send(&self.link, self.transfers)?.wait()
    }

    /// Makes memory known to the card, from which transfers will come.
    ///
    /// # Safety
    /// It must stay mapped as long as this lives.
    pub unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), LinkFailure> {
        // SAFETY: the caller keeps the memory mapped as long as this lives; nothing of it is exposed.
        Ok(unsafe { self.link.register(start, length) }?)
    }

    /// Waits for the next command of the other end: the number in its head.
    fn reply(&mut self) -> Result<u64, LinkFailure> {
        match Messages::<ClientMessage>::new(self.receiver.recv()?).next() {
            Some(Ok(ClientMessage::Command(Command { context, .. }))) => Ok(context),
            _ => Err(LinkFailure::Senseless),
        }
    }
}

/// Memory from which transfers come. Nobody writes to it as long as a link is measured.
#[derive(Clone, Copy)]
struct Source {
    start: *const u8,
    length: usize,
}

// SAFETY: the memory is read only, by whichever thread.
unsafe impl Send for Source {}

impl Source {
    fn of(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr(), length: bytes.len() }
    }

    /// Begins a transfer of it, which is under way until the result is dropped.
    fn send(self, link: &Link, number: u64) -> Result<Sending, LinkError> {
        // SAFETY: nobody writes to what is sent as long as the link is measured, and it outlives the link.
        unsafe { link.begin_transfer(number, self.start, self.length, TransferOptions::default()) }
    }
}

/// A transfer that goes to and fro; the thread that finds it come back sends it again.
#[derive(Default)]
struct PingPong(Mutex<Option<Rounds>>);

struct Rounds {
    link: Link,
    source: Source,
    left: u32,
    trips: Trips,
    /// Transfers whose ends may have come, but have not been waited for: who does that looks for completions,
    /// and must not be the one who has just found one.
    in_flight: Vec<Sending>,
}

impl PingPong {
    fn rounds(&self) -> MutexGuard<'_, Option<Rounds>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, link: &Link, count: u32, bytes: &[u8]) -> Result<(), LinkError> {
        let source = Source::of(bytes);
        let (trips, in_flight) = (Trips::begin(), Vec::new());
        *self.rounds() = Some(Rounds { link: link.clone(), source, left: count, trips, in_flight });
        self.resume(link, source, count)
    }

    /// Sends the transfer again, or says that it has come back for the last time. Without the lock: a link
    /// that is lost meanwhile tells this very one.
    fn resume(&self, link: &Link, source: Source, left: u32) -> Result<(), LinkError> {
        if left == 0 {
            return send(link, request::REPLY, 0, &[]);
        }
        let sent = source.send(link, FIRST_PING + u64::from(left))?;
        if let Some(rounds) = &mut *self.rounds() {
            rounds.in_flight.push(sent);
        }
        Ok(())
    }

    /// Ends the rounds; their round trips.
    fn end(&self) -> Option<Trips> {
        let rounds = self.rounds().take();
        rounds.map(|rounds| rounds.trips)
    }
}

impl LinkEvents for PingPong {
    fn open_in_place(&self, _transfer: u64, lease: Lease) -> Result<(), Lease> {
        drop(lease);
        let next = self.rounds().as_mut().map(|rounds| {
            rounds.trips.one_more();
            rounds.left = rounds.left.saturating_sub(1);
            (rounds.link.clone(), rounds.source, rounds.left)
        });
        if let Some((link, source, left)) = next
            && self.resume(&link, source, left).is_err()
        {
            link.close();
        }
        Ok(())
    }

    fn lost(&self, _cause: &LinkError) {
        self.end();
    }
}
