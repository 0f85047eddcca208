//! The broker: listens, authenticates, and gives every client process a worker process of its own.
//!
//! A caller is served by one thread until it has proved who it is and said what it wants. A new session
//! gets a worker: this program started again, with the client's connection handed over as a descriptor.
//! From then on the broker only waits for the worker to end; it carries no byte of the session. Further
//! connections of the client are checked against the session's token and handed over too.
//!
//! | module | contents |
//! | --- | --- |
//! | `access` | Access control: keys for network clients, users and groups for Unix sockets |
//! | `accounting` | Accounting of a worker: as the session of its peer, or not at all |
//! | `audit` | The audit log: who has used the server for what, and who was refused, a line of JSON for each |
//! | `clients` | The clients that have keys of their own, as their file says at the moment |
//! | `enrolment` | Enrolment of invited clients' keys |
//! | `bandwidth` | Bandwidth of peers and groups: how long their sessions wait so that all of them together keep to a rate |
//! | `device_memory` | Device memory accounts: how much of it the sessions of each peer and group have, and whether they may have more |
//! | `session_clock` | Session clock: whether a session has been open, or idle, for as long as it may |
//! | `idle_release` | Idle release, the broker's part: whether the host has room for a session's device memory, and what it counts for |
//! | `exports` | Exports: memory that sessions share with each other |
//! | `dial` | Outgoing connections that the broker makes for workers |
//! | `incoming_session` | Incoming session: one that a caller brings from another server or from a file |
//! | `images` | Image cache of a session: lookup and storage of module images on disk |
//! | `config` | Configuration of the broker, and its validation |
//! | `listen` | Accept loop: handshake, and dispatch of new connections by purpose |
//! | `listeners` | Listening sockets of a broker, and the threads that accept callers at them |
//! | `hot_restart` | Hot restart: a new broker takes the place of the one that runs, and sessions go on |
//! | `local` | Unix sockets at which the broker listens on its host |
//! | `refusal` | Refusals: why a client is not admitted, as a label and as the message to it |
//! | `sessions` | Session table: running sessions, their lanes, tickets and upgrades |
//! | `spawn` | Worker process: spawning, its handles, and the environment that a client may set |
//! | `session` | Session lifecycle: from its request to the end of its worker, which `session_watch` watches |
//! | `worker_requests` | Requests of workers to the broker: tickets, connections, exports and images |
//! | `prestarted` | A worker that is ready before its client comes |
//! | `monitor` | Monitor process: supervisor, and hand-over of monitoring clients |
//! | `diagnosis` | Diagnosis processes: they report the facts of this machine to `causeway doctor` |
//! | `status` | Status requests: sessions, devices and drain, for `causeway top` and `causeway drain` |
//! | `metrics` | Metrics endpoint for Prometheus |
//! | `restore` | Session that is taken up here from its state: the state's header, and the start and end of its worker |
//! | `trial` | Trial of a session's state: a second worker takes it up before the session may end by `causeway checkpoint` |
//! | `totals` | Counters of the server since its start |
//! | `gpus` | Device status: memory, utilisation and sensors, polled from the monitor |
//! | `drain` | Drain state: no new sessions, and a deadline for those that exist |
//! | `error` | Errors of a broker's start |
//! | `ending` | Shutdown: waiting for the end of all sessions |
//! | `shared` | State shared by the broker's threads |
//! | `gpu_state` | GPU state: whether a client would get a GPU now |
//! | `inherited` | Environment variables that a worker inherits from the server |
//! | `move_state` | Progress of a session's move, as its worker says and as the caller waits for |
//! | `moves` | Moves of sessions to and from this server, for `causeway move`, `causeway checkpoint` and `causeway restore` |
//! | `session_watch` | Watch over a session's worker: what it reports, when it is killed, and how it has ended |
//! | `worker_log` | Log forwarding from workers to the server's log |
//! | `authorization` | Authorization of a conversation that lasts: whether the key that its caller has proved still counts |
//! | `forks` | Forks of sessions, from the request of the parent's program until the child's comes for its session |
//! | `unix_groups` | Unix groups of this host: what the list of clients names, and in which a local user is |
//! | `mps` | NVIDIA's MPS: shares of a GPU where the kernels of several workers run at the same time |
//! | `gpu_shares` | Shares of the GPUs: which sessions run kernels now, of those whose clients have shares |

