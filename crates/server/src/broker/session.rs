//! Session lifecycle: from its request to the end of its worker, which `session_watch` watches.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use causeway_access::keys::groups::GroupName;
use causeway_access::target::random_bytes;
use causeway_connection::channel::Connection;
use causeway_connection::record::ConnectionKeys;
use causeway_pipeline::MAX_LANES;
use causeway_sandbox::Purpose;
use causeway_wire::handshake::{ClientHello, LaneToken, Locality, SessionId};
use causeway_wire::status::SessionOwner;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::accounting::Accounting;
use super::audit::SessionEnd;
use super::images::SessionImages;
use super::move_state::MoveState;
use super::mps;
use super::refusal::{Refusal, refuse};
use super::session_watch::{Ending, SessionWorker, outcome};
use super::sessions::{About, Release, Session, UsedUpgrades};
use super::shared::Shared;
use super::spawn::{admitted, describe};
use super::worker_requests::WorkerRequests;
use crate::admission::{Origin, Source};
use crate::broker::spawn::Started;
use crate::cache::{CacheStart, identity_of};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, SessionStart, ToWorker, WorkerOf};
use crate::state_file::StateHeader;

/// How a session comes to this server.
struct Beginning {
    session: SessionId,
    token: LaneToken,
    hello: ClientHello,
    version: u16,
    lanes: u32,
    keys: Option<ConnectionKeys>,
    /// The client's connection, or one without a peer.
    connection: OwnedFd,
    /// The state of a session that is taken up or forked.
    state: Option<OwnedFd>,
    /// The session of which this one is a fork.
    parent: Option<SessionId>,
    /// By what its client may come, of one that is taken up.
    ticket: Option<LaneToken>,
    moves: Arc<MoveState>,
    accounting: Accounting,
}

/// Runs one session from its request to the end of its worker, and returns the worker's number, if it had
/// one. One that is a `fork` begins with the state of another.
pub fn run_session(
    shared: &Arc<Shared>,
    peer: Origin,
    hello: ClientHello,
    version: u16,
    connection: Connection,
    fork: Option<(SessionId, OwnedFd)>,
) -> Option<u32> {
    let client = describe_client(&hello);
    let (parent, state) = fork.unzip();
    let (socket, keys) = match messages::take_apart(connection) {
        Ok(parts) => parts,
        Err(error) => {
            tracing::warn!(%peer, "{client} was refused: {error}");
            return None;
        }
    };
    let beginning = Beginning {
        session: SessionId(random_bytes()),
        token: LaneToken(random_bytes()),
        lanes: hello.lanes,
        hello,
        version,
        keys: keys.clone(),
        connection: socket,
        state,
        parent,
        ticket: None,
        moves: Arc::default(),
        accounting: Accounting::Session,
    };
    let started = SessionWorker::start(shared, peer, &beginning);
    let Beginning { session, hello, connection: socket, .. } = beginning;
    let mut worker = match started {
        Ok(worker) => worker,
        Err(error) => {
            tracing::error!(%peer, "cannot start a worker for {client}: {error}");
            shared.totals.refused(Refusal::NoWorker);
            shared.audit.refused(peer, Some(&hello), Refusal::NoWorker, &error.to_string());
            let mut connection = Connection::new(TcpStream::from(socket), keys);
            refuse(&mut connection, &format!("the server cannot start a worker: {error}"));
            return None;
        }
    };
    worker.unanswered = Some(Connection::new(TcpStream::from(socket), keys));
    Some(worker.run(shared, session, peer, &hello, parent))
}

/// Takes up a session that another worker has had, and runs it to the end of its own. `moves` hears of it.
pub fn run_restored(
    shared: &Arc<Shared>,
    peer: Origin,
    header: StateHeader,
    state: OwnedFd,
    moves: &Arc<MoveState>,
    accounting: Accounting,
) -> Option<u32> {
    let (lost, _) = match UnixStream::pair() {
        Ok(pair) => pair,
        Err(error) => {
            moves.change(|progress| progress.restored = Some(Err(error.to_string().into())));
            return None;
        }
    };
    let beginning = Beginning {
        session: header.session,
        token: header.token,
        lanes: header.lanes,
        // It is no fork, whatever the state says.
        hello: ClientHello { fork: None, ..header.hello },
        version: header.version,
        keys: None,
        connection: lost.into(),
        state: Some(state),
        parent: None,
        ticket: Some(header.ticket),
        moves: Arc::clone(moves),
        accounting,
    };
    let worker = match SessionWorker::start(shared, peer, &beginning) {
        Ok(worker) => worker,
        Err(error) => {
            tracing::error!(%peer, "cannot start a worker for a session that is restored: {error}");
            moves.change(|progress| progress.restored = Some(Err(error.to_string().into())));
            return None;
        }
    };
    // Whoever does not want it any more looks for it among the sessions, where it was not before.
    if let Some(why) = moves.change(|progress| progress.unwanted) {
        let _ = messages::send(&worker.control, &ToWorker::Leave { why: why.to_owned() }, None);
    }
    Some(worker.run(shared, beginning.session, peer, &beginning.hello, None))
}

