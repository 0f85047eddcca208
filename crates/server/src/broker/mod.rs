//! The broker: listens, authenticates, and gives every client process a worker process of its own.
//!
//! A caller is served by one thread until it has proved who it is and said what it wants. A new session
//! gets a worker: this program started again, with the client's connection handed over as a descriptor.
//! From then on the broker only waits for the worker to end; it carries no byte of the session. Further
//! connections of the client are checked against the session's token and handed over too.
//!
//! | Module       | Question it answers                                                          |
//! |--------------|------------------------------------------------------------------------------|
//! | [`access`]   | Who may use the server, by which key or as which user?                        |
//! | `exports`    | What have sessions exported to each other?                                   |
//! | `dial`       | Where does the broker connect to for a worker?                                |
//! | `images`     | Which images of earlier sessions does a worker get, and which does it leave?  |
//! | `config`     | What can be set, and what is refused?                                        |
//! | `listen`     | Who has knocked, and what becomes of what it wants?                           |
//! | `local`      | At which sockets is the broker reached from its own host?                     |
//! | `refusal`    | How is a caller told that it is turned away?                                  |
//! | `sessions`   | Which sessions are there, and to which does a lane belong?                    |
//! | `spawn`      | How is a worker process started, and what may its client set up in it?         |
//! | `session`    | How does a session run, from its request to the end of its worker?             |
//! | `questions`  | What does a worker ask its broker for, and what does it get?                  |
//! | `prestarted`      | Which worker is ready before its client comes?                                |
//! | `monitor`    | Who answers monitoring sessions?                                              |
//! | `diagnosis`  | Who says what this machine is like, and for how long?                         |
//! | `status`     | Who asks how the server is, and what are they told?                           |
//! | `metrics`    | How do monitoring systems read what happens here?                             |
//! | `totals`     | What has happened since the server started?                                   |
//! | `gpus`       | How are the devices?                                                          |
//! | `drain`      | Is the server being drained, and who is told when it is done?                  |
//! | `ending`     | How does a server wait for the end of its sessions?                           |
//! | `started`    | What does the broker have of a process that it has started?                   |
//! | `shared`     | What do the broker's threads share?                                            |

pub mod access;
mod config;
mod diagnosis;
mod dial;
mod drain;
mod ending;
mod exports;
mod gpu_state;
mod gpus;
mod images;
mod inherited;
mod listen;
mod local;
mod metrics;
mod monitor;
mod prestarted;
mod questions;
mod refusal;
mod session;
mod sessions;
mod shared;
mod spawn;
mod started;
mod status;
mod totals;
mod worker_log;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use causeway_access::keys::file::KeyFileError;
use causeway_access::{Endpoint, Key, Target};
use causeway_sandbox::{Mode, Plan, PlanError, Wanted, make_device_nodes};
use causeway_sync::threads;
use causeway_wire::handshake::Protection;

pub use crate::back_end::{DeviceList, DeviceListError, GpuChoice, devices_for};
pub use crate::protocol::messages::KeepaliveSeconds;
pub use access::{Access, AllowedUsers};
pub use config::{BrokerConfig, CacheConfig, DEFAULT_SESSIONS_PER_PEER};
pub use dial::{BadPeerRange, PeerRange};

use crate::admission::{Admission, Limits, LimitsError, RequestedLimits, SessionSlots, raise_limit};
use crate::back_end::{self, BackEndError};
use access::ServerKey;
use crossbeam_channel::{Receiver, never};
use drain::Drain;
use exports::ExportRegistry;
use gpu_state::GpuState;
use gpus::Gpus;
use local::LocalSockets;
use monitor::Monitor;
use parking_lot::Mutex;
use prestarted::PrestartedWorkers;
use sessions::Sessions;
use shared::Shared;
use spawn::Spawner;
use thiserror::Error;
use totals::Totals;

/// How long workers get between being asked to end and being killed when the broker stops.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// Why a broker could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is nowhere to listen.
    #[error("there is neither an address nor a Unix socket to listen at")]
    Nowhere,
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// A Unix socket is taken or cannot be made.
    #[error("cannot listen at the Unix socket {name}: {}", explain_bind(.cause))]
    Socket {
        /// Its name.
        name: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The address is taken or not ours.
    #[error("cannot listen at {address}: {}", explain_bind(.cause))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The address for metrics is taken or not ours.
    #[error("metrics cannot be told at {address}: {}", explain_metrics(.cause))]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The system does not let the broker have what it is asked to give to others.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// No back end can serve as it is wanted.
    #[error(transparent)]
    BackEnd(#[from] BackEndError),
    /// Workers would have more rights than they may.
    #[error(transparent)]
    Sandbox(#[from] PlanError),
    /// The system refused something else.
    #[error("the server cannot start: {0}")]
    System(#[from] io::Error),
}

fn explain_bind(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there already; is a server running? Choose another port with --listen"
                .to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => "ports below 1024 are for root; choose a higher one".to_owned(),
        _ => cause.to_string(),
    }
}

fn explain_metrics(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there already; choose another port with --metrics".to_owned()
        }
        _ => explain_bind(cause),
    }
}

/// Starts brokers.
#[derive(Debug)]
pub struct Broker;

