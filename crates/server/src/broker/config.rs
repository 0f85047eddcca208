//! Configuration of the broker, and its validation.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use causeway_access::{Key, VsockAddress};
use causeway_sandbox::SandboxRequest;
use causeway_wire::handshake::CommandTable;

use super::access::{Access, AllowedUsers};
use super::dial::PeerRange;
use super::metrics::Page;
use crate::back_end::GpuChoice;
use crate::heartbeat::{HeartbeatTimeouts, HungWorker};
use crate::protocol::messages::{KeepaliveSeconds, ReleaseTimes};

/// Where module images are kept between sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// The folder; it is made if it is not there.
    pub folder: PathBuf,
    /// The most bytes that all images may take.
    pub capacity: u64,
}

/// The most sessions of one peer unless another number is given: more than the programs of one machine have,
/// and a small part of what a server can have.
pub const DEFAULT_SESSIONS_PER_PEER: usize = 256;

/// What a broker is started with.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// Where to listen over TCP, if at all; port 0 takes any free port.
    pub listen: Option<SocketAddr>,
    /// Where to listen for virtual machines of this host, or for the host of this one, if at all.
    pub vsock: Option<VsockAddress>,
    /// What callers over TCP must prove.
    pub access: Access,
    /// The file with the clients that have keys of their own, if there may be any.
    pub clients: Option<PathBuf>,
    /// Where it is written who has used the server and who was refused, if anywhere.
    pub audit_log: Option<PathBuf>,
    /// Whether callers over TCP may ask for a link in the clear when they have proved that they hold the key.
    pub clear: bool,
    /// A Unix socket at which this host's programs reach the server, if there is to be one that is known
    /// before: a path, or `@` and an abstract name.
    pub socket: Option<String>,
    /// Who may use the server at its Unix sockets, beside its own user.
    pub allowed: AllowedUsers,
    /// Where monitoring systems read what happens here, if anywhere; port 0 takes any free port.
    pub metrics: Option<SocketAddr>,
    /// Whether metrics name open sessions and their owners.
    pub metrics_sessions: bool,
    /// Adds what else metrics are to have that name clients and jobs.
    pub further_metrics: Option<fn(&mut Page)>,
    /// The program that is started as a worker.
    pub worker_program: PathBuf,
    /// Its arguments; it must call [`worker_main`](crate::worker_main).
    pub worker_arguments: Vec<OsString>,
    /// Which GPU the workers work with.
    pub gpu: GpuChoice,
    /// The devices that it shows, as the driver takes them; what the environment leaves if not given.
    pub devices: Option<String>,
    /// Where module images are kept between sessions, if they are.
    pub cache: Option<CacheConfig>,
    /// Whether a worker is kept ready for the next client.
    pub spare_worker: bool,
    /// The commands that clients may send.
    pub commands: CommandTable,
    /// Other servers that the broker connects to for workers, beside those that hold the same key and have
    /// proved their address.
    pub peers: Vec<PeerRange>,
    /// How long a caller may take to prove who it is.
    pub proof_timeout: Duration,
    /// How long a caller may take to prove who it is and say what it wants.
    pub handshake_timeout: Duration,
    /// How many callers from the network may be doing that at once; for more the oldest give way. A quarter
    /// as many may at sockets of this host.
    pub max_handshakes: usize,
    /// The most sessions; as many as there are descriptors for, 4096 at most, if not given.
    pub max_sessions: Option<usize>,
    /// The most sessions of one peer.
    pub max_sessions_per_peer: usize,
    /// How long a worker may be silent, or at one command, and what happens then.
    pub heartbeat: HeartbeatTimeouts,
    /// How long a client, or another server's worker, may be silent.
    pub keepalive: KeepaliveSeconds,
    /// When idle sessions' device memory is released, and how long it may take to come back.
    pub release: ReleaseTimes,
    /// How long a worker may take to end after its client has gone.
    pub disconnect_grace: Duration,
    /// The most bulk lanes of a session.
    pub max_lanes: u32,
    /// A folder for a socket that clients of this host reach; one that only this user can enter if not given.
    pub socket_folder: Option<PathBuf>,
    /// What workers may do.
    pub sandbox: SandboxRequest,
}

impl BrokerConfig {
    /// Nowhere to listen yet, a key that nobody has been told, this program as the worker, and the limits
    /// that are right nearly always.
    pub fn new(commands: CommandTable) -> Self {
        Self {
            listen: None,
            vsock: None,
            access: Access::Key(Key::generate()),
            clients: None,
            audit_log: None,
            clear: false,
            socket: None,
            allowed: AllowedUsers::default(),
            metrics: None,
            metrics_sessions: false,
            further_metrics: None,
            // Also right when the program's file has been replaced meanwhile.
            worker_program: PathBuf::from("/proc/self/exe"),
            worker_arguments: vec![OsString::from("worker")],
            gpu: GpuChoice::default(),
            devices: None,
            cache: None,
            spare_worker: false,
            commands,
            peers: Vec::new(),
            proof_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(5),
            max_handshakes: 256,
            max_sessions: None,
            max_sessions_per_peer: DEFAULT_SESSIONS_PER_PEER,
            heartbeat: HeartbeatTimeouts { silent: Duration::from_secs(60), hung: HungWorker::default() },
            keepalive: KeepaliveSeconds::default(),
            release: ReleaseTimes::default(),
            disconnect_grace: Duration::from_secs(10),
            max_lanes: causeway_pipeline::MAX_LANES,
            socket_folder: None,
            sandbox: SandboxRequest::default(),
        }
    }
}