fn describe_client(hello: &ClientHello) -> String {
    format!("{} (process {} on {})", hello.program, hello.pid, hello.host)
}

/// Which images a session may have. Who holds the server's key, or may do without, is one identity, and each client
/// with a key of its own is one.
fn cache_start(shared: &Shared, peer: Origin) -> Option<CacheStart> {
    let cache = shared.config.cache.as_ref()?;
    let identity = match peer.client() {
        Some(client) => identity_of(Some(client.as_str().as_bytes())),
        None => {
            // A key that cannot be read now lets nobody in over a network; at a Unix socket images are kept once it
            // can be again.
            let key = shared.key.current().ok()?;
            identity_of(key.as_ref().map(|key| key.bytes().as_slice()))
        }
    };
    Some(CacheStart { folder: cache.folder.clone(), capacity: cache.capacity, identity })
}

/// The lanes of a session whose bandwidth is limited: each may have a piece more under way than the rate allows.
const MAX_PACED_LANES: u32 = 4;

impl SessionWorker {
    /// Runs a session to the end of its worker, and returns the worker's number.
    fn run(
        mut self,
        shared: &Arc<Shared>,
        session: SessionId,
        peer: Origin,
        hello: &ClientHello,
        parent: Option<SessionId>,
    ) -> u32 {
        let client = describe_client(hello);
        let started_at = Instant::now();
        let number = self.child.id();
        let is_session = self.accounting == Accounting::Session;
        // That of its beginning, also when it ends.
        let group = shared.clients.limits(Source::of(peer)).group_name();
        if is_session {
            match parent {
                Some(parent) => {
                    tracing::info!(%session, %peer, worker = number, %parent, "session of {client} started");
                }
                None => tracing::info!(%session, %peer, worker = number, "session of {client} started"),
            }
            shared.totals.session_begins();
            shared.audit.session_begins(session, (peer, group), hello, parent);
        } else {
            tracing::debug!(%session, worker = number, "trial of a state of {client} started");
        }
        let ending = self.watch(shared, session, peer, started_at);
        let status = self.child.wait();
        if let Some(log) = self.log.take() {
            log.finish();
        }
        shared.monitor.session_ended(number);
        // Before its identifier is free: one that is brought with the same would lose its account.
        shared.exports.session_ends(session);
        shared.device_memory.session_ends(session);
        shared.gpu_shares.session_ends(session);
        let done = shared.sessions.remove(session);
        let outcome = outcome(&ending, &status);
        let reason = match &ending {
            Ending::Killed(reason) => Some(*reason),
            Ending::OfItself => None,
        };
        if is_session {
            shared.totals.session_ends(outcome, &done);
            let end = SessionEnd { open: started_at.elapsed(), outcome, reason };
            shared.audit.session_ends(session, (peer, group), hello, end, &done);
        }
        self.refuse_if_unanswered(&status);
        let seconds = started_at.elapsed().as_secs_f64();
        match (ending, &status) {
            _ if !is_session => {
                tracing::debug!(%session, seconds, "trial of a state of {client} ended: {}", describe(&status));
            }
            (Ending::OfItself, Ok(status)) if status.success() => {
                tracing::info!(%session, seconds, "session of {client} ended");
            }
            (Ending::OfItself, _) if shared.stopping.load(Ordering::SeqCst) => {
                tracing::info!(%session, seconds, "session of {client} ended with the server");
            }
            (Ending::OfItself, _) => {
                let memory = if self.jail.ran_out_of_memory() {
                    ", since it requested more memory than a session may have (--session-memory, or session-memory \
                     of its client or group)"
                } else {
                    ""
                };
                tracing::warn!(
                    %session, seconds, "session of {client} ended: its worker {}{memory}", describe(&status)
                );
            }
            (Ending::Killed(reason), _) => {
                tracing::warn!(%session, seconds, "session of {client} ended: its worker was killed, since \
                    {reason}");
            }
        }
        number
    }

