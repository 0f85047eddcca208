//! Moves of sessions to and from this server, for `causeway move`, `causeway checkpoint` and `causeway restore`.
//!
//! The caller carries the state from one server to the other. The session is held until the caller decides; if the caller
//! disconnects before that, the session continues here. On the other server the session belongs to the caller that brings it,
//! within that caller's own limits; its client connects by a secret that only the state and the client have.
//!
//! A program that forks together with its session has it held by the same requests, and its state goes through a pipe to the
//! worker of the child's session ([`Forks`](super::forks::Forks)).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_sync::threads;
use causeway_wire::handshake::{LaneToken, Protection, SessionId};
use causeway_wire::moves::{MAX_STATE_PIECE, MoveReply, MoveRequest, QUIET_TIMEOUT};
use causeway_wire::relocation::Relocation;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::device_memory::MemoryBounds;
use super::drain::{Drain, may_drain};
use super::forks::{Fork, Forks};
use super::idle_release::{FOLDER, make_file};
use super::incoming_session::{IncomingSession, PIPE_SIZE, WAIT};
use super::move_state::{MoveProgress, MoveState};
use super::shared::Shared;
use super::trial::{Trial, must_be_tried};
use crate::admission::{Origin, Source};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, CheckpointStart, ToWorker, WrittenState};

/// Interval at which the state file is checked for growth.
const GROWTH_INTERVAL: Duration = Duration::from_millis(1);

/// How long a worker may write nothing of a session's state. It waits for what the session has under way.
const GROWTH_TIMEOUT: Duration = QUIET_TIMEOUT.saturating_mul(4);

/// The sessions that a caller moves.
pub struct Moves<'a> {
    shared: &'a Arc<Shared>,
    peer: Origin,
    leaving: Option<Leaving>,
    incoming: Option<IncomingSession>,
}

/// A session that is to go.
struct Leaving {
    session: SessionId,
    shared: Arc<Shared>,
    control: Arc<Control>,
    progress: Arc<MoveState>,
    number: u32,
    /// Since when the caller has found nothing new of its state.
    stalled_since: Option<Instant>,
    /// Where the state goes on.
    destination: Destination,
    /// Whether it ends here, to be taken up some time.
    stops: bool,
    trial: Option<Trial>,
    has_proceeded: bool,
}

/// Where the state of a session goes that is held.
enum Destination {
    /// Into a file, which the caller reads.
    File(File),
    /// To the worker of a fork, whose program comes with this ticket.
    Fork(LaneToken),
}

fn refused(text: impl Into<String>) -> MoveReply {
    MoveReply::Refused { text: text.into().into() }
}

/// Has the forks that are awaited now be abandoned when their time is over, though the programs of their
/// parents have ended.
fn abandon_in_time(shared: &Arc<Shared>) {
    if !shared.forks.is_any() {
        return;
    }
    let own = Arc::clone(shared);
    let started = threads::spawn("forks", move || {
        std::thread::sleep(Forks::TIMEOUT);
        own.forks.abandon_late();
    });
    if let Err(error) = started {
        tracing::warn!("a fork whose program does not connect is abandoned with the next one: {error}");
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        match &self.destination {
            // The worker goes on when what it writes has no reader.
            Destination::Fork(ticket) if !self.has_proceeded => self.shared.forks.abandon(*ticket),
            Destination::File(_) if !self.has_proceeded => {
                // A worker that has ended needs no word.
                let _ = messages::send(&self.control, &ToWorker::Stay { number: self.number }, None);
            }
            Destination::Fork(_) => abandon_in_time(&self.shared),
            Destination::File(_) => {}
        }
        self.progress.change(|progress| progress.is_held = false);
    }
}

impl<'a> Moves<'a> {
    /// Nothing yet.
    pub fn new(shared: &'a Arc<Shared>, peer: Origin) -> Self {
        Self { shared, peer, leaving: None, incoming: None }
    }

    /// For how long the next question may be waited for.
    pub fn time_left(&self) -> Duration {
        self.incoming.as_ref().and_then(IncomingSession::time_left).unwrap_or(Duration::MAX)
    }

