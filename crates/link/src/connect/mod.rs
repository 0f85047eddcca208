//! How a client gets a session.

mod establish;
mod peer;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use causeway_wire::frame::{MAX_BODY, MAX_OPENING};
use causeway_wire::handshake::{
    Abilities, ClientHello, CommandTable, Features, NewKey, Opening, OwnVersion, Response, Welcome,
};
use causeway_wire::text::Printable;

use crate::handshake::error::{ConnectError, misunderstood, not_via};
use crate::handshake::hello::{Proof, authenticate, open};
use crate::handshake::lanes::Purpose;
use crate::handshake::options::{ConnectOptions, configured_lanes, resume_seconds};
use crate::link::Link;
use crate::receiver::Receiver;
use crate::transport_choice::Reason;
use crate::transports::{Dialling, Facts, TRANSPORTS, Transport, cannot_be_had};
use causeway_access::{Invitation, Key, Target, current_user};
use causeway_config::read::PROCESS;
use causeway_config::table::{FORK, JOB};
use causeway_connection::channel::Connection;
use causeway_connection::exchange::Exchange;
use causeway_connection::socket::round_trip;
use causeway_pipeline::MAX_LANES;
use causeway_pipeline::lanes::{MAX_LANES_FOR_DISTANCE, lanes_for};
use causeway_sync::spin;
use establish::{establish, facts};

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
    /// Why the transports that are not in use are not.
    pub reasons: Vec<Reason>,
    /// The shortest round trip of the connection over TCP up to now; zero where the kernel does not know.
    pub distance: Duration,
    /// The address at which the server was reached; nothing at a Unix socket.
    pub local_address: Option<SocketAddr>,
}

/// What this process says of itself in a handshake. `commands` are those that it knows, `environment`
/// what the worker sets before it starts the GPU. The number of lanes is taken from
/// `CAUSEWAY_LANES` where it is set, which [`connect`] refuses where it makes no sense; otherwise it is the
/// most that [`ConnectOptions::lanes_by_distance`] may make of it.
pub fn describe_process(commands: CommandTable, environment: Vec<(String, String)>) -> ClientHello {
    let ours = Abilities::ours(&commands).resuming(resume_seconds());
    let may_fork = PROCESS.is_on(&FORK).unwrap_or(false);
    let features = if may_fork { ours.features.with(Features::FORKS) } else { ours.features };
    ClientHello {
        offer: OwnVersion::new(commands).offer,
        pid: std::process::id(),
        host: Printable::from_bytes(rustix::system::uname().nodename().to_bytes()),
        program: std::env::args_os()
            .next()
            .map(|name| Printable::from_bytes(name.as_encoded_bytes()))
            .unwrap_or_default(),
        environment,
        lanes: configured_lanes().ok().flatten().unwrap_or(MAX_LANES_FOR_DISTANCE),
        abilities: Abilities { features, ..ours },
        user: current_user().as_str().into(),
        job: job(),
        fork: None,
    }
}

/// The job to which this process belongs: the name that the user has given it, or the batch system and the job's number
/// there.
fn job() -> Printable {
    if let Some(name) = PROCESS.text(&JOB) {
        return name.as_str().into();
    }
    const SYSTEMS: [(&str, &str); 4] =
        [("SLURM_JOB_ID", "slurm"), ("PBS_JOBID", "pbs"), ("LSB_JOBID", "lsf"), ("CI_JOB_ID", "gitlab")];
    let found =
        SYSTEMS.into_iter().find_map(|(variable, system)| Some((std::env::var(variable).ok()?, system)));
    found.map(|(number, system)| format!("{system} {number}").into()).unwrap_or_default()
}

/// Connects to a server and asks for a session, in one round trip after the connection is authenticated.
/// Where the server turns out to be on this host, the session goes on in shared memory; otherwise nothing
/// more goes over the network for having tried.
pub fn connect(
    target: &Target,
    hello: ClientHello,
    options: &ConnectOptions,
) -> Result<Session, ConnectError> {
    connect_over(TRANSPORTS, target, hello, options)
}

