//! How is a worker started, watched, and ended?

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_fabric::target::{address_proof, random_bytes};
use causeway_fabric::tcp::channel::Connection;
use causeway_fabric::tcp::record::ConnectionKeys;
use causeway_fabric::{MOST_LANES, Target, threads};
use causeway_sandbox::{Place, Plan, Purpose};
use causeway_wire::handshake::{ClientHello, LaneToken, SessionId};
use crossbeam_channel::{Sender, bounded, unbounded};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Shared;
use super::board::Thing;
use super::config::BrokerConfig;
use super::control::Control;
use super::dial::dial;
use super::heartbeat::{Beat, Finding, Patience, Step, Watchdog};
use super::images::SessionImages;
use super::listen::refuse;
use super::messages::{self, ControlError, SessionStart, ToBroker, ToWorker, WorkerOf};
use super::origin::Origin;
use super::sessions::{Asked, Session};
use super::started::Started;
use crate::cache::{CacheStart, identity_of};

/// Starts worker processes on a thread that lives as long as the broker: the kernel kills a worker when the
/// *thread* that started it ends, which is how a worker dies with its broker whatever ends that.
pub struct Spawner {
    requests: Mutex<Option<Sender<Request>>>,
}

struct Request {
    purpose: Purpose,
    environment: Vec<(String, String)>,
    started: Sender<Result<Started, ControlError>>,
}

impl Spawner {
    /// Starts the thread. The processes may do what `plan` lets them.
    pub fn start(config: &BrokerConfig, plan: Arc<Plan>) -> io::Result<(Self, JoinHandle<()>)> {
        let (requests, queue) = unbounded::<Request>();
        let config = config.clone();
        let thread = threads::spawn("spawn", move || {
            for Request { purpose, environment, started } in queue {
                // Whoever asked is still there, or the broker is stopping.
                let _ = started.send(start_worker(&config, &plan, purpose, environment));
            }
        })?;
        Ok((Self { requests: Mutex::new(Some(requests)) }, thread))
    }

    /// Ends the thread, and with it every worker that is left.
    pub fn end(&self) {
        *self.requests.lock() = None;
    }

    /// Starts a process that finds its end of the control connection at its standard input, is confined as its purpose demands, and
    /// has these variables besides the broker's.
    pub fn spawn(
        &self,
        purpose: Purpose,
        environment: Vec<(String, String)>,
    ) -> Result<Started, ControlError> {
        let stopping = || ControlError::NotStarted(io::Error::other("the server is stopping"));
        let (started, answer) = bounded(1);
        let requests = self.requests.lock().clone().ok_or_else(stopping)?;
        requests.send(Request { purpose, environment, started }).map_err(|_| stopping())?;
        answer.recv().map_err(|_| stopping())?
    }
}

fn start_worker(
    config: &BrokerConfig,
    plan: &Arc<Plan>,
    purpose: Purpose,
    environment: Vec<(String, String)>,
) -> Result<Started, ControlError> {
    let place = plan.place(purpose)?;
    let (control, theirs) = Control::pair()?;
    let (parent, confine) = (std::process::id(), place.before_exec()?);
    let mut command = Command::new(&config.worker_program);
    // The control socket takes the place of standard input; `WorkerStart::receive` looks for it there.
    command.args(&config.worker_arguments).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    command.envs(environment).envs(place.environment());
    // Where a worker looks for the sockets of other servers on this host.
    command.envs(config.socket_folder.iter().map(|folder| ("CAUSEWAY_SOCKET_DIR", folder)));
    // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || prepare_worker(parent).and_then(|()| confine.apply()));
    }
    let child = command.spawn().map_err(ControlError::NotStarted)?;
    let started = Started { child, control, place };
    match messages::send(&started.control, &ToWorker::Confine(started.place.confinement()), None) {
        Ok(()) => Ok(started),
        Err(error) => {
            started.discard();
            Err(error)
        }
    }
}

