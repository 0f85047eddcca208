//! Watch over a session's worker: what it reports, when it is killed, and how it has ended.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::keys::clients::NotAccepted;
use causeway_access::keys::groups::PeerLimits;
use causeway_connection::channel::Connection;
use causeway_sandbox::Jail;
use causeway_wire::handshake::SessionId;
use causeway_wire::text::Printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use super::accounting::Accounting;
use super::idle_release::MemoryRelease;
use super::refusal::{Refusal, refuse};
use super::session_clock::{SessionClock, has_time_limit};
use super::shared::Shared;
use super::spawn::describe;
use super::totals::Outcome;
use super::worker_log::WorkerLog;
use super::worker_requests::WorkerRequests;
use crate::activity::ActivityPage;
use crate::admission::Origin;
use crate::heartbeat::{Finding, HeartbeatTimeouts, Progress, Step, Watchdog};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ToBroker, ToWorker};

/// The worker process of a session.
pub struct SessionWorker {
    pub child: Child,
    pub process: Arc<OwnedFd>,
    pub control: Arc<Control>,
    pub requests: WorkerRequests,
    pub jail: Jail,
    /// Its log lines, until it has ended.
    pub log: Option<WorkerLog>,
    /// The client's connection, until the worker answers on it.
    pub unanswered: Option<Connection>,
    /// How it is counted.
    pub accounting: Accounting,
}

/// How a worker came to its end.
pub enum Ending {
    OfItself,
    Killed(&'static str),
}

/// Interval at which the client of a session is checked: that it may still connect, and that its time is not over.
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

/// Says in the log that a worker hangs, and goes on.
fn report(session: SessionId, finding: Finding, timeouts: &HeartbeatTimeouts) {
    let seconds = timeouts.hung.after.as_secs();
    let what = match finding {
        Finding::Silent => "does not answer",
        Finding::DoesNotStart => "has been starting the GPU",
        Finding::Hangs => "has been executing one command",
    };
    tracing::warn!(
        %session,
        "the worker {what} for {seconds} s; it continues, and this is not logged again; --hung-worker \
         kill:TIME ends such workers"
    );
}

/// What is known of a worker while it is watched.
struct Watch<'a> {
    worker: &'a mut SessionWorker,
    shared: &'a Shared,
    session: SessionId,
    peer: Origin,
    started_at: Instant,
    clock: SessionClock,
    /// Read anew once in an interval, not for each message of the worker: that asks for the file's version.
    limits: PeerLimits,
    next_client_check: Instant,
    watchdog: Watchdog,
    next_heartbeat_check: Instant,
    /// When it is killed unless it has ended, and why.
    deadline: Option<(Instant, &'static str)>,
    /// Why it is to end, once it has been told.
    ended_for: Option<&'static str>,
    is_control_open: bool,
    received: ReceivedOnce,
    /// Messages that were taken since something else was due.
    taken: u32,
    has_gpu: bool,
    memory: MemoryRelease,
}

impl<'a> Watch<'a> {
    fn new(
        worker: &'a mut SessionWorker,
        shared: &'a Shared,
        session: SessionId,
        peer: Origin,
        started_at: Instant,
    ) -> Self {
        let watchdog = Watchdog::new(&shared.config.heartbeat);
        let now = Instant::now();
        Self {
            limits: worker.accounting.limits(&shared.clients, peer),
            worker,
            shared,
            session,
            peer,
            started_at,
            clock: SessionClock::new(started_at),
            next_client_check: now + CLIENT_CHECK_INTERVAL,
            next_heartbeat_check: now + watchdog.interval(),
            watchdog,
            deadline: None,
            ended_for: None,
            is_control_open: true,
            received: ReceivedOnce::default(),
            taken: 0,
            has_gpu: true,
            memory: MemoryRelease::new(session, peer),
        }
    }

    /// When something is due, whatever the worker does.
    fn next_due(&self) -> Instant {
        let end = match self.deadline {
            Some((end, _)) if !self.is_control_open => end,
            Some((end, _)) => end.min(self.next_heartbeat_check),
            None => self.next_heartbeat_check,
        };
        let has_checks = self.peer.client().is_some() || has_time_limit(&self.limits);
        if has_checks { end.min(self.next_client_check) } else { end }
    }

