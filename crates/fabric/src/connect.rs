//! How a client gets a session.

mod peer;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use causeway_wire::codec::Decoder;
use causeway_wire::frame::{MAX_BODY, MAX_OPENING};
use causeway_wire::handshake::{
    Answer, ClientHello, JoinHello, LaneHello, LaneToken, Offer, Opening, PREFACE_SIZE, PeerHello, Preface,
    PrefaceAnswer, SessionId, VERSIONS, VerbsHello, Welcome,
};
use thiserror::Error;

use crate::awake;
use crate::exchange::Exchange;
use crate::link::{Link, Receiver};
use crate::shm::join::join;
use crate::shm::staging;
use crate::target::Target;
use crate::tcp::channel::{Connection, HandshakeReadError, handshake_frame};
use crate::tcp::noise::{Handshake, MESSAGE_SIZE};
use crate::tcp::socket::{DialError, dial, round_trip};
use crate::verbs::{self, join::chance};
use crate::via::{self, Reason, Via, ViaChoice};

pub use peer::{PeerAddress, PeerLink, connect_peer};

/// Bulk lanes that a client opens at least unless `CAUSEWAY_LANES` says otherwise. Measured over TCP on a machine
/// with an H200, 1 / 2 / 4 / 8 lanes carry 6.9 / 12.9 / 24.6 / 39.0 GB/s; a lane costs a thread at each end.
pub const DEFAULT_LANES: u32 = 4;

/// The same where there are cores for that many threads.
const LANES_OF_MANY_CORES: u32 = 8;

/// How many lanes a client with so many cores opens at least.
fn least_lanes(cores: usize) -> u32 {
    if cores >= LANES_OF_MANY_CORES as usize { LANES_OF_MANY_CORES } else { DEFAULT_LANES }
}

/// The most lanes a session may have.
pub const MOST_LANES: u32 = 32;

/// The most lanes that a session opens because its network is long.
const MOST_FOR_DISTANCE: u32 = 16;

/// The round trip that one more lane is opened for. The kernel keeps up to 4 MiB under way on a connection (the
/// third number of `net.ipv4.tcp_wmem`), and fills two thirds of it with data, so that a lane carries 2.7 MiB in each
/// round trip: 2.2 GB/s at this one, and with [`DEFAULT_LANES`] 10 Gbit/s up to 8 ms.
const A_LANE_EACH: Duration = Duration::from_micros(1250);

/// How many lanes keep a network full whose round trip is this long: what is under way must grow with it.
fn lanes_for(round_trip: Duration, cores: usize) -> u32 {
    let wanted = round_trip.as_micros().div_ceil(A_LANE_EACH.as_micros());
    (wanted.min(MOST_FOR_DISTANCE.into()) as u32).max(least_lanes(cores))
}

/// How long a client waits for what.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// For the TCP connection.
    pub connect_timeout: Duration,
    /// For the server's answer, which comes after its worker has started the GPU.
    pub answer_timeout: Duration,
    /// Open as many lanes as the length of the network asks for, not all that were granted.
    pub lanes_by_distance: bool,
    /// Which module the session goes over.
    pub via: ViaChoice,
    /// A folder in which the server's sockets may be, besides where the server says.
    pub socket_folder: Option<PathBuf>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            lanes_by_distance: lanes_asked_for().is_none(),
            via: ViaChoice::Auto,
            socket_folder: None,
        }
    }
}

/// A session as the client gets it.
#[derive(Debug)]
pub struct Session {
    /// For sending; [`Link::start`] opens the bulk lanes.
    pub link: Link,
    /// For the one thread that receives.
    pub receiver: Receiver,
    /// What the server said.
    pub welcome: Welcome,
    /// The round trips that it took, each by what it was for.
    pub round_trips: Vec<&'static str>,
    /// Why the modules that are not in use are not.
    pub reasons: Vec<Reason>,
}