/// What a worker process does between fork and exec: it lets go of the broker's descriptors and signal
/// mask, and asks to die with the broker.
fn prepare_worker(parent: u32) -> io::Result<()> {
    let check = |status: i64| if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: these calls take numbers and a set that lives here; they change this new process only.
    unsafe {
        check(libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC))?;
        let mut none: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, core::ptr::null_mut());
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong).into())?;
        if libc::getppid() as u32 != parent {
            // The broker died before the line above.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

/// Runs one session from its request to the end of its worker.
pub fn run_session(
    shared: &Arc<Shared>,
    peer: Origin,
    hello: ClientHello,
    version: u16,
    connection: Connection,
) {
    let session = SessionId(random_bytes());
    let client = format!("{} (process {} on {})", hello.program, hello.pid, hello.host);
    let begun = Instant::now();
    let (socket, keys) = match messages::take_apart(connection) {
        Ok(parts) => parts,
        Err(error) => return tracing::warn!(%peer, "{client} was turned away: {error}"),
    };
    let mut worker = match Worker::start(shared, session, hello, version, &socket, keys.clone()) {
        Ok(worker) => worker,
        Err(error) => {
            tracing::error!(%peer, "no worker for {client}: {error}");
            let mut connection = Connection::new(TcpStream::from(socket), keys);
            return refuse(&mut connection, &format!("the server could not start a worker: {error}"));
        }
    };
    worker.unanswered = Some(Connection::new(TcpStream::from(socket), keys));
    tracing::info!(%session, %peer, worker = worker.child.id(), "session of {client} begins");
    let number = worker.child.id();
    let ending = worker.watch(shared, session);
    let status = worker.child.wait();
    shared.monitor.session_ended(number);
    shared.sessions.remove(session);
    shared.board.session_ends(session);
    worker.tell_if_unanswered(&status);
    let seconds = begun.elapsed().as_secs_f64();
    match (ending, &status) {
        (Ending::OfItself, Ok(status)) if status.success() => {
            tracing::info!(%session, seconds, "session of {client} ends");
        }
        (Ending::OfItself, _) if shared.stopping.load(Ordering::SeqCst) => {
            tracing::info!(%session, seconds, "session of {client} ends with the server");
        }
        (Ending::OfItself, _) => {
            let memory = if worker.place.ran_out_of_memory() {
                ", as it wanted more memory than a session may have (--session-memory)"
            } else {
                ""
            };
            tracing::warn!(
                %session, seconds, "session of {client} ends: its worker {}{memory}", describe(&status)
            );
        }
        (Ending::Killed(reason), _) => {
            tracing::warn!(%session, seconds, "session of {client} ends: its worker was killed, for {reason}");
        }
    }
}

/// How a process ended, for a log.
pub fn describe(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => format!("could not be waited for: {error}"),
    }
}

/// Which images a session may have. Who holds the server's key, or may do without, is one identity.
fn cache_start(shared: &Shared) -> Option<CacheStart> {
    let cache = shared.config.cache.as_ref()?;
    // A key that cannot be read now lets nobody in over a network; at a Unix socket images are kept once it can be again.
    let key = shared.key.current().ok()?;
    Some(CacheStart {
        folder: cache.folder.clone(),
        capacity: cache.capacity,
        identity: identity_of(key.as_ref().map(|key| key.bytes().as_slice())),
    })
}

/// The variables by which a client may set up its worker and the driver there. No other is taken: some make a process load
/// code or write files.
const ADMITTED: &[&str] = &[
    "CAUSEWAY_GPUDIRECT",
    "CUDA_AUTO_BOOST",
    "CUDA_BINARY_LOADER_THREAD_COUNT",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_GRAPHS_USE_NODE_PRIORITY",
    "CUDA_MODULE_DATA_LOADING",
    "CUDA_MODULE_LOADING",
    "CUDA_SCALE_LAUNCH_QUEUES",
];

/// Those of a client's variables that its worker gets.
fn admitted(environment: &[(String, String)]) -> Vec<(String, String)> {
    let is_admitted =
        |(name, value): &&(String, String)| ADMITTED.contains(&name.as_str()) && !value.contains('\0');
    environment.iter().filter(is_admitted).cloned().collect()
}

/// Connections that are made for one worker at the same time; a link has one for messages and at most so many lanes.
const MOST_DIALS: u32 = MOST_LANES + 1;