/// As [`connect`], over one of these transports.
pub fn connect_over(
    table: &[&Transport],
    target: &Target,
    hello: ClientHello,
    options: &ConnectOptions,
) -> Result<Session, ConnectError> {
    admit(table, target, options)?;
    configured_lanes()?;
    let (connection, response) =
        open(target, Proof::Key, options, MAX_BODY, |out| Opening::encode_session(&hello, out))?;
    match response {
        Response::Welcome(welcome) => {
            let local_address = connection.socket().peer_addr().ok();
            let distance = round_trip(connection.socket()).unwrap_or_default();
            let mut lanes = welcome.lanes.min(hello.lanes).clamp(1, MAX_LANES);
            if options.lanes_by_distance {
                lanes = lanes.min(lanes_for(distance, spin::cores()));
            }
            let (link, receiver, reasons) = establish(
                table,
                Dialling {
                    facts: facts(target, options, &connection, &welcome.locality),
                    target,
                    options,
                    purpose: Purpose::Session { session: welcome.session, token: welcome.token },
                    lanes,
                    connection: Some(connection),
                    resume: hello.abilities.common_resume(&welcome.abilities),
                },
            )?;
            let peer_does = welcome.abilities.features.contain(Features::KEEPALIVE);
            link.keep_alive(options.keepalive, peer_does);
            // The key's proofs travel each way before the hello; without a key the hello goes with the first
            // words.
            let keys = target.protection.needs_key().then_some("keys");
            let round_trips = ["connection"].into_iter().chain(keys).chain(["hello"]).collect();
            Ok(Session { link, receiver, welcome, reasons, round_trips, distance, local_address })
        }
        Response::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, "a session", &other)),
    }
}

/// An error when the transport that was asked for cannot be had from this server, or from any. Nothing is
/// sent for that.
pub fn check_choice(target: &Target, options: &ConnectOptions) -> Result<(), ConnectError> {
    admit(TRANSPORTS, target, options)
}

fn admit(table: &[&Transport], target: &Target, options: &ConnectOptions) -> Result<(), ConnectError> {
    match cannot_be_had(table, &Facts::before(target, options)) {
        Some(Reason { kind, text }) => Err(not_via(target, kind, text)),
        None => Ok(()),
    }
}

/// Connects to a server and asks for a monitoring session, which has no worker and no lanes.
pub fn connect_monitor(
    target: &Target,
    hello: &ClientHello,
    options: &ConnectOptions,
) -> Result<Exchange, ConnectError> {
    let (connection, response) =
        open(target, Proof::Key, options, MAX_OPENING, |out| Opening::encode_monitor(hello, out))?;
    match response {
        Response::MonitorReady => Ok(Exchange::new(connection)),
        Response::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, "a monitoring session", &other)),
    }
}

/// Connects to a server and asks for a diagnosis: questions about the server's machine
/// ([`causeway_wire::diagnosis`]).
pub fn connect_diagnosis(
    target: &Target,
    hello: &ClientHello,
    options: &ConnectOptions,
) -> Result<Exchange, ConnectError> {
    let (connection, response) =
        open(target, Proof::Key, options, MAX_OPENING, |out| Opening::encode_diagnosis(hello, out))?;
    match response {
        Response::DiagnosisReady => Ok(Exchange::new(connection)),
        Response::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, "a diagnosis", &other)),
    }
}

/// Connects to a server and asks for a status session: questions about the server itself
/// ([`causeway_wire::status`]).
pub fn connect_status(
    target: &Target,
    hello: &ClientHello,
    options: &ConnectOptions,
) -> Result<Exchange, ConnectError> {
    let (connection, response) =
        open(target, Proof::Key, options, MAX_OPENING, |out| Opening::encode_status(hello, out))?;
    match response {
        Response::StatusReady => Ok(Exchange::new(connection)),
        Response::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(target, "a status session", &other)),
    }
}

/// Enrols a key at a server for the client that was invited there. Where an error does not say that the server has refused,
/// it may have enrolled the key all the same.
pub fn enrol(
    invitation: &Invitation,
    hello: &ClientHello,
    key: &Key,
    options: &ConnectOptions,
) -> Result<(), ConnectError> {
    let target = invitation.enrolment_target();
    let key = NewKey(*key.bytes());
    let (_, response) = open(&target, Proof::Invitation, options, MAX_OPENING, |out| {
        Opening::encode_enrol(hello, &key, out);
    })?;
    match response {
        Response::Enrolled => Ok(()),
        Response::Refused { text } => Err(ConnectError::Refused { target: target.to_string(), text }),
        other => Err(misunderstood(&target, "an enrolment", &other)),
    }
}

/// Checks that a Causeway server answers and that both ends hold the same key, without asking for a session.
pub fn check(target: &Target, options: &ConnectOptions) -> Result<(), ConnectError> {
    let deadline = Instant::now() + options.connect_timeout;
    authenticate(target, Proof::Key, options, &[], deadline).map(drop::<Connection>)
}
