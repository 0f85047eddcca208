//! How a client gets a session.

mod error;
mod first_words;
mod lanes;
mod options;
mod peer;

use std::io;
use std::time::{Duration, Instant};

use causeway_wire::frame::{MAX_BODY, MAX_OPENING};
use causeway_wire::handshake::{
    Answer, ClientHello, JoinHello, LaneToken, Offer, Opening, Protection, SessionId, VERSIONS, VerbsHello,
    Welcome,
};
use causeway_wire::text::Printable;

use crate::link::{Link, Receiver};
use crate::shm::join::join;
use crate::shm::staging;
use crate::verbs;
use crate::verbs::join::chance;
use crate::via::{self, Reason, Via, ViaChoice};
use causeway_access::target::Target;
use causeway_connection::channel::Connection;
use causeway_connection::exchange::Exchange;
use causeway_connection::socket::round_trip;
use causeway_pipeline::MOST_LANES;
use causeway_pipeline::lanes::{MOST_FOR_DISTANCE, lanes_for};
use causeway_sync::awake;
use error::{misunderstood, not_via};
use first_words::{Proof, authenticate, open};
use lanes::{Purpose, lanes_asked_for};

pub use error::ConnectError;
pub(crate) use lanes::LaneDialer;
pub use options::ConnectOptions;
pub use peer::{PeerAddress, PeerLink, connect_peer};

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
    /// The shortest round trip of the connection over TCP up to now; zero where the kernel does not know.
    pub distance: Duration,
}

/// What this process says of itself in a handshake. `fingerprint` is that of the list of driver functions,
/// `environment` what the worker sets before it starts the GPU. The number of lanes is taken from
/// `CAUSEWAY_LANES` where that is a number from 1 to [`MOST_LANES`]; otherwise it is the most that
/// [`ConnectOptions::lanes_by_distance`] may make of it.
pub fn describe_process(fingerprint: u64, environment: Vec<(String, String)>) -> ClientHello {
    ClientHello {
        offer: Offer { versions: VERSIONS, fingerprint, release: env!("CARGO_PKG_VERSION").into() },
        pid: std::process::id(),
        host: Printable::from_bytes(rustix::system::uname().nodename().to_bytes()),
        program: std::env::args_os()
            .next()
            .map(|name| Printable::from_bytes(name.as_encoded_bytes()))
            .unwrap_or_default(),
        environment,
        lanes: lanes_asked_for().unwrap_or(MOST_FOR_DISTANCE),
    }
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
    let (connection, answer) =
        open(target, Proof::Key, options, MAX_BODY, |out| Opening::encode_session(&hello, out))?;
    match answer {
        Answer::Welcome(welcome) => {
            let distance = round_trip(connection.socket()).unwrap_or_default();
            let (link, receiver, tried) = establish(target, options, connection, &hello, &welcome, distance)?;
            let reasons = via::reasons(options.via, link.via(), &tried);
            // The key's proofs travel each way before the hello; without a key the hello goes with the first words.
            let keys = target.protection.needs_key().then_some("keys");
            let round_trips = ["connection"].into_iter().chain(keys).chain(["hello"]).collect();
            Ok(Session { link, receiver, welcome, reasons, round_trips, distance })
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
    distance: Duration,
) -> Result<(Link, Receiver, Vec<Reason>), ConnectError> {
    let no_thread = |cause: io::Error| ConnectError::Failed {
        target: target.to_string(),
        text: format!("no thread could be started: {cause}"),
    };
    let mut tried = Vec::new();
    if options.via.admits(Via::Shm) {
        let owner = JoinHello { session: welcome.session, token: welcome.token };
        let limit = staging::cgroup_limit();
        let allowed = |bytes| staging::client_may_use(bytes, limit);
        match join(&welcome.locality, &owner, options, allowed) {
            Ok(joined) => {
                let (link, receiver) = joined.link(&connection).map_err(no_thread)?;
                return Ok((link, receiver, tried));
            }
            Err(error) => {
                let text = via::explain_no_shm(&welcome.locality, &causeway_access::local::boot_id(), &error);
                tried.push(Reason { via: Via::Shm, text });
            }
        }
    }
    if options.via.admits(Via::Verbs) {
        match join_over_verbs(target, Proof::Key, options, &connection, welcome.session, welcome.token) {
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
        lanes = lanes.min(lanes_for(distance, awake::cores()));
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

/// Queue pairs for a granted session, or for a way between two workers, or why there are none. `token` is the session's, or the
/// ticket of the way.
fn join_over_verbs(
    target: &Target,
    proof: Proof,
    options: &ConnectOptions,
    connection: &Connection,
    session: SessionId,
    token: LaneToken,
) -> Result<verbs::join::Joined, String> {
    let local = connection.socket().local_addr().map_err(|error| error.to_string())?.ip().to_canonical();
    let chance = chance(Some(local)).map_err(|error| error.to_string())?;
    let may_be_heard = target.protection == Protection::Encrypted && chance.is_ethernet;
    if may_be_heard && options.via == ViaChoice::Auto && !options.verbs_in_clear {
        return Err("what goes over verbs is not encrypted, what goes over TCP would be, and on Ethernet others may listen; where \
                    nobody does, ask for verbs"
            .to_owned());
    }
    let (by_manager, queue_pairs, depth) = chance.wish();
    let hello = VerbsHello { session, token, by_manager, queue_pairs, depth };
    let asked = open(target, proof, options, MAX_OPENING, |out| Opening::encode_verbs(&hello, out));
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
    let (connection, answer) =
        open(target, Proof::Key, options, MAX_OPENING, |out| Opening::encode_monitor(hello, out))?;
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
        open(target, Proof::Key, options, MAX_OPENING, |out| Opening::encode_diagnosis(hello, out))?;
    match answer {
        Answer::DiagnosisReady => Ok(Exchange::new(connection)),
        Answer::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, "a diagnosis", &other)),
    }
}

/// Checks that a Causeway server answers and that both ends hold the same key, without asking for a session.
pub fn check(target: &Target, options: &ConnectOptions) -> Result<(), ConnectError> {
    let deadline = Instant::now() + options.connect_timeout;
    authenticate(target, Proof::Key, options, &[], deadline).map(drop::<Connection>)
}