    /// Answers a question.
    pub fn reply(&mut self, request: MoveRequest) -> MoveReply {
        self.incoming.take_if(|incoming| incoming.time_left().is_some_and(|left| left.is_zero()));
        match request {
            MoveRequest::Hold { session, relocation, stops } => self.hold(session, relocation, stops),
            MoveRequest::HoldForFork { session, token, ticket } => self.hold_for_fork(session, token, ticket),
            MoveRequest::Stay => {
                if let Some(mut leaving) = self.leaving.take() {
                    // Though the caller was about to fork.
                    leaving.has_proceeded = false;
                }
                MoveReply::Done
            }
            MoveRequest::TakeUp => {
                // Its slot is free for this one.
                self.incoming = None;
                match IncomingSession::begin(self.shared, self.peer) {
                    Ok(incoming) => {
                        self.incoming = Some(incoming);
                        MoveReply::Done
                    }
                    Err(why) => refused(why),
                }
            }
            MoveRequest::Abandon => {
                let incoming = self.incoming.take();
                incoming.map_or(MoveReply::Done, |incoming| incoming.abandon(self.shared))
            }
            MoveRequest::Write { .. } | MoveRequest::Restore | MoveRequest::IsRestored => {
                let Some(incoming) = &mut self.incoming else {
                    return refused("no session is expected from this peer");
                };
                let reply = match request {
                    MoveRequest::Write { bytes } => incoming.write(self.shared, self.peer, &bytes),
                    MoveRequest::Restore => incoming.finish(),
                    _ => incoming.is_restored(),
                };
                // What was refused before it had a worker keeps neither its bytes nor its slot.
                if let MoveReply::Refused { .. } = reply {
                    self.incoming.take_if(|incoming| incoming.time_left().is_some());
                }
                reply
            }
            MoveRequest::IsHeld
            | MoveRequest::Read { .. }
            | MoveRequest::Proceed
            | MoveRequest::Where
            | MoveRequest::Leave => match &mut self.leaving {
                None => refused("no session is held for this peer"),
                Some(leaving) => {
                    let reply = leaving.reply(&request, self.shared, self.peer);
                    if let MoveReply::Refused { .. } = reply {
                        self.leaving = None;
                    }
                    reply
                }
            },
        }
    }

    fn folder(&self) -> &Path {
        self.shared.config.cache.as_ref().map_or(Path::new(FOLDER), |cache| &cache.folder)
    }

    fn make_file(&self, bytes: u64) -> Result<File, String> {
        // The image cache makes its folder when it has something for it.
        let _ = std::fs::create_dir_all(self.folder());
        make_file(self.folder(), bytes).map(File::from).map_err(|error| error.to_string())
    }

    fn hold(&mut self, session: SessionId, relocation: Relocation, stops: bool) -> MoveReply {
        if !may_drain(self.peer, rustix::process::geteuid().as_raw()) {
            tracing::warn!(peer = %self.peer, %session, "request for a session's state denied");
            return refused("only the server's own user and root may move its sessions, on its own host");
        }
        self.leaving = None;
        let made = self.make_file(0).and_then(|file| {
            let own = file.try_clone().map_err(|error| error.to_string())?;
            Ok((Destination::File(file), OwnedFd::from(own)))
        });
        let (destination, output) = match made {
            Ok(made) => made,
            Err(why) => return refused(why),
        };
        let start = CheckpointStart { number: 0, relocation, stops, is_fork: false };
        self.begin(session, start, destination, output)
    }

    /// Holds the caller's own session for a fork of it. What the child's session needs beside the state is
    /// taken first, so that the program learns before it forks that it cannot have that.
    fn hold_for_fork(&mut self, session: SessionId, token: LaneToken, ticket: LaneToken) -> MoveReply {
        self.leaving = None;
        if !self.shared.sessions.has_token(session, token) {
            tracing::warn!(peer = %self.peer, %session, "request to fork a session denied: the peer does not \
                own it");
            return refused(format!("there is no session {session} of this program here"));
        }
        let slot = match self.shared.take_slot(self.peer) {
            Ok(slot) => slot,
            Err(why) => return refused(why.to_string()),
        };
        if self.shared.drain.is_started() {
            return refused(Drain::refusal(self.shared.admission.sessions() - 1));
        }
        let source = Source::of(self.peer);
        let bounds = MemoryBounds::of_peer(&self.shared.clients.limits(source), 0);
        if let Err(why) = self.shared.device_memory.admits_copy(session, source, bounds) {
            return refused(why.to_string());
        }
        let (state, output) = match pipe_with(PipeFlags::CLOEXEC) {
            Ok(ends) => ends,
            Err(error) => return refused(format!("cannot create a pipe for the session's state: {error}")),
        };
        // Where a user has too many pipes it is slower.
        let _ = fcntl_setpipe_size(&output, PIPE_SIZE);
        self.shared.forks.add(ticket, source, Fork { parent: session, state, slot });
        // No client goes anywhere.
        let relocation =
            Relocation { address: String::new(), protection: Protection::Encrypted, ticket, seconds: 0 };
        let start = CheckpointStart { number: 0, relocation, stops: false, is_fork: true };
        let reply = self.begin(session, start, Destination::Fork(ticket), output);
        if self.leaving.is_none() {
            self.shared.forks.abandon(ticket);
        }
        reply
    }

