//! Rendezvous of two processes by a name.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::facts::Facts;
use crate::board::{Board, BoardError, BoardLocations, MediumError, MediumKind, Scan, Seen};
use crate::bootstrap::{self, BootstrapError, BootstrapListener, Connection};
use crate::channels::{Channel, Missing};
use crate::cuda::{self, Driver, GpuAccess};
use crate::identity::Identity;
use crate::job::{self, Job, JobError};
use crate::pair::{ConnectedPeer, Pair};
use crate::settings::Settings;

/// Places for those who come with one word. Each takes one at random.
const RANKS: u32 = 4096;

/// How often another place is taken where somebody has the one that was drawn.
const ATTEMPTS: usize = 8;

/// Between two looks at the boards.
const LOOKS: Duration = Duration::from_millis(20);

/// How long the other process may take, once it has been seen.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why nothing can be said.
#[derive(Debug, Error)]
pub enum DoctorError {
    /// There are boards nowhere.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// There is no such place.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The system gives no random numbers or no sockets.
    #[error("the other process cannot be looked for: {0}")]
    System(#[from] std::io::Error),
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// Whether another process has come.
    pub found_peer: bool,
    /// What lies between the two.
    pub pair: Pair,
    /// Where it was looked for.
    pub looked_in: Vec<MediumKind>,
    /// Where it could not be looked for.
    pub refused: Vec<String>,
    /// What this process has.
    pub own: Facts,
    /// What the other one has, where it has said so.
    pub peer: Option<Facts>,
    /// Which channels they have, and why not the others.
    pub channels: Vec<(Channel, Result<(), Missing>)>,
}

/// Waits for another process that comes with the same word, and finds out what lies between the two.
///
/// # Errors
/// When it cannot be looked for.
pub fn rendezvous(
    word: &str,
    settings: &Settings,
    own: Facts,
    timeout: Duration,
) -> Result<Found, DoctorError> {
    let hash = blake3::derive_key("causeway comm 2026-11-26 doctor", word.as_bytes());
    let job = Job::new(core::array::from_fn(|at| hash[at]), RANKS)?;
    let board = join(&job, settings)?;
    let mut listener = BootstrapListener::open(&job, &board)?;
    let stop = listener.stopper();
    let (arrivals, arrived) = channel();
    let found = std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Some(arrival) = listener.arrival() {
                // Who cannot prove to have the word is nobody. Nobody may listen any more.
                let _ = arrival.map(|connection| arrivals.send(connection));
            }
        });
        let found = look(&job, &board, settings, own, timeout, &arrived);
        stop.stop();
        found
    });
    board.forget_names()?;
    Ok(found)
}

/// Takes a place that nobody has.
fn join(job: &Job, settings: &Settings) -> Result<Board, DoctorError> {
    let locations = BoardLocations::defaults(settings.folder.clone());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let rank = u32::from_le_bytes(job::random()?) % RANKS;
        let identity = Identity::of_this_process(settings.placement.as_ref())?;
        let board = Board::join(job, rank, 0, identity, &locations)?;
        let is_taken = |error: &MediumError| match error {
            MediumError::System { cause, .. } => cause.kind() == std::io::ErrorKind::AddrInUse,
            _ => false,
        };
        if attempt == ATTEMPTS || !board.refused().iter().any(is_taken) {
            return Ok(board);
        }
    }
}

fn look(
    job: &Job,
    board: &Board,
    settings: &Settings,
    own: Facts,
    timeout: Duration,
    arrived: &Receiver<Connection>,
) -> Found {
    let until = Instant::now() + timeout;
    let mut scan = board.scan();
    while other(&scan, board.slot().rank).is_none() && Instant::now() < until {
        std::thread::sleep(LOOKS);
        scan = board.scan();
    }
    let seen = other(&scan, board.slot().rank).and_then(|rank| scan.get(rank));
    let outcome = seen.map_or(Err(Vec::new()), |seen| connect(job, board, seen));
    let peer = outcome.as_ref().ok().and_then(|connection| exchange(connection, own, arrived));
    let pair = Pair::of(board.slot(), seen, ConnectedPeer::of(&outcome));
    let driver = Driver::loaded();
    let gpu_access = |number| driver.map_or(GpuAccess::Unseen, |driver| cuda::gpu_access(driver, 0, number));
    let ends = own.ends(&peer.unwrap_or(own), gpu_access);
    let probe = |channel: Channel| {
        let left_out = !settings.channels.contains(&channel);
        let outcome = if left_out { Err(Missing::LeftOut) } else { channel.probe(&pair, &ends) };
        (channel, outcome)
    };
    Found {
        found_peer: seen.is_some(),
        channels: Channel::ALL.map(probe).to_vec(),
        looked_in: board.media().collect(),
        refused: board.refused().iter().map(ToString::to_string).collect(),
        own,
        peer,
        pair,
    }
}

/// Reaches the other process, whose sockets come a moment later than its place on the boards.
fn connect(job: &Job, board: &Board, seen: &Seen) -> Result<Connection, Vec<BootstrapError>> {
    let until = Instant::now() + RESPONSE_TIMEOUT;
    loop {
        let outcome = bootstrap::connect(job, board.slot(), seen);
        if outcome.is_ok() || Instant::now() > until {
            return outcome;
        }
        std::thread::sleep(LOOKS);
    }
}

/// The first one that is not this process.
fn other(scan: &Scan, own: u32) -> Option<u32> {
    scan.ranks.iter().map(|seen| seen.slot.rank).find(|rank| *rank != own)
}

/// Tells the other process what this one has, and hears the same from it. So both stay until both have been
/// reached.
fn exchange(connection: &Connection, own: Facts, arrived: &Receiver<Connection>) -> Option<Facts> {
    connection.send(&own.encode(), None).ok()?;
    let theirs = arrived.recv_timeout(RESPONSE_TIMEOUT).ok()?;
    theirs.set_timeout(Some(RESPONSE_TIMEOUT)).ok()?;
    let (bytes, _) = theirs.receive().ok()??;
    Some(Facts::decode(&bytes))
}