/// Why a client got no session.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// There is no TCP connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// Another kind of server listens there.
    #[error("what listens at {target} is no Causeway server ({found}): is the port right?")]
    NotCauseway {
        /// The server.
        target: String,
        /// What it said.
        found: String,
    },
    /// The server says no.
    #[error("the server at {target} refused the session: {text}")]
    Refused {
        /// The server.
        target: String,
        /// The server's own sentence.
        text: String,
    },
    /// The connection ended in the middle of the handshake.
    #[error("the server at {target} ended the connection during the handshake: its log says why")]
    Ended {
        /// The server.
        target: String,
    },
    /// The handshake took too long.
    #[error(
        "the server at {target} accepted the connection but did not answer within {seconds:.0} s: is it \
         overloaded or stopped?"
    )]
    Silent {
        /// The server.
        target: String,
        /// How long was waited.
        seconds: f64,
    },
    /// Both ends must hold the key.
    #[error(
        "the server at {target} could not prove that it holds the key: somebody may be in between, or the \
         key is another server's"
    )]
    ServerNotAuthentic {
        /// The server.
        target: String,
    },
    /// The module that was asked for cannot be had.
    #[error("{target} cannot be reached via {via}: {text}")]
    Via {
        /// The server.
        target: String,
        /// The module.
        via: Via,
        /// Why not.
        text: String,
    },
    /// Something else.
    #[error("the handshake with {target} failed: {text}")]
    Failed {
        /// The server.
        target: String,
        /// What happened.
        text: String,
    },
}

/// What this process says of itself in a handshake. `fingerprint` is that of the list of driver functions,
/// `environment` what the worker sets before it starts the GPU. The number of lanes is taken from
/// `CAUSEWAY_LANES` where that is a number from 1 to [`MOST_LANES`]; otherwise it is the most that
/// [`ConnectOptions::lanes_by_distance`] may make of it.
pub fn describe_process(fingerprint: u64, environment: Vec<(String, String)>) -> ClientHello {
    ClientHello {
        offer: Offer { versions: VERSIONS, fingerprint, release: env!("CARGO_PKG_VERSION").to_owned() },
        pid: std::process::id(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        program: std::env::args_os()
            .next()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        environment,
        lanes: lanes_asked_for().unwrap_or(MOST_FOR_DISTANCE),
    }
}

/// What `CAUSEWAY_LANES` says, if that is a number of lanes that a session may have.
fn lanes_asked_for() -> Option<u32> {
    let lanes = std::env::var("CAUSEWAY_LANES").ok()?.parse().ok()?;
    (1..=MOST_LANES).contains(&lanes).then_some(lanes)
}

impl ConnectOptions {
    /// An error when the module that was asked for cannot be had from any server.
    pub fn check(&self, target: &Target) -> Result<(), ConnectError> {
        if self.via != ViaChoice::Only(Via::Verbs) {
            return Ok(());
        }
        chance(None).map(drop).map_err(|error| not_via(target, Via::Verbs, error.to_string()))
    }
}

fn not_via(target: &Target, via: Via, text: String) -> ConnectError {
    ConnectError::Via { target: target.to_string(), via, text }
}

/// Connects to a server and asks for a session, in one round trip after the connection is authenticated. Where the
/// server turns out to be on this host, the session goes on in shared memory; otherwise nothing more goes over
/// the network for having tried.
pub fn connect(
    target: &Target,
    hello: ClientHello,
    options: &ConnectOptions,
) -> Result<Session, ConnectError> {
    options.check(target)?;
    let (connection, answer) = open(target, options, MAX_BODY, |out| Opening::encode_session(&hello, out))?;
    match answer {
        Answer::Welcome(welcome) => {
            let (link, receiver, tried) = establish(target, options, connection, &hello, &welcome)?;
            let reasons = via::reasons(options.via, link.via(), &tried);
            // The key's proofs travel each way before the hello; without a key the hello goes with the first words.
            let keys = target.key.as_ref().map(|_| "keys");
            let round_trips = ["connection"].into_iter().chain(keys).chain(["hello"]).collect();
            Ok(Session { link, receiver, welcome, reasons, round_trips })
        }
        Answer::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, "a session", &other)),
    }
}