pub mod access;
mod accounting;
mod audit;
mod authorization;
mod bandwidth;
mod clients;
mod config;
mod device_memory;
mod diagnosis;
mod dial;
mod drain;
mod ending;
mod enrolment;
mod error;
mod exports;
mod forks;
mod gpu_shares;
mod gpu_state;
mod gpus;
mod hot_restart;
mod idle_release;
mod images;
mod incoming_session;
mod inherited;
mod listen;
mod listeners;
mod local;
pub mod metrics;
mod monitor;
mod move_state;
mod moves;
mod mps;
mod prestarted;
mod refusal;
mod restore;
mod session;
mod session_clock;
mod session_watch;
mod sessions;
mod shared;
mod spawn;
mod status;
mod totals;
mod trial;
mod unix_groups;
mod worker_log;
mod worker_requests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_access::{Endpoint, Key, Target};
use causeway_sandbox::{Mode, Plan, SandboxRequest, make_device_nodes};
use causeway_wire::handshake::Protection;

pub use crate::back_end::{DeviceList, DeviceListError, GpuChoice, devices_for};
pub use crate::protocol::messages::{KeepaliveSeconds, ReleaseTimes};
pub use access::{Access, AllowedUsers};
pub use clients::read_clients;
pub use config::{BrokerConfig, CacheConfig, DEFAULT_SESSIONS_PER_PEER};
pub use dial::{BadPeerRange, PeerRange};
pub use error::StartError;
pub use hot_restart::{HandOverError, TakeOverError};

use crate::admission::{Admission, Attempts, Limits, RequestedLimits, SessionSlots, raise_limit};
use crate::back_end;
use crate::locks::Mutex;
use crate::protocol::control::Control;
use access::ServerKey;
use audit::AuditLog;
use bandwidth::Bandwidth;
use clients::AcceptedClients;
use crossbeam_channel::{Receiver, never};
use device_memory::DeviceMemory;
use drain::Drain;
use exports::ExportRegistry;
use forks::Forks;
use gpu_shares::GpuShares;
use gpu_state::GpuState;
use gpus::Gpus;
use hot_restart::{Inheritance, InheritedSockets, Relatives, follow_parent};
use listeners::{Listeners, NetworkSockets};
use local::LocalSockets;
use monitor::Monitor;
use prestarted::PrestartedWorkers;
use sessions::Sessions;
use shared::Shared;
use spawn::Spawner;
use totals::Totals;

/// How long workers get between being asked to end and being killed when the broker stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts brokers.
#[derive(Debug)]
pub struct Broker;

impl Broker {
    /// Starts listening. The broker runs on threads of this process until it is stopped or dropped.
    pub fn start(config: BrokerConfig) -> Result<RunningBroker, StartError> {
        Self::start_after(config, None)
    }

    /// Starts in place of the running broker that has started this process ([`RunningBroker::hand_over`]), and goes on
    /// itself until its sessions have ended.
    pub fn take_over(config: BrokerConfig) -> Result<RunningBroker, StartError> {
        Self::start_after(config, Some(Control::from_stdin()?))
    }

