//! Watch over a session's worker: what it reports, when it is killed, and how it has ended.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::keys::clients::NotAccepted;
use causeway_connection::channel::Connection;
use causeway_sandbox::Jail;
use causeway_wire::handshake::SessionId;
use causeway_wire::text::Printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use super::accounting::Accounting;
use super::idle_release::MemoryRelease;
use super::refusal::{Refusal, refuse};
use super::session_clock::SessionClock;
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
        "the worker {what} for {seconds} s; it goes on, and the log says nothing more of that. --hung-worker kill:TIME ends such \
         workers"
    );
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
        let mut limits = self.accounting.limits(&shared.clients, peer);
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
                if control_open {
                    self.receive_last(shared, session);
                }
                return ended_for.map_or(Ending::OfItself, Ending::Killed);
            }
            let now = Instant::now();
            if now >= next_check {
                next_check = now + CLIENT_CHECK_INTERVAL;
                if let Origin::Client { key, .. } = peer
                    && let Err(why) = shared.clients.is_accepted(key)
                    && ended_for.is_none()
                {
                    let (text, reason) = match why {
                        NotAccepted::Expired => ("its client has expired", "its client has expired"),
                        _ => ("the server's owner has revoked its client", "its client has been revoked"),
                    };
                    let _ = messages::send(&self.control, &ToWorker::End { text: text.to_owned() }, None);
                    ended_for = Some(reason);
                    deadline = Some((now + END_TIMEOUT, reason));
                }
                limits = self.accounting.limits(&shared.clients, peer);
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
                        &format!("its worker {ending} while it started the GPU; the server's log says more"),
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