/// The link of a granted session, over the best module that works; and why those do not that were tried before it.
fn establish(
    target: &Target,
    options: &ConnectOptions,
    connection: Connection,
    hello: &ClientHello,
    welcome: &Welcome,
) -> Result<(Link, Receiver, Vec<Reason>), ConnectError> {
    let no_thread = |cause: io::Error| ConnectError::Failed {
        target: target.to_string(),
        text: format!("no thread could be started: {cause}"),
    };
    let mut tried = Vec::new();
    if options.via.admits(Via::Shm) {
        let proof = JoinHello { session: welcome.session, token: welcome.token };
        let limit = staging::cgroup_limit();
        let allowed = |bytes| staging::client_may_use(bytes, limit);
        match join(&welcome.locality, &proof, options.socket_folder.as_deref(), allowed) {
            Ok(joined) => {
                let (link, receiver) = joined.link(&connection).map_err(no_thread)?;
                return Ok((link, receiver, tried));
            }
            Err(error) => {
                let text = via::explain_no_shm(&welcome.locality, &via::boot_id(), &error);
                tried.push(Reason { via: Via::Shm, text });
            }
        }
    }
    if options.via.admits(Via::Verbs) {
        match join_over_verbs(target, options, &connection, welcome) {
            Ok(joined) => {
                let (link, receiver) = joined.link(&connection).map_err(no_thread)?;
                return Ok((link, receiver, tried));
            }
            Err(text) => tried.push(Reason { via: Via::Verbs, text }),
        }
    }
    if let (ViaChoice::Only(via @ (Via::Shm | Via::Verbs)), Some(reason)) =
        (options.via, tried.pop_if(|_| options.via != ViaChoice::Auto))
    {
        return Err(not_via(target, via, reason.text));
    }
    let mut lanes = welcome.lanes.min(hello.lanes).clamp(1, MOST_LANES);
    if options.lanes_by_distance {
        let length = round_trip(connection.socket()).unwrap_or_default();
        lanes = lanes.min(lanes_for(length, awake::cores()));
    }
    let lanes = LaneDialer {
        target: target.clone(),
        options: options.clone(),
        purpose: Purpose::Session { session: welcome.session, token: welcome.token },
        lanes,
    };
    let (link, receiver) = Link::dialled(connection, lanes).map_err(no_thread)?;
    Ok((link, receiver, tried))
}

/// Queue pairs for a granted session, or why there are none.
fn join_over_verbs(
    target: &Target,
    options: &ConnectOptions,
    connection: &Connection,
    welcome: &Welcome,
) -> Result<verbs::join::Joined, String> {
    let local = connection.socket().local_addr().map_err(|error| error.to_string())?.ip().to_canonical();
    let chance = chance(Some(local)).map_err(|error| error.to_string())?;
    if options.via == ViaChoice::Auto && target.key.is_some() && chance.is_ethernet {
        return Err("what goes over verbs is not encrypted, the server has a key, and on Ethernet others may listen; where \
                    nobody does, ask for verbs"
            .to_owned());
    }
    let (by_manager, queue_pairs, depth) = chance.wish();
    let hello = VerbsHello { session: welcome.session, token: welcome.token, by_manager, queue_pairs, depth };
    let asked = open(target, options, MAX_OPENING, |out| Opening::encode_verbs(&hello, out));
    let (setup, answer) = asked.map_err(|error| error.to_string())?;
    match answer {
        Answer::Verbs(worker) => chance.join(setup, worker).map_err(|error| error.to_string()),
        Answer::Refused { text } => Err(format!("the server refused it: {text}")),
        other => Err(misunderstood(target, "verbs", &other).to_string()),
    }
}