    fn start_after(config: BrokerConfig, predecessor: Option<OwnedFd>) -> Result<RunningBroker, StartError> {
        if config.listen.is_none() && config.vsock.is_none() && config.socket.is_none() {
            return Err(StartError::Nowhere);
        }
        back_end::check(config.gpu)?;
        let key = ServerKey::new(config.access.clone())?;
        let clients = AcceptedClients::new(config.clients.clone())?;
        let audit = AuditLog::new(config.audit_log.clone()).map_err(StartError::AuditLog)?;
        let requested = RequestedLimits {
            handshakes: config.max_handshakes,
            sessions: config.max_sessions,
            sessions_per_peer: config.max_sessions_per_peer,
        };
        let limits = Limits::divide(raise_limit()?, &requested)?;
        tracing::debug!(?limits, "limits of connections and sessions");
        let admission = Admission::new(limits);
        let exports = ExportRegistry::new(limits.exports, limits.exports_per_session);
        let totals = Arc::new(Totals::new());
        // A port that is taken is an error before anything is started.
        let own = || open_sockets(&config, &mut InheritedSockets::default());
        let own = predecessor.is_none().then(own).transpose()?;
        let (spawner, spawner_thread) = Spawner::start(&config, plan_sandbox(&config)?, Arc::clone(&totals))?;
        let spawner = Arc::new(spawner);
        let (monitor, monitor_thread) = Monitor::start(config.gpu, Arc::clone(&spawner))?;
        let ((network, local), relatives) = match predecessor {
            None => (own.unwrap_or_default(), Relatives::default()),
            // The other one serves until now, when little is left that can fail.
            Some(control) => {
                let mut inheritance = Inheritance::receive(control)?;
                let sockets = open_sockets(&config, &mut inheritance.sockets)?;
                (sockets, inheritance.into_relatives((&admission, &clients), &spawner, &monitor))
            }
        };
        let targets = targets(&config, network.clients(), key.current()?)?;
        let spares = PrestartedWorkers::new(Arc::clone(&spawner), config.gpu, config.spare_worker);
        let gpu = GpuState::new(config.spare_worker);
        let shared = Arc::new(Shared {
            gpu,
            config,
            key,
            clients,
            attempts: Attempts::default(),
            audit,
            admission,
            local,
            spares,
            sessions: Sessions::default(),
            exports,
            device_memory: DeviceMemory::default(),
            bandwidth: Bandwidth::default(),
            gpu_shares: GpuShares::default(),
            spawner,
            monitor,
            stopping: AtomicBool::new(false),
            drain: Drain::default(),
            forks: Forks::default(),
            totals,
            relatives,
            gpus: Gpus::default(),
            askers: Mutex::new(SessionSlots::new(status::MAX_CLIENTS, status::MAX_CLIENTS_PER_PEER)),
        });
        let listeners = Arc::new(Listeners::new(Arc::clone(&shared), network));
        listeners.open()?;
        follow_parent(&shared)?;
        shared.local.own_inherited();
        if let Some(address) = listeners.metrics() {
            tracing::info!("serving metrics at http://{address}/metrics");
        }
        for target in &targets {
            tracing::info!(address = %target, protection = ?target.protection, "listening");
            if target.protection == Protection::Unprotected && !matches!(target.endpoint, Endpoint::Unix(_)) {
                tracing::warn!(
                    "authentication is disabled: every host that can connect to {target} may use this server \
                     and its GPUs"
                );
            }
        }
        Ok(RunningBroker {
            targets,
            listeners: Some(listeners),
            monitor_thread: Some(monitor_thread),
            spawner_thread: Some(spawner_thread),
            shared: Some(shared),
        })
    }
}

/// Opens the sockets that are not inherited.
fn open_sockets(
    config: &BrokerConfig,
    inherited: &mut InheritedSockets,
) -> Result<(NetworkSockets, LocalSockets), StartError> {
    let network = NetworkSockets::open(config, inherited)?;
    let mut local = LocalSockets::open(config.socket_folder.as_deref(), inherited);
    if let Some(name) = &config.socket {
        let listening = local.listen_at(name, config.allowed.others(), inherited);
        listening.map_err(|cause| StartError::Socket { name: name.clone(), cause })?;
    }
    Ok((network, local))
}

/// Where a broker listens, as its clients say it.
fn targets(
    config: &BrokerConfig,
    listener: Option<&TcpListener>,
    key: Option<Key>,
) -> io::Result<Vec<Target>> {
    let protection = match (&key, config.clear) {
        (None, _) => Protection::Unprotected,
        (Some(_), true) => Protection::Authenticated,
        (Some(_), false) => Protection::Encrypted,
    };
    let tcp = listener
        .map(TcpListener::local_addr)
        .transpose()?
        .map(|address| Target::tcp(address.ip().to_string(), address.port(), protection, key.clone()));
    let vsock = config.vsock.map(|address| Target::vsock(address, protection, key));
    Ok(tcp.into_iter().chain(vsock).chain(config.socket.as_ref().map(Target::unix)).collect())
}

/// What workers may do here. The log says what of the sandbox cannot be had.
fn plan_sandbox(config: &BrokerConfig) -> Result<Arc<Plan>, StartError> {
    let uses_driver = config.gpu != GpuChoice::Cpu;
    let plan = Plan::make(&SandboxRequest { uses_driver, ..config.sandbox.clone() })?;
    if config.sandbox.mode == Mode::Off {
        tracing::warn!(
            "workers are not confined (--sandbox off): a client that makes one run foreign code controls \
             this server"
        );
        return Ok(Arc::new(plan));
    }
    for missing in plan.missing() {
        tracing::warn!("workers are confined less than they could be: {missing}");
    }
    if let Some(shared) = plan.shared() {
        tracing::info!("workers share a user, since {shared}; --worker-users gives each its own");
    }
    if uses_driver && let Err(error) = make_device_nodes() {
        tracing::warn!("{error}");
    }
    Ok(Arc::new(plan))
}