impl Broker {
    /// Starts listening. The broker runs on threads of this process until it is stopped or dropped.
    pub fn start(config: BrokerConfig) -> Result<RunningBroker, StartError> {
        if config.listen.is_none() && config.socket.is_none() {
            return Err(StartError::Nowhere);
        }
        back_end::check(config.gpu)?;
        let key = ServerKey::new(config.access.clone())?;
        let listener = config.listen.map(listen_at).transpose()?;
        let bind_metrics =
            |address| metrics::bind(address).map_err(|cause| StartError::Metrics { address, cause });
        let metrics_listener = config.metrics.map(bind_metrics).transpose()?;
        let mut local = LocalSockets::open(config.socket_folder.as_deref());
        if let Some(name) = &config.socket {
            let listening = local.listen_at(name, config.allowed.others());
            listening.map_err(|cause| StartError::Socket { name: name.clone(), cause })?;
        }
        let targets = targets(&config, listener.as_ref(), key.current()?)?;
        let wishes = RequestedLimits {
            handshakes: config.most_handshakes,
            sessions: config.most_sessions,
            sessions_per_peer: config.most_sessions_per_peer,
        };
        let limits = Limits::divide(raise_limit()?, &wishes)?;
        tracing::debug!(?limits, "what callers may take");
        let admission = Admission::new(limits);
        let exports = ExportRegistry::new(limits.exports, limits.exports_per_session);
        let totals = Arc::new(Totals::new());
        let (spawner, spawner_thread) = Spawner::start(&config, plan_sandbox(&config)?, Arc::clone(&totals))?;
        let spawner = Arc::new(spawner);
        let (monitor, monitor_thread) = Monitor::start(config.gpu, Arc::clone(&spawner))?;
        let spares = PrestartedWorkers::new(Arc::clone(&spawner), config.gpu, config.spare_worker);
        let gpu = GpuState::new(config.spare_worker);
        let shared = Arc::new(Shared {
            gpu,
            config,
            key,
            admission,
            local,
            spares,
            sessions: Sessions::default(),
            exports,
            spawner,
            monitor,
            stopping: AtomicBool::new(false),
            drain: Drain::default(),
            totals,
            gpus: Gpus::default(),
            askers: Mutex::new(SessionSlots::new(status::MOST_CLIENTS, status::MOST_CLIENTS_OF_A_PEER)),
        });
        let telling = metrics_listener.map(|listener| Telling::start(listener, &shared)).transpose()?;
        let (stop, stopped) = UnixStream::pair()?;
        let accepting = threads::spawn("accept", {
            let shared = Arc::clone(&shared);
            move || listen::accept_until(listener.as_ref(), &stopped, &shared)
        })?;
        for target in &targets {
            tracing::info!(address = %target, protection = ?target.protection, "listening");
            if target.protection == Protection::Unprotected && matches!(target.endpoint, Endpoint::Tcp { .. })
            {
                tracing::warn!(
                    "whoever reaches {target} may use this server and its GPUs, for it was told to ask for no key"
                );
            }
        }
        Ok(RunningBroker {
            targets,
            telling,
            stop: Some(stop),
            accepting: Some(accepting),
            monitor_thread: Some(monitor_thread),
            spawner_thread: Some(spawner_thread),
            shared: Some(shared),
        })
    }
}

/// Listens over TCP.
fn listen_at(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(address).map_err(|cause| StartError::Listen { address, cause })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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
        .map(|address| Target::tcp(address.ip().to_string(), address.port(), protection, key));
    Ok(tcp.into_iter().chain(config.socket.as_ref().map(Target::unix)).collect())
}

/// What workers may do here. The log says what of the sandbox cannot be had.
fn plan_sandbox(config: &BrokerConfig) -> Result<Arc<Plan>, StartError> {
    let uses_driver = config.gpu != GpuChoice::Cpu;
    let plan = Plan::make(&Wanted { uses_driver, ..config.sandbox.clone() })?;
    if config.sandbox.mode == Mode::Off {
        tracing::warn!(
            "workers are not confined (--sandbox off): a client that makes one run foreign code has this server"
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
    telling: Option<Telling>,
    stop: Option<UnixStream>,
    accepting: Option<JoinHandle<()>>,
    monitor_thread: Option<JoinHandle<()>>,
    spawner_thread: Option<JoinHandle<()>>,
    shared: Option<Arc<Shared>>,
}

/// Metrics are told while this lives.
struct Telling {
    address: SocketAddr,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Telling {
    fn start(listener: TcpListener, shared: &Arc<Shared>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, stopped) = UnixStream::pair()?;
        let shared = Arc::clone(shared);
        let thread = threads::spawn("metrics", move || metrics::serve(&listener, &stopped, &shared))?;
        tracing::info!("metrics are told at http://{address}/metrics");
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        // The thread waits for this end to close.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own message.
            let _ = thread.join();
        }
    }
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
        runs(&self.accepting) && runs(&self.spawner_thread) && runs(&self.monitor_thread)
    }

    /// Where metrics are told, if they are, with the port that was really chosen.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.telling.as_ref().map(|telling| telling.address)
    }

    /// Takes no new sessions from now on; `limit` is how long those that are open may go on. True if the
    /// server was being drained already.
    pub fn drain(&self, limit: Option<Duration>) -> bool {
        self.shared.as_ref().is_some_and(|shared| ending::drain(shared, limit))
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
        drop(self.telling.take());
        // The accepting thread waits for this end to close.
        drop(self.stop.take());
        if let Some(accepting) = self.accepting.take() {
            // A panic there has been reported by its own message.
            let _ = accepting.join();
        }
        if let Some(shared) = self.shared.take() {
            shared.local.remove();
            shared.stopping.store(true, Ordering::SeqCst);
            shared.spares.end();
            shared.sessions.end_all(STOP_GRACE);
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