/// How a worker came to its end.
enum Ending {
    OfItself,
    Killed(&'static str),
}

/// Says in the log that a worker hangs, and goes on.
fn report(session: SessionId, finding: Finding, patience: &Patience) {
    let seconds = patience.hung.after.as_secs();
    let what = match finding {
        Finding::Silent => "does not answer",
        Finding::DoesNotStart => "has been starting the GPU",
        Finding::Hangs => "has been at one command",
    };
    tracing::warn!(
        %session,
        "the worker {what} for {seconds} s; it goes on, and the log says nothing more of that. --hung-worker kill:SECONDS ends such \
         workers"
    );
}

struct Worker {
    child: Child,
    process: Arc<OwnedFd>,
    control: Arc<Control>,
    images: SessionImages,
    place: Place,
    /// The client's connection, until the worker answers on it.
    unanswered: Option<Connection>,
    /// The address by which the client came, if it came over a network.
    reached_at: Option<SocketAddr>,
    /// Connections that are being made for the worker.
    dials: Arc<AtomicU32>,
}

impl Worker {
    /// Starts a worker and hands it the client's connection.
    fn start(
        shared: &Shared,
        session: SessionId,
        hello: ClientHello,
        version: u16,
        socket: &OwnedFd,
        keys: Option<ConnectionKeys>,
    ) -> Result<Self, ControlError> {
        let token = LaneToken(random_bytes());
        let lanes = hello.lanes.clamp(1, shared.config.most_lanes.clamp(1, MOST_LANES));
        let gpu = shared.config.gpu;
        let environment = admitted(&hello.environment);
        // One that is ready has started its driver, which reads the variables only then.
        let spare = if environment.is_empty() { shared.spares.take() } else { None };
        let started = match spare {
            Some(spare) => spare,
            None => shared.spawner.spawn(Purpose::Clients, environment)?,
        };
        let Started { mut child, control, place } = started;
        let process = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(process) => Arc::new(process),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::from(error).into());
            }
        };
        let number = child.id();
        let (client, host) = (hello.pid, hello.host.clone());
        shared.monitor.session_began(WorkerOf { worker: number, client, host });
        let control = Arc::new(control);
        shared.sessions.add(
            session,
            Session {
                token,
                control: Arc::clone(&control),
                process: Arc::clone(&process),
                lanes,
                opened: 0,
                asked: Asked::default(),
                tickets: Vec::new(),
            },
        );
        let images = SessionImages::new(cache_start(shared), Arc::clone(&control));
        let (keeps_images, locality) = (images.are_kept(), shared.local.locality());
        let start = SessionStart { hello, version, session, token, lanes, gpu, keeps_images, locality, keys };
        // Only now: once the worker knows its client it may answer, and lanes may come at any moment after
        // that.
        if let Err(error) = messages::send(&control, &ToWorker::Start(Box::new(start)), Some(socket)) {
            shared.sessions.remove(session);
            shared.monitor.session_ended(number);
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        let reached_at = TcpStream::from(socket.try_clone()?).local_addr().ok();
        Ok(Self {
            child,
            process,
            control,
            images,
            place,
            unanswered: None,
            reached_at,
            dials: Arc::default(),
        })
    }

    /// Waits for the end of the worker, and kills it when it outlives its client or its control socket.
    fn watch(&mut self, shared: &Shared, session: SessionId) -> Ending {
        let grace = shared.config.client_gone_grace;
        let mut deadline: Option<(Instant, &'static str)> = None;
        let mut watchdog = Watchdog::new(&shared.config.patience);
        let mut next_look = Instant::now() + watchdog.interval();
        let mut control_open = true;
        loop {
            let mut waiting_for = [
                PollFd::from_borrowed_fd(self.process.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
            ];
            let watched = if control_open { 2 } else { 1 };
            let end = match deadline {
                Some((end, _)) if !control_open => end,
                Some((end, _)) => end.min(next_look),
                None => next_look,
            };
            let timeout = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            // An interrupted wait is only a reason to look again.
            let ready = poll(&mut waiting_for[..watched], timeout.as_ref()).unwrap_or(usize::MAX);
            if !waiting_for[0].revents().is_empty() {
                return Ending::OfItself;
            }
            let now = Instant::now();
            if ready == 0
                && let Some((end, reason)) = deadline
                && now >= end
            {
                return self.kill(reason);
            }
            // What it has said comes first: it may be the answer.
            if ready == 0 && control_open && now >= next_look {
                next_look = now + watchdog.interval();
                match watchdog.look() {
                    Step::Wait => {}
                    Step::Ask(number) => {
                        // What it could not be told, it will not answer.
                        let _ = messages::send(&self.control, &ToWorker::Ping { number }, None);
                    }
                    Step::Report(finding) => report(session, finding, &shared.config.patience),
                    Step::Kill(finding) => return self.kill(finding.reason()),
                }
            }
            if control_open && !waiting_for[1].revents().is_empty() {
                match messages::receive::<ToBroker>(&self.control) {
                    Ok((ToBroker::Answering, _)) => {
                        watchdog.started();
                        self.unanswered = None;
                    }
                    Ok((ToBroker::Pong { number, beat }, _)) => watchdog.answered(number, Beat(beat)),
                    Ok((ToBroker::ClientGone, _)) => {
                        deadline = Some((Instant::now() + grace, "it outlived its client"));
                    }
                    Ok((question, descriptor)) => self.answer(shared, session, question, descriptor),
                    Err(_) => {
                        control_open = false;
                        deadline.get_or_insert((Instant::now() + grace, "it did not end"));
                    }
                }
            }
        }
    }

    fn kill(&self, reason: &'static str) -> Ending {
        // It may have ended this very moment, which is as good.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        Ending::Killed(reason)
    }

    /// Answers a question about what sessions have left for each other, or about tickets.
    fn answer(&self, shared: &Shared, session: SessionId, question: ToBroker, descriptor: Option<OwnedFd>) {
        let board = &shared.board;
        let nothing = Thing { bytes: Vec::new(), descriptor: None };
        let (number, found) = match question {
            ToBroker::Ticket { number, ticket } => {
                let proof = || Thing { bytes: self.address_proof(shared).to_vec(), descriptor: None };
                (number, shared.sessions.add_ticket(session, ticket).then(proof))
            }
            ToBroker::Dial { number, address, milliseconds, proof } => {
                return self.dial(
                    shared,
                    number,
                    &address,
                    Duration::from_millis(milliseconds.into()),
                    proof,
                );
            }
            ToBroker::Leave { number, token, bytes } => {
                let thing = Thing { bytes, descriptor: descriptor.map(Arc::new) };
                (number, board.leave(session, token, thing).then_some(nothing))
            }
            ToBroker::Find { number, token } => (number, board.find(&token)),
            ToBroker::FindImage { number, hash, length } => return self.images.find(number, hash, length),
            ToBroker::KeepImage { number, hash } => match descriptor {
                Some(memory) => return self.images.keep(number, hash, memory),
                None => (number, None),
            },
            ToBroker::Withdraw { token } => return board.withdraw(session, &token),
            ToBroker::Answering | ToBroker::ClientGone | ToBroker::Pong { .. } => return,
        };
        let descriptor = found.as_ref().and_then(|thing| thing.descriptor.clone());
        let answer = ToWorker::Answer { number, bytes: found.map(|thing| thing.bytes) };
        // A worker that has ended is noticed by its process.
        let _ = messages::send(&self.control, &answer, descriptor.as_deref());
    }

    /// What shows other servers with the same key that the address by which the client came is this server's; zeros where
    /// it came to no address, or there is no key.
    fn address_proof(&self, shared: &Shared) -> [u8; 32] {
        let key = shared.key.current().ok().flatten();
        key.zip(self.reached_at).map(|(key, address)| address_proof(&key, address)).unwrap_or_default()
    }

    /// Connects to another server for the worker, on a thread of its own.
    fn dial(&self, shared: &Shared, number: u32, address: &str, timeout: Duration, proof: [u8; 32]) {
        let control = Arc::clone(&self.control);
        let answer = move |made: Result<OwnedFd, String>| {
            let (bytes, connection) = match made {
                Ok(connection) => (Vec::new(), Some(connection)),
                Err(why) => (why.into_bytes(), None),
            };
            // A worker that has ended is noticed by its process.
            let _ = messages::send(
                &control,
                &ToWorker::Answer { number, bytes: Some(bytes) },
                connection.as_ref(),
            );
        };
        let target = match address.parse::<Target>() {
            Ok(target) => target,
            Err(error) => return answer(Err(error.to_string())),
        };
        if self.dials.fetch_add(1, Ordering::Relaxed) >= MOST_DIALS {
            self.dials.fetch_sub(1, Ordering::Relaxed);
            return answer(Err(format!(
                "the server makes {MOST_DIALS} connections for one session at a time"
            )));
        }
        let (named, dials) = (shared.config.peers.clone(), Arc::clone(&self.dials));
        // Nothing is connected to while the key cannot be read.
        let key = shared.key.current().map_err(|error| error.to_string());
        let started = threads::spawn("dial", move || {
            answer(key.and_then(|key| dial(&target.endpoint, timeout, &proof, key.as_ref(), &named)));
            dials.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = started {
            self.dials.fetch_sub(1, Ordering::Relaxed);
            tracing::error!("no connection is made for a worker, for no thread can be started: {error}");
        }
    }

    /// Tells the client that its worker ended before it could answer.
    fn tell_if_unanswered(&mut self, status: &io::Result<ExitStatus>) {
        // What the worker may have said last is still in the control socket.
        while let Some(connection) = &mut self.unanswered {
            match messages::receive::<ToBroker>(&self.control) {
                Ok((ToBroker::Answering, _)) => self.unanswered = None,
                Ok(_) => {}
                Err(_) => {
                    let ending = describe(status);
                    refuse(
                        connection,
                        &format!("its worker {ending} while it started the GPU; the server's log says more"),
                    );
                    self.unanswered = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_set_up_the_driver_and_nothing_else() {
        let variables = ["CUDA_MODULE_LOADING", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "CAUSEWAY_DRIVER"];
        let given: Vec<_> = variables.iter().map(|name| ((*name).to_owned(), "EAGER".to_owned())).collect();
        assert_eq!(admitted(&given), given[..1]);
        assert!(admitted(&[("CUDA_MODULE_LOADING".to_owned(), "a\0b".to_owned())]).is_empty());
    }
}
