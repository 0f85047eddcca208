//! Connecting to a receiver, on a thread: within the host where its sockets are in reach, else over TCP.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_sync::descriptors::above_stdio;
use causeway_sync::threads;

use super::hello::{self, GREETING_BYTES, Hello, PROOF_BYTES};
use super::names;
use super::stream::{Arrived, Stream, random};
use crate::engine::LaneSocket;
use crate::error::NetError;
use crate::handle::{Handle, Secret};
use crate::settings::Settings;

/// How long an address may take to respond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a listener may take to respond.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// After how long an attempt is forgotten that NCCL has not asked for.
const ABANDONED_AFTER: Duration = Duration::from_secs(120);

/// Outcome of an attempt; none where there is none yet.
type Outcome = Arc<Mutex<Option<Result<Arrived, NetError>>>>;

/// An attempt to connect.
struct Attempt {
    outcome: Outcome,
    polled_at: Instant,
}

fn attempts() -> MutexGuard<'static, HashMap<Secret, Attempt>> {
    static ATTEMPTS: LazyLock<Mutex<HashMap<Secret, Attempt>>> = LazyLock::new(Mutex::default);
    ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to a receiver. None where that is not done yet: then it is to be called again, and goes on. Each secret is
/// one receiver's, so that the handle says which attempt is meant.
///
/// # Errors
/// Why the receiver cannot be reached.
pub fn connect(handle: &Handle, settings: &Settings) -> Result<Option<Arrived>, NetError> {
    let mut attempts = attempts();
    attempts
        .retain(|secret, attempt| *secret == handle.secret || attempt.polled_at.elapsed() < ABANDONED_AFTER);
    if let Some(attempt) = attempts.get_mut(&handle.secret) {
        attempt.polled_at = Instant::now();
        let outcome = attempt.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        if outcome.is_some() {
            attempts.remove(&handle.secret);
        }
        return outcome.transpose();
    }
    let outcome = Outcome::default();
    let attempt = Attempt { outcome: Arc::clone(&outcome), polled_at: Instant::now() };
    let (handle, settings) = (handle.clone(), settings.clone());
    let secret = handle.secret;
    threads::spawn("nccl-connect", move || {
        let arrived = connect_anywhere(&handle, &settings);
        *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrived);
    })
    .map_err(NetError::system("starting a thread"))?;
    attempts.insert(secret, attempt);
    Ok(None)
}

/// Tries what there is, the best first.
fn connect_anywhere(handle: &Handle, settings: &Settings) -> Result<Arrived, NetError> {
    let mut failures = Vec::new();
    // An abstract name and a file may be others' than the peer's: it proves what it is.
    let is_there = settings.unix && names::connect_each(&settings.folders, handle.process).next().is_some();
    if is_there {
        let next = || {
            let stream = names::connect_each(&settings.folders, handle.process).next();
            stream.map(Stream::Unix).ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
        };
        match join_all(handle, settings, next) {
            Ok(arrived) => return Ok(arrived),
            Err(error) => failures.push(format!("a Unix socket of this host ({error})")),
        }
    }
    for address in handle.addresses.iter().filter(|_| settings.tcp) {
        let address = SocketAddr::new(*address, handle.port);
        match join_all(handle, settings, || connect_tcp(address)) {
            Ok(arrived) => return Ok(arrived),
            Err(error) => failures.push(format!("{address} ({error})")),
        }
    }
    Err(NetError::Unreachable(failures.join(", ")))
}

fn connect_tcp(address: SocketAddr) -> io::Result<Stream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).and_then(above_stdio)?;
    // A port that nobody listens at may be given to the socket itself, within a host.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(Stream::Tcp(stream))
}

/// Connects all lanes at one address.
fn join_all(
    handle: &Handle,
    settings: &Settings,
    next: impl Fn() -> io::Result<Stream>,
) -> io::Result<Arrived> {
    let connection = random()?;
    let lanes = settings.lanes as u16;
    let mut peer = String::new();
    let join = |lane| {
        let stream = next()?;
        peer = stream.peer();
        join_lane(handle, connection, lane, lanes, stream)
    };
    let sockets = (0..lanes).map(join).collect::<io::Result<_>>()?;
    Ok(Arrived { sockets, peer })
}

/// Proves to belong to the connection, and hears that the listener does.
fn join_lane(
    handle: &Handle,
    connection: [u8; 16],
    lane: u16,
    lanes: u16,
    stream: Stream,
) -> io::Result<LaneSocket> {
    stream.set_timeout(HANDSHAKE_TIMEOUT)?;
    let mut greeting = [0; GREETING_BYTES];
    (&stream).read_exact(&mut greeting)?;
    let challenge = hello::challenge_of(&greeting)
        .ok_or_else(|| io::Error::other("who listens there is no network plugin of Causeway"))?;
    let hello = Hello { listener: handle.listener, connection, lane, lanes, fresh: random()? };
    let hello = hello.encode(&handle.secret, &challenge);
    (&stream).write_all(&hello)?;
    let mut response = [0; PROOF_BYTES];
    (&stream).read_exact(&mut response).map_err(|error| {
        io::Error::new(error.kind(), format!("the listener there is another one: {error}"))
    })?;
    if !hello::is_listener_proof(&response, &hello, &handle.secret, &challenge) {
        return Err(io::Error::other("who listens there does not know the secret of the connect handle"));
    }
    stream.into_lane()
}