/// Connects to a server and asks for a monitoring session, which has no worker and no lanes.
pub fn connect_monitor(
    target: &Target,
    hello: &ClientHello,
    options: &ConnectOptions,
) -> Result<Exchange, ConnectError> {
    let (connection, answer) = open(target, options, MAX_OPENING, |out| Opening::encode_monitor(hello, out))?;
    match answer {
        Answer::MonitorReady => Ok(Exchange::new(connection)),
        Answer::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, "a monitoring session", &other)),
    }
}

/// Connects to a server and asks for a diagnosis: questions about the server's machine ([`causeway_wire::diagnosis`]).
pub fn connect_diagnosis(
    target: &Target,
    hello: &ClientHello,
    options: &ConnectOptions,
) -> Result<Exchange, ConnectError> {
    let (connection, answer) =
        open(target, options, MAX_OPENING, |out| Opening::encode_diagnosis(hello, out))?;
    match answer {
        Answer::DiagnosisReady => Ok(Exchange::new(connection)),
        Answer::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, "a diagnosis", &other)),
    }
}

fn misunderstood(target: &Target, asked: &str, answer: &Answer) -> ConnectError {
    let granted = match answer {
        Answer::Welcome(_) => "a session",
        Answer::LaneReady => "a bulk lane",
        Answer::MonitorReady => "a monitoring session",
        Answer::DiagnosisReady => "a diagnosis",
        Answer::SharedMemory(_) => "shared memory",
        Answer::Verbs(_) | Answer::VerbsReady => "verbs",
        Answer::Refused { .. } => "nothing",
    };
    let text = format!("it was asked for {asked} and granted {granted}");
    ConnectError::Failed { target: target.to_string(), text }
}

/// Opens the bulk lanes of a session.
#[derive(Debug)]
pub(crate) struct LaneDialer {
    target: Target,
    options: ConnectOptions,
    purpose: Purpose,
    lanes: u32,
}

/// What the lanes of a link belong to, and how that is proved.
#[derive(Debug)]
enum Purpose {
    /// A client's session.
    Session { session: SessionId, token: LaneToken },
    /// The way from another server's worker to that of this session.
    Peer { session: SessionId, ticket: LaneToken },
}

impl LaneDialer {
    /// How many lanes there are to open.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Opens one lane.
    pub(crate) fn open(&self, lane: u32) -> Result<Connection, ConnectError> {
        let encode = |out: &mut Vec<u8>| match self.purpose {
            Purpose::Session { session, token } => {
                Opening::encode_lane(&LaneHello { session, token, lane }, out);
            }
            Purpose::Peer { session, ticket } => {
                Opening::encode_peer(&PeerHello { session, ticket, connection: lane + 1 }, out);
            }
        };
        open_lane(&self.target, &self.options, "a bulk lane", encode)
    }
}

/// Opens a connection that is answered with no more than that it is taken.
fn open_lane(
    target: &Target,
    options: &ConnectOptions,
    asked: &str,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<Connection, ConnectError> {
    let (connection, answer) = open(target, options, MAX_OPENING, encode)?;
    match answer {
        Answer::LaneReady => Ok(connection),
        Answer::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, asked, &other)),
    }
}

/// Checks that a Causeway server answers and that both ends hold the same key, without asking for a session.
pub fn check(target: &Target, options: &ConnectOptions) -> Result<(), ConnectError> {
    let deadline = Instant::now() + options.connect_timeout;
    authenticate(target, options, &[], deadline).map(drop::<Connection>)
}

