//! Session lifecycle: from its request to the end of its worker.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_access::keys::clients::NotAccepted;
use causeway_access::target::random_bytes;
use causeway_connection::channel::Connection;
use causeway_connection::record::ConnectionKeys;
use causeway_pipeline::MAX_LANES;
use causeway_sandbox::{Jail, Purpose};
use causeway_wire::handshake::{ClientHello, LaneToken, Locality, SessionId};
use causeway_wire::status::SessionOwner;
use causeway_wire::text::Printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::audit::SessionEnd;
use super::idle_release::MemoryRelease;
use super::images::SessionImages;
use super::move_state::MoveState;
use super::refusal::refuse;
use super::session_clock::SessionClock;
use super::sessions::{About, Release, Session, UsedRequests};
use super::shared::Shared;
use super::spawn::{admitted, describe};
use super::started::Started;
use super::totals::{Outcome, Refusal};
use super::worker_log::WorkerLog;
use super::worker_requests::WorkerRequests;
use crate::activity::ActivityPage;
use crate::admission::{Origin, Source};
use crate::cache::{CacheStart, identity_of};
use crate::heartbeat::{Finding, HeartbeatTimeouts, Progress, Step, Watchdog};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ControlError, SessionStart, ToBroker, ToWorker, WorkerOf};
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
    /// The state of a session that is taken up.
    state: Option<OwnedFd>,
    /// By what its client may come, of one that is taken up.
    ticket: Option<LaneToken>,
    moves: Arc<MoveState>,
}