/// A broker that listens; it stops when this is dropped.
pub struct RunningBroker {
    targets: Vec<Target>,
    listeners: Option<Arc<Listeners>>,
    monitor_thread: Option<JoinHandle<()>>,
    spawner_thread: Option<JoinHandle<()>>,
    shared: Option<Arc<Shared>>,
}

impl core::fmt::Debug for RunningBroker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RunningBroker").field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl RunningBroker {
    /// Where it listens, with the port that was really chosen, and its key: first over TCP, if it does.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The first of the places where it listens.
    pub fn target(&self) -> &Target {
        &self.targets[0]
    }

    /// Sessions that have a worker right now.
    pub fn sessions(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.sessions.count())
    }

    /// How the server is, in a sentence for who looks after it: how many sessions there are, and why a client would
    /// get none.
    pub fn state(&self) -> String {
        let Some(shared) = &self.shared else { return "stopping".to_owned() };
        let sessions = shared.admission.sessions();
        let sessions = if sessions == 1 { "1 session".to_owned() } else { format!("{sessions} sessions") };
        match shared.not_ready() {
            None => format!("ready; {sessions}"),
            Some(why) => format!("not ready: {why}; {sessions}"),
        }
    }

    /// Whether callers are still accepted and workers started, by threads that nobody waits for otherwise.
    pub fn works(&self) -> bool {
        let runs =
            |thread: &Option<JoinHandle<()>>| thread.as_ref().is_some_and(|thread| !thread.is_finished());
        let accepts = self.listeners.as_ref().is_some_and(|listeners| listeners.accepts());
        accepts && runs(&self.spawner_thread) && runs(&self.monitor_thread)
    }

    /// Where metrics are served, if they are, with the port that was really chosen.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.listeners.as_ref().and_then(|listeners| listeners.metrics())
    }

    /// Starts a process that is to take this broker's place, and hands over to it when it is ready to serve
    /// ([`Broker::take_over`]). `start` gets what must be its standard input. What is received says whether that is done:
    /// then this broker accepts nobody any more, and [`drained`](Self::drained) tells when its last session has ended. If
    /// not, it goes on as before.
    pub fn hand_over<P>(
        &self,
        start: impl FnOnce(OwnedFd) -> io::Result<P>,
    ) -> io::Result<(P, Receiver<Result<(), HandOverError>>)> {
        let stopping = || io::Error::other("the server is stopping");
        let (listeners, shared) = self.listeners.as_ref().zip(self.shared.as_ref()).ok_or_else(stopping)?;
        let (own, its) = Control::pair()?;
        let process = start(its.into())?;
        let done = hot_restart::hand_over(Arc::clone(listeners), Arc::clone(shared), own.into())?;
        Ok((process, done))
    }

    /// Takes no new sessions from now on; `limit` is how long those that are open may go on. True if the
    /// server was being drained already.
    pub fn drain(&self, limit: Option<Duration>) -> bool {
        self.shared.as_ref().is_some_and(|shared| ending::drain(shared, limit))
    }

    /// Whether the server is being drained.
    pub fn is_draining(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.drain.is_started())
    }

    /// Is told once when a server that is drained has no sessions left, or their time is over.
    pub fn drained(&self) -> Receiver<()> {
        self.shared.as_ref().map_or_else(never, |shared| shared.drain.drained())
    }

    /// Stops accepting, asks all workers to end, kills those that do not within a few seconds, and waits
    /// for them.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(listeners) = self.listeners.take() {
            listeners.close();
        }
        if let Some(shared) = self.shared.take() {
            shared.local.remove();
            shared.stopping.store(true, Ordering::SeqCst);
            shared.relatives.stop_parent();
            shared.spares.end();
            shared.sessions.end_all(STOP_TIMEOUT);
            // It has as long for its sessions, one signal after the other.
            shared.relatives.wait_for_parent(3 * STOP_TIMEOUT);
            shared.relatives.leave_child();
            shared.monitor.end();
            if let Some(monitor) = self.monitor_thread.take() {
                let _ = monitor.join();
            }
            shared.spawner.end();
            tracing::info!("stopped");
        }
        if let Some(spawner) = self.spawner_thread.take() {
            let _ = spawner.join();
        }
    }
}

impl Drop for RunningBroker {
    fn drop(&mut self) {
        self.end();
    }
}
