//! Connectivity check of two processes, which come together by a name and tell each other what they have.
//!
//! The same command runs in both of them at the same time. They look for each other as the ranks of a job do,
//! so that what is found is what such ranks would have.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::board::{Board, BoardError, BoardLocations, MediumError, MediumKind, Scan, Seen};
use crate::bootstrap::{self, BootstrapError, BootstrapListener, Connection, MESSAGE_BYTES};
use crate::channels::{Channel, Ends, Gpu, Joined, Missing, bar};
use crate::cuda::{self, Abilities, Driver, GpuAccess, GpuNumber};
use crate::identity::Identity;
use crate::job::{self, Job, JobError};
use crate::pair::{ConnectedPeer, Pair};
use crate::settings::Settings;
use crate::verbs;

/// What a process has. It fits into a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its GPU, with the number by which all processes know it; none where it has no CUDA driver that starts.
    pub gpu: Option<(Gpu, GpuNumber)>,
    /// Whether the driver is there that maps a GPU's BAR.
    pub has_gdrdrv: bool,
    /// Whether the process sees an RDMA device.
    pub has_rdma: bool,
}

impl Facts {
    /// Those of this process, whose first GPU is looked at. The driver is loaded and started for that.
    pub fn of_this_process() -> Self {
        Self::read(Path::new("/"), first_gpu())
    }

    /// The same, of a file system below another root.
    fn read(root: &Path, gpu: Option<(Gpu, GpuNumber)>) -> Self {
        Self { gpu, has_gdrdrv: bar::has_module(root), has_rdma: verbs::count_rdma_devices(root) > 0 }
    }

    fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let flag = |bit: u8, is_set: bool| u8::from(is_set) << bit;
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = flag(0, self.gpu.is_some()) | flag(1, self.has_gdrdrv) | flag(2, self.has_rdma);
        if let Some((gpu, number)) = &self.gpu {
            bytes[1] = flag(0, gpu.ipc) | flag(1, gpu.export) | flag(2, gpu.gpudirect);
            bytes[8..].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Self {
        let has = |at: usize, bit: u8| bytes[at] >> bit & 1 == 1;
        let number = u64::from_le_bytes(core::array::from_fn(|at| bytes[8 + at]));
        let gpu = Gpu { ipc: has(1, 0), export: has(1, 1), gpudirect: has(1, 2) };
        Self { gpu: has(0, 0).then_some((gpu, number)), has_gdrdrv: has(0, 1), has_rdma: has(0, 2) }
    }

    /// What two processes have, as channels ask for it. A process without a GPU is taken for one that has the
    /// other's, or one that can do everything: what is between the two is reported all the same.
    fn ends(&self, peer: &Self, reach: impl Fn(GpuNumber) -> GpuAccess) -> Ends {
        let able = Gpu { ipc: true, export: true, gpudirect: true };
        let (own, other) = (self.gpu.or(peer.gpu), peer.gpu.or(self.gpu));
        let joined = match (own, other) {
            (Some((_, one)), Some((_, two))) if one != two => match reach(two) {
                GpuAccess::Peer => Joined::Peers,
                GpuAccess::Seen(_) => Joined::ByDriver,
                GpuAccess::Unseen => Joined::Apart,
            },
            _ => Joined::SameGpu,
        };
        let both = |here: bool, there: bool, what: &str| match (here, there) {
            (true, true) => Ok(()),
            (false, false) => Err(format!("neither process has {what}")),
            (false, true) => Err(format!("the other process alone has {what}")),
            (true, false) => Err(format!("this process alone has {what}")),
        };
        Ends {
            own: Some(own.map_or(able, |(gpu, _)| gpu)),
            peer: Some(other.map_or(able, |(gpu, _)| gpu)),
            joined,
            bar: both(self.has_gdrdrv, peer.has_gdrdrv, "/dev/gdrdrv (the kernel module of GDRCOPY)"),
            rdma: both(self.has_rdma, peer.has_rdma, "an RDMA device"),
        }
    }
}

/// The first GPU, where there is a driver that starts.
fn first_gpu() -> Option<(Gpu, GpuNumber)> {
    let driver = Driver::started()?;
    let Abilities { export, gpudirect } = cuda::abilities(driver, 0);
    // No question about a device tells whether it opens handles of cudaIPC: memory is asked, when there is
    // some.
    Some((Gpu { ipc: true, export, gpudirect }, cuda::gpu_number(driver, 0)?))
}

/// Places for those who come with one word. Each takes one at random.
const RANKS: u32 = 4096;

/// How often another place is taken where somebody has the one that was drawn.
const ATTEMPTS: usize = 8;

/// Between two looks at the boards.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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
    #[error("cannot search for the other process: {0}")]
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
        std::thread::sleep(POLL_INTERVAL);
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
        std::thread::sleep(POLL_INTERVAL);
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

#[cfg(test)]
mod tests {
    use super::*;

    const NO_IPC: Gpu = Gpu { ipc: false, export: true, gpudirect: false };

    #[test]
    fn facts_survive_the_way() {
        for gpu in
            [None, Some((NO_IPC, 1 << 63)), Some((Gpu { ipc: true, export: false, gpudirect: true }, 0))]
        {
            for (has_gdrdrv, has_rdma) in [(false, true), (true, false)] {
                let facts = Facts { gpu, has_gdrdrv, has_rdma };
                assert_eq!(Facts::decode(&facts.encode()), facts);
            }
        }
    }

    #[test]
    fn devices_are_found_by_their_files() {
        let root = tempfile::tempdir().unwrap();
        let none = Facts { gpu: None, has_gdrdrv: false, has_rdma: false };
        assert_eq!(Facts::read(root.path(), None), none);
        std::fs::create_dir_all(root.path().join("sys/class/infiniband")).unwrap();
        assert_eq!(Facts::read(root.path(), None), none, "a folder without devices");
        std::fs::create_dir_all(root.path().join("sys/class/infiniband/mlx5_0")).unwrap();
        std::fs::create_dir_all(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/gdrdrv"), "").unwrap();
        assert_eq!(Facts::read(root.path(), None), Facts { has_gdrdrv: true, has_rdma: true, ..none });
    }

    #[test]
    fn two_ends_are_what_both_have() {
        let with = |gpu| Facts { gpu, has_gdrdrv: true, has_rdma: false };
        let ends = |one, two, reach| with(one).ends(&with(two), |_| reach);
        assert_eq!(ends(Some((NO_IPC, 1)), Some((NO_IPC, 1)), GpuAccess::Unseen).joined, Joined::SameGpu);
        assert_eq!(ends(Some((NO_IPC, 1)), Some((NO_IPC, 2)), GpuAccess::Peer).joined, Joined::Peers);
        assert_eq!(ends(Some((NO_IPC, 1)), Some((NO_IPC, 2)), GpuAccess::Seen(1)).joined, Joined::ByDriver);
        assert_eq!(ends(Some((NO_IPC, 1)), Some((NO_IPC, 2)), GpuAccess::Unseen).joined, Joined::Apart);
        let one_sided = ends(Some((NO_IPC, 1)), None, GpuAccess::Unseen);
        assert_eq!((one_sided.own, one_sided.peer), (Some(NO_IPC), Some(NO_IPC)));
        assert!(ends(None, None, GpuAccess::Unseen).own.unwrap().ipc);
        let here = Facts { has_rdma: true, ..with(None) };
        assert_eq!(
            here.ends(&with(None), |_| GpuAccess::Peer).rdma,
            Err("this process alone has an RDMA device".into())
        );
        assert_eq!(here.ends(&here, |_| GpuAccess::Peer).bar, Ok(()));
    }
}