    /// Has the worker of a session hold it, and write its state to `output`.
    fn begin(
        &mut self,
        session: SessionId,
        start: CheckpointStart,
        destination: Destination,
        output: OwnedFd,
    ) -> MoveReply {
        let Some((control, progress)) = self.shared.sessions.move_state(session) else {
            return refused(format!(
                "there is no session {session} here, or a server before this one has it"
            ));
        };
        let number = progress.change(|progress| {
            let is_first = !core::mem::replace(&mut progress.is_held, true);
            is_first.then(|| {
                // What the worker says of one before is not taken for this one's.
                progress.number = progress.number.wrapping_add(1);
                (progress.is_quiet, progress.checkpoint, progress.returned) = (false, None, None);
                progress.number
            })
        });
        let Some(number) = number else {
            return refused(format!("session {session} is already being moved or forked"));
        };
        let fork = start.is_fork;
        tracing::info!(peer = %self.peer, %session, fork, "the session's state was requested");
        let stops = start.stops;
        let start = Box::new(CheckpointStart { number, ..start });
        let sent = messages::send(&control, &ToWorker::Checkpoint(start), Some(&output));
        self.leaving = Some(Leaving {
            session,
            shared: Arc::clone(self.shared),
            control,
            progress,
            number,
            stalled_since: None,
            destination,
            stops,
            trial: None,
            has_proceeded: false,
        });
        match sent {
            Ok(()) => MoveReply::Pending,
            Err(error) => {
                self.leaving = None;
                refused(format!("cannot contact the worker of session {session}: {error}"))
            }
        }
    }
}

impl Leaving {
    /// What has been written of the state from here on; where that is nothing yet, waits for it a little.
    fn read(&mut self, offset: u64) -> io::Result<MoveReply> {
        let Destination::File(file) = &self.destination else {
            return Ok(refused("the state of a fork is sent only to its own worker"));
        };
        let started_at = Instant::now();
        let mut bytes = vec![0; MAX_STATE_PIECE];
        loop {
            // In this order: what was written before the end is found.
            let is_written =
                self.progress.change(|progress| progress.checkpoint.is_some() || progress.has_ended);
            let count = file.read_at(&mut bytes, offset)?;
            if count > 0 || is_written {
                self.stalled_since = None;
                bytes.truncate(count);
                return Ok(MoveReply::State { bytes });
            }
            // Not since the last growth: the caller itself may have been away for long.
            if self.stalled_since.get_or_insert(started_at).elapsed() >= GROWTH_TIMEOUT {
                let seconds = GROWTH_TIMEOUT.as_secs();
                return Ok(refused(format!("its worker has written nothing of its state for {seconds} s")));
            }
            if started_at.elapsed() >= WAIT {
                return Ok(MoveReply::Pending);
            }
            // The file has nobody who says that it grows.
            let over = |progress: &mut MoveProgress| progress.checkpoint.is_some().then_some(());
            self.progress.wait_for(GROWTH_INTERVAL, over);
        }
    }