    /// Starts a worker and hands it the client's connection.
    fn start(shared: &Shared, peer: Origin, beginning: &Beginning) -> Result<Self, ControlError> {
        let Beginning { session, accounting, ref hello, .. } = *beginning;
        // What may fail for lack of descriptors comes before there is a worker.
        let local_address = TcpStream::from(beginning.connection.try_clone()?).local_addr().ok();
        let limits = accounting.limits(&shared.clients, peer);
        let is_paced = limits.lowest(|limits| limits.bandwidth).is_some();
        // A trial runs no kernels.
        let has_shares = accounting == Accounting::Session && shared.clients.has_shares();
        let uses_mps = has_shares && mps::is_used(shared.config.gpu, shared.spawner.plan());
        let of_mps = if uses_mps { shared.clients.mps_environment(Source::of(peer)) } else { None };
        let is_time_shared = has_shares && !uses_mps;
        let max_lanes = if is_paced { MAX_PACED_LANES } else { shared.config.max_lanes.clamp(1, MAX_LANES) };
        let lanes = beginning.lanes.clamp(1, max_lanes);
        let (Started { mut child, control, jail, log }, process) = spawn_worker(shared, hello, of_mps)?;
        if let Some((bytes, _)) = limits.lowest(|limits| limits.session_memory) {
            let bounded = jail.limit_memory(bytes);
            if !bounded.as_ref().is_ok_and(|is_bounded| *is_bounded) {
                let why =
                    bounded.map_or_else(|error| error.to_string(), |_| "there are no control groups".into());
                tracing::warn!(%session, "the worker's memory is not limited (`session-memory`): {why}");
            }
        }
        let number = child.id();
        let control = Arc::new(control);
        let entry = Session {
            token: beginning.token,
            control: Arc::clone(&control),
            process: Arc::clone(&process),
            lanes,
            opened: 0,
            is_resumable: hello.abilities.resume_seconds.min(shared.config.keepalive.resume) > 0,
            is_paced,
            upgrades: UsedUpgrades::new(),
            tickets: Vec::new(),
            move_ticket: beginning.ticket,
            moves: Arc::clone(&beginning.moves),
            is_trial: accounting == Accounting::Trial,
            about: about(hello, (peer, limits.group_name()), number, beginning.parent),
            page: None,
            release: Release::default(),
            is_gpudirect_on: true,
        };
        if !shared.sessions.add(session, entry) {
            child.kill()?;
            child.wait()?;
            let text = format!("session {session} is already here");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text).into());
        }
        if accounting == Accounting::Session {
            let worker = WorkerOf { worker: number, client: hello.pid, host: hello.host.clone() };
            shared.monitor.session_started(worker, Source::of(peer));
        }
        let images = SessionImages::new(cache_start(shared, peer), Arc::clone(&control));
        // Only now: once the worker knows its client it may answer, and lanes may come at any moment after
        // that.
        if let Err(error) =
            send_start(shared, beginning, &control, lanes, (is_paced, is_time_shared), images.is_cached())
        {
            shared.sessions.remove(session);
            shared.monitor.session_ended(number);
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        let requests =
            WorkerRequests::new(Arc::clone(&control), images, local_address, Source::of(peer), accounting);
        Ok(Self { child, process, control, requests, jail, log: Some(log), unanswered: None, accounting })
    }
}

/// A worker process for a client, one that is ready if there is one, and its descriptor.
fn spawn_worker(
    shared: &Shared,
    hello: &ClientHello,
    of_mps: Option<(String, String)>,
) -> Result<(Started, Arc<OwnedFd>), ControlError> {
    let environment: Vec<_> = admitted(&hello.environment).into_iter().chain(of_mps).collect();
    // One that is ready has started its driver, which reads the variables only then.
    let spare = if environment.is_empty() { shared.spares.take() } else { None };
    let mut started = match spare {
        Some(spare) => spare,
        None => shared.spawner.spawn(Purpose::Clients, environment)?,
    };
    match pidfd_open(Pid::from_child(&started.child), PidfdFlags::empty()) {
        Ok(process) => Ok((started, Arc::new(process))),
        Err(error) => {
            started.child.kill()?;
            started.child.wait()?;
            Err(io::Error::from(error).into())
        }
    }
}

/// What is shown of a session.
fn about(
    hello: &ClientHello,
    (peer, group): (Origin, Option<GroupName>),
    worker: u32,
    parent: Option<SessionId>,
) -> About {
    About {
        group,
        program: hello.program.clone(),
        host: hello.host.clone(),
        process: hello.pid,
        owner: SessionOwner::new(
            peer.client().as_ref().map_or("", |client| client.as_str()),
            &hello.user,
            &hello.job,
        ),
        peer,
        worker,
        parent,
        started_at: Instant::now(),
    }
}

/// Hands a worker its session: the client's connection, or the state of a session that is taken up or forked.
fn send_start(
    shared: &Shared,
    beginning: &Beginning,
    control: &Control,
    lanes: u32,
    (is_paced, is_time_shared): (bool, bool),
    keeps_images: bool,
) -> Result<(), ControlError> {
    let start = Box::new(SessionStart {
        hello: beginning.hello.clone(),
        version: beginning.version,
        session: beginning.session,
        token: beginning.token,
        lanes,
        gpu: shared.config.gpu,
        keeps_images,
        // Memory that both share is not held back.
        locality: if is_paced { Locality::default() } else { shared.local.locality() },
        keys: beginning.keys.clone(),
        keepalive: shared.config.keepalive,
        release: shared.config.release,
        is_paced,
        is_time_shared,
    });
    let task = if beginning.state.is_some() { ToWorker::Restore(start) } else { ToWorker::Start(start) };
    messages::send(control, &task, Some(&beginning.connection))?;
    match &beginning.state {
        Some(state) => messages::send(control, &ToWorker::State, Some(state)),
        None => Ok(()),
    }
}