    /// Tells the worker that its session ends, unless it has been told; it is killed for `reason` if it does
    /// not end.
    fn end(&mut self, now: Instant, text: String, reason: &'static str) {
        if self.ended_for.is_none() {
            // What it could not be told, it will not tell.
            let _ = messages::send(&self.worker.control, &ToWorker::End { text }, None);
            self.ended_for = Some(reason);
            self.deadline = Some((now + END_TIMEOUT, reason));
        }
    }

    /// Ends the session of a client that is not accepted any more, or whose time is over.
    fn check_client(&mut self, now: Instant) {
        if now < self.next_client_check {
            return;
        }
        self.next_client_check = now + CLIENT_CHECK_INTERVAL;
        if let Origin::Client { key, .. } = self.peer
            && let Err(why) = self.shared.clients.is_accepted(key)
        {
            let (text, reason) = match why {
                NotAccepted::Expired => ("its client has expired", "its client has expired"),
                _ => ("the server's owner has revoked its client", "its client has been revoked"),
            };
            self.end(now, text.to_owned(), reason);
        }
        self.limits = self.worker.accounting.limits(&self.shared.clients, self.peer);
        let has_time_limit = has_time_limit(&self.limits);
        let counts = has_time_limit.then(|| self.shared.sessions.counts(self.session)).flatten();
        if let Some(over) = self.clock.look(now, counts.as_ref(), &self.limits) {
            self.end(now, over.to_string(), over.reason());
        }
    }

    /// Kills a worker that has not ended by its deadline.
    fn check_deadline(&self, now: Instant) -> Option<Ending> {
        let (end, reason) = self.deadline?;
        (now >= end).then(|| self.worker.kill(reason))
    }

    /// Asks the worker whether it works, and kills or reports one that does not.
    fn check_heartbeat(&mut self, now: Instant) -> Option<Ending> {
        if !self.is_control_open || now < self.next_heartbeat_check {
            return None;
        }
        self.next_heartbeat_check = now + self.watchdog.interval();
        self.taken = 0;
        match self.watchdog.look() {
            Step::Wait => {}
            Step::Query(number) => {
                self.received.request_sent();
                // What it could not be told, it will not answer.
                let _ = messages::send(&self.worker.control, &ToWorker::Ping { number }, None);
            }
            Step::Report(finding) => report(self.session, finding, &self.shared.config.heartbeat),
            Step::Kill(finding) => return Some(self.worker.kill(finding.reason())),
        }
        None
    }

    /// Receives a message of the worker, and does what it asks; kills one that says too much.
    fn receive(&mut self) -> Option<Ending> {
        let grace = self.shared.config.disconnect_grace;
        match messages::receive::<ToBroker>(&self.worker.control) {
            Ok((message, _)) if !self.received.accept(&message) => {
                return Some(self.worker.kill("it repeatedly sent unrequested messages"));
            }
            Ok((message, descriptor)) => self.handle_message(message, descriptor),
            Err(_) => {
                self.is_control_open = false;
                self.deadline.get_or_insert((Instant::now() + grace, "it did not end"));
            }
        }
        None
    }