    fn reply(&mut self, request: &MoveRequest, shared: &Arc<Shared>, peer: Origin) -> MoveReply {
        match request {
            MoveRequest::IsHeld => {
                let awaits_quiet = matches!(self.destination, Destination::Fork(_)) && !self.has_proceeded;
                // The program that was to come for the state may have failed.
                self.shared.forks.abandon_late();
                let quiet = WrittenState { bytes: 0, has_variables: false };
                let found = self.progress.wait_for(WAIT, |progress| {
                    let is_quiet = (awaits_quiet && progress.is_quiet).then_some(Ok(quiet));
                    checkpoint_of(progress).or(is_quiet)
                });
                match found {
                    Some(Ok(state)) if self.stops && must_be_tried(state) => self.tried(state, shared, peer),
                    Some(Ok(state)) => MoveReply::Held { bytes: state.bytes },
                    Some(Err(reply)) => reply,
                    None => MoveReply::Pending,
                }
            }
            MoveRequest::Read { offset } => {
                let found = self.read(*offset);
                found.unwrap_or_else(|error| refused(format!("cannot read the session's state: {error}")))
            }
            MoveRequest::Proceed => {
                // It may have waited for this too long.
                if let Some(Err(reply)) = self.progress.change(|progress| checkpoint_of(progress)) {
                    return reply;
                }
                self.has_proceeded = true;
                if let Destination::Fork(_) = self.destination {
                    // The worker writes it as soon as it is read, and goes on by itself.
                    return MoveReply::Done;
                }
                match messages::send(&self.control, &ToWorker::Proceed { number: self.number }, None) {
                    Ok(()) => MoveReply::Done,
                    Err(_) => MoveReply::Ended,
                }
            }
            MoveRequest::Where => {
                self.progress.wait_for(WAIT, |progress| whereabouts(progress)).unwrap_or(MoveReply::Pending)
            }
            MoveRequest::Leave => {
                // A worker that has ended needs no word.
                let why = "the session continues at another server".to_owned();
                let _ = messages::send(&self.control, &ToWorker::Leave { why }, None);
                MoveReply::Done
            }
            _ => refused("this request does not apply to a session that is held"),
        }
    }

    /// The answer about a session that ends only once a trial has shown that its state can be taken up here;
    /// it would be lost otherwise.
    fn tried(&mut self, state: WrittenState, shared: &Arc<Shared>, peer: Origin) -> MoveReply {
        let session = self.session;
        let outcome = match &self.trial {
            Some(trial) => trial.outcome(state, WAIT),
            None => {
                let Destination::File(file) = &self.destination else {
                    return refused("the state of a fork is not tried");
                };
                let owner = shared.sessions.peer(session).unwrap_or(peer);
                Trial::start(file, shared, owner).map(|trial| self.trial = Some(trial)).err().map(Err)
            }
        };
        match outcome {
            None => MoveReply::Pending,
            Some(Ok(())) => MoveReply::Held { bytes: state.bytes },
            Some(Err(why)) => refused(why.to_string()),
        }
    }
}

/// What is known of the state of a session that is to be held, or the reply that there is none.
fn checkpoint_of(progress: &MoveProgress) -> Option<Result<WrittenState, MoveReply>> {
    match &progress.checkpoint {
        Some(Ok(state)) => Some(Ok(*state)),
        Some(Err(why)) => Some(Err(refused(why))),
        None if progress.has_ended => Some(Err(MoveReply::Ended)),
        None => None,
    }
}

/// What is known of where a session is whose client was let go.
fn whereabouts(progress: &MoveProgress) -> Option<MoveReply> {
    match (&progress.returned, &progress.checkpoint) {
        // The worker had waited too long when it was to let its client go.
        (Some(text), _) | (None, Some(Err(text))) => Some(MoveReply::Returned { text: text.as_str().into() }),
        _ => progress.has_ended.then_some(MoveReply::Ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::messages::ToBroker;

    #[test]
    fn a_session_that_was_held_too_long_is_here_whenever_the_caller_asks() {
        let state = MoveState::default();
        state.change(|progress| progress.number = 2);
        let written = Ok(WrittenState { bytes: 5, has_variables: false });
        let say = |number, outcome| state.receive(ToBroker::Checkpointed { number, outcome });
        let known = || state.change(|progress| (checkpoint_of(progress), whereabouts(progress)));
        say(2, written.clone());
        assert_eq!(known(), (Some(written.map_err(refused)), None));
        say(1, Err("of one before".to_owned()));
        assert!(matches!(known(), (Some(Ok(_)), None)));
        say(2, Err("it was not decided".to_owned()));
        let (checkpoint, whereabouts) = known();
        let reply = checkpoint.expect("it is known").expect_err("it goes on here");
        assert!(
            matches!(&reply, MoveReply::Refused { text } if text.as_str().ends_with("it was not decided"))
        );
        assert!(matches!(whereabouts, Some(MoveReply::Returned { .. })));
    }
}