/// Runs one session from its request to the end of its worker, and returns the worker's number, if it had one.
pub fn run_session(
    shared: &Arc<Shared>,
    peer: Origin,
    hello: ClientHello,
    version: u16,
    connection: Connection,
) -> Option<u32> {
    let client = describe_client(&hello);
    let (socket, keys) = match messages::take_apart(connection) {
        Ok(parts) => parts,
        Err(error) => {
            tracing::warn!(%peer, "{client} was turned away: {error}");
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
        state: None,
        ticket: None,
        moves: Arc::default(),
    };
    let started = Worker::start(shared, peer, &beginning);
    let Beginning { session, hello, connection: socket, .. } = beginning;
    let mut worker = match started {
        Ok(worker) => worker,
        Err(error) => {
            tracing::error!(%peer, "no worker for {client}: {error}");
            shared.totals.refused(Refusal::NoWorker);
            shared.audit.refused(peer, Some(&hello), Refusal::NoWorker, &error.to_string());
            let mut connection = Connection::new(TcpStream::from(socket), keys);
            refuse(&mut connection, &format!("the server could not start a worker: {error}"));
            return None;
        }
    };
    worker.unanswered = Some(Connection::new(TcpStream::from(socket), keys));
    Some(worker.run(shared, session, peer, &hello))
}

/// Takes up a session that another worker has had, and runs it to the end of its own. `moves` hears of it.
pub fn run_restored(
    shared: &Arc<Shared>,
    peer: Origin,
    header: StateHeader,
    state: OwnedFd,
    moves: &Arc<MoveState>,
) -> Option<u32> {
    let (lost, _) = match UnixStream::pair() {
        Ok(pair) => pair,
        Err(error) => {
            moves.change(|progress| progress.restored = Some(Err(error.to_string())));
            return None;
        }
    };
    let beginning = Beginning {
        session: header.session,
        token: header.token,
        lanes: header.lanes,
        hello: header.hello,
        version: header.version,
        keys: None,
        connection: lost.into(),
        state: Some(state),
        ticket: Some(header.ticket),
        moves: Arc::clone(moves),
    };
    let worker = match Worker::start(shared, peer, &beginning) {
        Ok(worker) => worker,
        Err(error) => {
            tracing::error!(%peer, "no worker for a session that is taken up: {error}");
            moves.change(|progress| progress.restored = Some(Err(error.to_string())));
            return None;
        }
    };
    Some(worker.run(shared, beginning.session, peer, &beginning.hello))
}

fn describe_client(hello: &ClientHello) -> String {
    format!("{} (process {} on {})", hello.program, hello.pid, hello.host)
}

/// How a session has ended, for the counts.
fn outcome(ending: &Ending, status: &io::Result<ExitStatus>) -> Outcome {
    match (ending, status) {
        (Ending::Killed(_), _) => Outcome::Killed,
        (Ending::OfItself, Ok(status)) if status.success() => Outcome::Ended,
        (Ending::OfItself, _) => Outcome::Failed,
    }
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

/// How a worker came to its end.
enum Ending {
    OfItself,
    Killed(&'static str),
}

/// How often is looked whether the client of a session is still let in, and its time is not over.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a worker has to tell its client why the session ends.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// How many messages of a worker are taken while it is time for something else.
const MAX_RECEIVED_MESSAGES: u32 = 1024;

/// What a worker has said that is said once, or once for each question. A question of its own gets an answer,
/// which it waits for; with all else it could keep the broker busy for ever.
#[derive(Debug, Default)]
struct ReceivedOnce {
    answering: bool,
    client_disconnected: bool,
    counts: bool,
    prepared: bool,
    no_gpu: bool,
    /// Questions that it has not answered.
    requests: u32,
}

impl ReceivedOnce {
    /// The worker has been asked something.
    fn request_sent(&mut self) {
        self.requests = self.requests.saturating_add(1);
    }

    /// Whether it may say this, which counts as said.
    fn accept(&mut self, message: &ToBroker) -> bool {
        let once = |seen: &mut bool| !core::mem::replace(seen, true);
        match message {
            ToBroker::Answering => once(&mut self.answering),
            ToBroker::ClientDisconnected => once(&mut self.client_disconnected),
            ToBroker::Counts => once(&mut self.counts),
            ToBroker::Prepared { .. } => once(&mut self.prepared),
            ToBroker::NoGpu { .. } => once(&mut self.no_gpu),
            ToBroker::Pong { .. } => match self.requests.checked_sub(1) {
                Some(left) => {
                    self.requests = left;
                    true
                }
                None => false,
            },
            _ => true,
        }
    }
}

/// The lanes of a session whose bandwidth is limited: each may have a piece more under way than the rate allows.
const MAX_PACED_LANES: u32 = 4;

/// Says in the log that a worker hangs, and goes on.
fn report(session: SessionId, finding: Finding, timeouts: &HeartbeatTimeouts) {
    let seconds = timeouts.hung.after.as_secs();
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
    requests: WorkerRequests,
    jail: Jail,
    /// Its log lines, until it has ended.
    log: Option<WorkerLog>,
    /// The client's connection, until the worker answers on it.
    unanswered: Option<Connection>,
}

impl Worker {
    /// Runs a session to the end of its worker, and returns the worker's number.
    fn run(mut self, shared: &Arc<Shared>, session: SessionId, peer: Origin, hello: &ClientHello) -> u32 {
        let client = describe_client(hello);
        let started_at = Instant::now();
        tracing::info!(%session, %peer, worker = self.child.id(), "session of {client} begins");
        shared.totals.session_begins();
        shared.audit.session_begins(session, peer, hello);
        let number = self.child.id();
        let ending = self.watch(shared, session, peer, started_at);
        let status = self.child.wait();
        if let Some(log) = self.log.take() {
            log.finish();
        }
        shared.monitor.session_ended(number);
        let done = shared.sessions.remove(session);
        let outcome = outcome(&ending, &status);
        shared.totals.session_ends(outcome, &done);
        let reason = match &ending {
            Ending::Killed(reason) => Some(*reason),
            Ending::OfItself => None,
        };
        let end = SessionEnd { open: started_at.elapsed(), outcome, reason };
        shared.audit.session_ends(session, peer, hello, end, &done);
        shared.exports.session_ends(session);
        shared.device_memory.session_ends(session);
        self.refuse_if_unanswered(&status);
        let seconds = started_at.elapsed().as_secs_f64();
        match (ending, &status) {
            (Ending::OfItself, Ok(status)) if status.success() => {
                tracing::info!(%session, seconds, "session of {client} ends");
            }
            (Ending::OfItself, _) if shared.stopping.load(Ordering::SeqCst) => {
                tracing::info!(%session, seconds, "session of {client} ends with the server");
            }
            (Ending::OfItself, _) => {
                let memory = if self.jail.ran_out_of_memory() {
                    ", as it wanted more memory than a session may have (--session-memory, or session-memory of its client)"
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
        number
    }

    /// Starts a worker and hands it the client's connection.
    fn start(shared: &Shared, peer: Origin, beginning: &Beginning) -> Result<Self, ControlError> {
        let Beginning { session, token, version, ticket, .. } = *beginning;
        let (hello, socket, keys) = (beginning.hello.clone(), &beginning.connection, beginning.keys.clone());
        let limits = shared.clients.limits(Source::of(peer));
        let is_paced = limits.bandwidth.is_some();
        let max_lanes = if is_paced { MAX_PACED_LANES } else { shared.config.max_lanes.clamp(1, MAX_LANES) };
        let lanes = beginning.lanes.clamp(1, max_lanes);
        let gpu = shared.config.gpu;
        let environment = admitted(&hello.environment);
        // One that is ready has started its driver, which reads the variables only then.
        let spare = if environment.is_empty() { shared.spares.take() } else { None };
        let started = match spare {
            Some(spare) => spare,
            None => shared.spawner.spawn(Purpose::Clients, environment)?,
        };
        let Started { mut child, control, jail, log } = started;
        let process = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(process) => Arc::new(process),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::from(error).into());
            }
        };
        if let Some(bytes) = limits.session_memory {
            let bounded = jail.limit_memory(bytes);
            if !bounded.as_ref().is_ok_and(|is_bounded| *is_bounded) {
                let why =
                    bounded.map_or_else(|error| error.to_string(), |_| "there are no control groups".into());
                tracing::warn!(%session, "the worker's memory is not limited (`session-memory`): {why}");
            }
        }
        let number = child.id();
        let (client, host) = (hello.pid, hello.host.clone());
        let control = Arc::new(control);
        let is_added = shared.sessions.add(
            session,
            Session {
                token,
                control: Arc::clone(&control),
                process: Arc::clone(&process),
                lanes,
                opened: 0,
                is_resumable: hello.abilities.resume_seconds.min(shared.config.keepalive.resume) > 0,
                is_paced,
                pending: UsedRequests::default(),
                tickets: Vec::new(),
                move_ticket: ticket,
                moves: Arc::clone(&beginning.moves),
                about: About {
                    program: hello.program.clone(),
                    host: hello.host.clone(),
                    process: hello.pid,
                    owner: SessionOwner::new(
                        peer.client().as_ref().map_or("", |client| client.as_str()),
                        &hello.user,
                        &hello.job,
                    ),
                    peer,
                    worker: number,
                    started_at: Instant::now(),
                },
                page: None,
                release: Release::default(),
            },
        );
        if !is_added {
            child.kill()?;
            child.wait()?;
            let text = format!("session {session} is here already");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text).into());
        }
        shared.monitor.session_started(WorkerOf { worker: number, client, host }, Source::of(peer));
        let images = SessionImages::new(cache_start(shared, peer), Arc::clone(&control));
        // Memory that both share is not held back.
        let locality = if is_paced { Locality::default() } else { shared.local.locality() };
        let keeps_images = images.is_cached();
        let (keepalive, release) = (shared.config.keepalive, shared.config.release);
        let start = SessionStart {
            hello,
            version,
            session,
            token,
            lanes,
            gpu,
            keeps_images,
            locality,
            keys,
            keepalive,
            release,
            is_paced,
        };
        // Only now: once the worker knows its client it may answer, and lanes may come at any moment after
        // that.
        let task = Box::new(start);
        let task = if ticket.is_some() { ToWorker::Restore(task) } else { ToWorker::Start(task) };
        let sent = messages::send(&control, &task, Some(socket)).and_then(|()| match &beginning.state {
            Some(state) => messages::send(&control, &ToWorker::State, Some(state)),
            None => Ok(()),
        });
        if let Err(error) = sent {
            shared.sessions.remove(session);
            shared.monitor.session_ended(number);
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        let local_address = TcpStream::from(socket.try_clone()?).local_addr().ok();
        let requests = WorkerRequests::new(Arc::clone(&control), images, local_address, Source::of(peer));
        Ok(Self { child, process, control, requests, jail, log: Some(log), unanswered: None })
    }

    /// Waits for the end of the worker, and kills it when it outlives its client or its control socket.
    fn watch(&mut self, shared: &Shared, session: SessionId, peer: Origin, started_at: Instant) -> Ending {
        let grace = shared.config.disconnect_grace;
        let mut next_check = Instant::now() + CLIENT_CHECK_INTERVAL;
        let mut deadline: Option<(Instant, &'static str)> = None;
        let mut watchdog = Watchdog::new(&shared.config.heartbeat);
        let mut next_look = Instant::now() + watchdog.interval();
        let mut control_open = true;
        // Messages that were taken since something else was due.
        let mut taken = 0_u32;
        let mut seen = ReceivedOnce::default();
        let mut has_gpu = true;
        let mut clock = SessionClock::new(started_at);
        let mut memory = MemoryRelease::new(session, peer);
        // Read anew once in an interval, not for each message of the worker: that asks for the file's version.
        let mut limits = shared.clients.limits(Source::of(peer));
        // Why it is to end, once it has been told.
        let mut ended_for = None;
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
            let has_checks = peer.client().is_some() || limits.has_time_limit();
            let end = if has_checks { end.min(next_check) } else { end };
            let timeout = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            // An interrupted wait is only a reason to look again.
            let ready = poll(&mut waiting_for[..watched], timeout.as_ref()).unwrap_or(usize::MAX);
            if !waiting_for[0].revents().is_empty() {
                return ended_for.map_or(Ending::OfItself, Ending::Killed);
            }
            let now = Instant::now();
            if now >= next_check {
                next_check = now + CLIENT_CHECK_INTERVAL;
                if let Origin::Client { key, .. } = peer {
                    match shared.clients.is_accepted(key) {
                        Ok(()) => {}
                        Err(NotAccepted::Expired) => return self.kill("its client has expired"),
                        Err(_) => return self.kill("its client has been revoked"),
                    }
                }
                limits = shared.clients.limits(Source::of(peer));
                let counts = limits.has_time_limit().then(|| shared.sessions.counts(session)).flatten();
                if let Some(over) = clock.look(now, counts.as_ref(), &limits)
                    && ended_for.is_none()
                {
                    // What it could not be told, it will not tell.
                    let _ = messages::send(&self.control, &ToWorker::End { text: over.to_string() }, None);
                    ended_for = Some(over.reason());
                    deadline = Some((now + END_TIMEOUT, over.reason()));
                }
            }
            // What it has said comes first: it may be the answer. One that never stops is not waited for.
            let is_due = ready == 0 || taken >= MAX_RECEIVED_MESSAGES;
            if is_due
                && let Some((end, reason)) = deadline
                && now >= end
            {
                return self.kill(reason);
            }
            if is_due && control_open && now >= next_look {
                next_look = now + watchdog.interval();
                taken = 0;
                match watchdog.look() {
                    Step::Wait => {}
                    Step::Query(number) => {
                        seen.request_sent();
                        // What it could not be told, it will not answer.
                        let _ = messages::send(&self.control, &ToWorker::Ping { number }, None);
                    }
                    Step::Report(finding) => report(session, finding, &shared.config.heartbeat),
                    Step::Kill(finding) => return self.kill(finding.reason()),
                }
            }
            if control_open && !waiting_for[1].revents().is_empty() {
                taken += u32::from(now >= end);
                let message = messages::receive::<ToBroker>(&self.control);
                if message.as_ref().is_ok_and(|(message, _)| !seen.accept(message)) {
                    return self.kill("it said again and again what nobody had asked");
                }
                match message {
                    Ok((ToBroker::Prepared { failure }, _)) => {
                        shared.gpu.report(failure.map_or(Ok(()), Err));
                    }
                    Ok((ToBroker::NoGpu { text }, _)) => {
                        shared.totals.refused(Refusal::NoGpu);
                        shared.gpu.report(Err(text));
                        has_gpu = false;
                    }
                    Ok((ToBroker::Answering, _)) => {
                        watchdog.started();
                        if has_gpu {
                            shared.gpu.report(Ok(()));
                        }
                        if self.unanswered.take().is_some() {
                            shared.totals.worker_responded(started_at.elapsed());
                        }
                    }
                    Ok((ToBroker::Pong { number, progress }, _)) => {
                        watchdog.answered(number, Progress(progress))
                    }
                    Ok((ToBroker::ClientDisconnected, _)) => {
                        deadline.get_or_insert((Instant::now() + grace, "it outlived its client"));
                    }
                    Ok((ToBroker::Counts, Some(page))) => {
                        let page = Arc::new(ActivityPage::new(page));
                        shared.monitor.session_counts(self.child.id(), Arc::clone(&page));
                        shared.sessions.set_page(session, page);
                    }
                    Ok((request, None)) if request.is_about_move() => {
                        shared.sessions.moves(session, request);
                    }
                    Ok((request, None)) if request.is_about_release() => {
                        self.move_memory(shared, session, &mut memory, request);
                    }
                    Ok((request, descriptor)) => {
                        self.requests.answer(shared, session, request, descriptor);
                    }
                    Err(_) => {
                        control_open = false;
                        deadline.get_or_insert((Instant::now() + grace, "it did not end"));
                    }
                }
            }
        }
    }

    /// Deals with what the worker says or asks about the release of its device memory.
    fn move_memory(
        &self,
        shared: &Shared,
        session: SessionId,
        memory: &mut MemoryRelease,
        request: ToBroker,
    ) {
        let jail = &self.jail;
        let respond = |number: u32, outcome: Result<Option<OwnedFd>, String>| {
            let (text, file) = outcome.map_or_else(|why| (why, None), |file| (String::new(), file));
            let response = ToWorker::Response { number, bytes: Some(text.into_bytes()) };
            // A worker that has ended is noticed by its process.
            let _ = messages::send(&self.control, &response, file.as_ref());
        };
        match request {
            ToBroker::Suspend { number, bytes, host_bytes, needs_file } => {
                let outcome = memory.may_leave(shared, jail, bytes, host_bytes, needs_file);
                respond(number, outcome.map_err(|why| why.to_string()));
            }
            ToBroker::Suspended { bytes, nanoseconds } => {
                memory.has_left(shared, bytes, Duration::from_nanos(nanoseconds));
            }
            ToBroker::StaysResident => memory.stays(shared, jail),
            ToBroker::Reclaim { number, capacity } => {
                respond(number, memory.may_return(shared, capacity).map(|()| None));
            }
            ToBroker::Returned { nanoseconds } => {
                memory.has_returned(shared, jail, Duration::from_nanos(nanoseconds));
            }
            ToBroker::ReleaseRefused { text } if shared.sessions.set_release_refused(session, &text) => {
                let text = Printable::from(text.as_str());
                tracing::warn!(%session, "device memory of the idle session is not released: {text}");
            }
            ToBroker::ReleaseOutcome { number, refused } => {
                shared.sessions.release_outcome(session, number, refused);
            }
            _ => {}
        }
    }

    fn kill(&self, reason: &'static str) -> Ending {
        // It may have ended this very moment, which is as good.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        Ending::Killed(reason)
    }

    /// Tells the client that its worker ended before it could answer.
    fn refuse_if_unanswered(&mut self, status: &io::Result<ExitStatus>) {
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
    fn what_nobody_has_asked_is_said_once_at_most() {
        let mut seen = ReceivedOnce::default();
        let pong = ToBroker::Pong { number: 1, progress: 0 };
        assert!(!seen.accept(&pong), "nobody has asked");
        seen.request_sent();
        assert!(seen.accept(&pong) && !seen.accept(&pong));
        let prepared = ToBroker::Prepared { failure: None };
        let no_gpu = ToBroker::NoGpu { text: String::new() };
        for message in [ToBroker::Answering, ToBroker::ClientDisconnected, ToBroker::Counts, prepared, no_gpu]
        {
            assert!(seen.accept(&message) && !seen.accept(&message), "{message:?}");
        }
    }
}