    fn handle_message(&mut self, message: ToBroker, descriptor: Option<OwnedFd>) {
        let (shared, session) = (self.shared, self.session);
        match (message, descriptor) {
            (ToBroker::Prepared { failure }, _) => shared.gpu.report(failure.map_or(Ok(()), Err)),
            (ToBroker::NoGpu { text }, _) => {
                shared.totals.refused(Refusal::NoGpu);
                shared.gpu.report(Err(text));
                self.has_gpu = false;
            }
            (ToBroker::Answering, _) => {
                self.watchdog.started();
                if self.has_gpu {
                    shared.gpu.report(Ok(()));
                }
                if self.worker.unanswered.take().is_some() {
                    shared.totals.worker_responded(self.started_at.elapsed());
                }
            }
            (ToBroker::Pong { number, progress }, _) => self.watchdog.answered(number, Progress(progress)),
            (ToBroker::ClientDisconnected, _) => {
                let grace = shared.config.disconnect_grace;
                self.deadline.get_or_insert((Instant::now() + grace, "it outlived its client"));
            }
            (ToBroker::Counts, Some(page)) => {
                let page = Arc::new(ActivityPage::new(page));
                shared.monitor.session_counts(self.worker.child.id(), Arc::clone(&page));
                shared.sessions.set_page(session, page);
            }
            (request, None) if request.is_about_move() => shared.sessions.moves(session, request),
            (request, None) if request.is_about_release() => {
                self.worker.move_memory(shared, session, &mut self.memory, request);
            }
            (request, descriptor) => self.worker.requests.answer(shared, session, request, descriptor),
        }
    }
}

impl SessionWorker {
    /// Waits for the end of the worker, and kills it when it outlives its client or its control socket.
    pub fn watch(
        &mut self,
        shared: &Shared,
        session: SessionId,
        peer: Origin,
        started_at: Instant,
    ) -> Ending {
        let (process, control) = (Arc::clone(&self.process), Arc::clone(&self.control));
        let mut watch = Watch::new(self, shared, session, peer, started_at);
        loop {
            let mut waiting_for = [
                PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            ];
            let watched = if watch.is_control_open { 2 } else { 1 };
            let due = watch.next_due();
            let timeout = Timespec::try_from(due.saturating_duration_since(Instant::now())).ok();
            // An interrupted wait is only a reason to look again.
            let ready = poll(&mut waiting_for[..watched], timeout.as_ref()).unwrap_or(usize::MAX);
            if !waiting_for[0].revents().is_empty() {
                if watch.is_control_open {
                    watch.worker.receive_last(shared, session);
                }
                return watch.ended_for.map_or(Ending::OfItself, Ending::Killed);
            }
            let now = Instant::now();
            watch.check_client(now);
            // What it has said comes first: it may be the answer. One that never stops is not waited for.
            let is_due = ready == 0 || watch.taken >= MAX_RECEIVED_MESSAGES;
            if is_due && let Some(ending) = watch.check_deadline(now).or_else(|| watch.check_heartbeat(now)) {
                return ending;
            }
            if watch.is_control_open && !waiting_for[1].revents().is_empty() {
                watch.taken += u32::from(now >= due);
                if let Some(ending) = watch.receive() {
                    return ending;
                }
            }
        }
    }

    /// Receives what the worker has said of a move before it ended; no one waits for an answer to anything else.
    fn receive_last(&self, shared: &Shared, session: SessionId) {
        for _ in 0..MAX_RECEIVED_MESSAGES {
            if !self.control.has_message(false) {
                return;
            }
            match messages::receive::<ToBroker>(&self.control) {
                Ok((message, None)) if message.is_about_move() => shared.sessions.moves(session, message),
                Ok(_) => {}
                Err(_) => return,
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
                tracing::warn!(%session, "cannot release the device memory of the idle session: {text}");
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
    pub fn refuse_if_unanswered(&mut self, status: &io::Result<ExitStatus>) {
        // What the worker may have said last is still in the control socket.
        while let Some(connection) = &mut self.unanswered {
            match messages::receive::<ToBroker>(&self.control) {
                Ok((ToBroker::Answering, _)) => self.unanswered = None,
                Ok(_) => {}
                Err(_) => {
                    let ending = describe(status);
                    refuse(
                        connection,
                        &format!("its worker {ending} while it started the GPU; see the server's log"),
                    );
                    self.unanswered = None;
                }
            }
        }
    }
}

/// How a session has ended, for the counts.
pub fn outcome(ending: &Ending, status: &io::Result<ExitStatus>) -> Outcome {
    match (ending, status) {
        (Ending::Killed(_), _) => Outcome::Killed,
        (Ending::OfItself, Ok(status)) if status.success() => Outcome::Ended,
        (Ending::OfItself, _) => Outcome::Failed,
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