/// Makes a connection, authenticates it, and exchanges one message each way.
fn open(
    target: &Target,
    options: &ConnectOptions,
    limit: usize,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<(Connection, Answer), ConnectError> {
    let deadline = Instant::now() + options.answer_timeout;
    let failed = |error| explain(target, options, error);
    let message = handshake_frame(encode);
    // What is not encrypted can go with the first words, which saves a round trip.
    let early = if target.key.is_none() { message.as_slice() } else { &[] };
    let mut connection = authenticate(target, options, early, deadline)?;
    if early.is_empty() {
        connection.outgoing.send(&message).map_err(|error| failed(error.into()))?;
    }
    let body = connection.receive_handshake(limit, deadline).map_err(failed)?;
    let mut input = Decoder::new(&body);
    let answer =
        input.value::<Answer>().and_then(|answer| input.finish().map(|()| answer)).map_err(|error| {
            ConnectError::Failed {
                target: target.to_string(),
                text: format!("the server's answer is damaged: {error}"),
            }
        })?;
    Ok((connection, answer))
}

/// Makes a connection on which both ends have proved that they hold the key, where there is one. `early` is
/// sent right behind the first words, in the clear.
fn authenticate(
    target: &Target,
    options: &ConnectOptions,
    early: &[u8],
    deadline: Instant,
) -> Result<Connection, ConnectError> {
    let stream = dial(target, options.connect_timeout)?;
    let failed = |error: io::Error| explain(target, options, error.into());
    let preface = Preface { encrypted: target.key.is_some() }.to_bytes();
    let mut first = preface.to_vec();
    let mut handshake = target.key.as_ref().map(|key| Handshake::client(key, &preface));
    match &mut handshake {
        Some(handshake) => first.extend(handshake.write()),
        None => first.extend(early),
    }
    (&stream).write_all(&first).map_err(failed)?;
    let mut clear = Connection::new(stream, None);
    expect_go_on(target, &mut clear, deadline)
        .map_err(|stop| stop.or(|error| explain(target, options, error)))?;
    let Some(mut handshake) = handshake else { return Ok(clear) };
    let mut message = [0; MESSAGE_SIZE];
    clear.incoming.receive_exact(&mut message, deadline).map_err(failed)?;
    handshake.read(&message).map_err(|_| ConnectError::ServerNotAuthentic { target: target.to_string() })?;
    let stream = clear.socket().try_clone().map_err(failed)?;
    Ok(Connection::new(stream, Some(handshake.finish())))
}

/// A finished explanation, or a read error still to be explained.
enum Stop {
    Explained(ConnectError),
    Read(HandshakeReadError),
}

impl Stop {
    fn or(self, explain: impl FnOnce(HandshakeReadError) -> ConnectError) -> ConnectError {
        match self {
            Self::Explained(error) => error,
            Self::Read(error) => explain(error),
        }
    }
}

fn expect_go_on(target: &Target, connection: &mut Connection, deadline: Instant) -> Result<(), Stop> {
    let mut read = |into: &mut [u8]| {
        connection.incoming.receive_exact(into, deadline).map_err(|error| Stop::Read(error.into()))
    };
    let mut answer = [0; PREFACE_SIZE];
    read(&mut answer)?;
    match PrefaceAnswer::parse(&answer) {
        Ok(PrefaceAnswer::GoOn) => Ok(()),
        Ok(PrefaceAnswer::Refused { length }) => {
            let mut text = vec![0; usize::from(length)];
            read(&mut text)?;
            let text = String::from_utf8_lossy(&text).into_owned();
            Err(Stop::Explained(ConnectError::Refused { target: target.to_string(), text }))
        }
        Err(error) => Err(Stop::Explained(ConnectError::NotCauseway {
            target: target.to_string(),
            found: format!("it said {:?}", String::from_utf8_lossy(&error.found)),
        })),
    }
}

fn explain(target: &Target, options: &ConnectOptions, error: HandshakeReadError) -> ConnectError {
    let target = target.to_string();
    match error {
        HandshakeReadError::Io(error) => match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                ConnectError::Silent { target, seconds: options.answer_timeout.as_secs_f64() }
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted => ConnectError::Ended { target },
            _ => ConnectError::Failed { target, text: error.to_string() },
        },
        other => ConnectError::Failed { target, text: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_follow_the_length_of_the_network() {
        let lanes = |microseconds| lanes_for(Duration::from_micros(microseconds), 2);
        assert_eq!([0, 50, 5_000].map(lanes), [DEFAULT_LANES; 3]);
        assert_eq!([5_001, 10_000, 20_000, 300_000].map(lanes), [5, 8, 16, 16]);
        assert_eq!(lanes_for(Duration::ZERO, 16), 8);
    }
}
