//! Moves of sessions to and from this server, for `causeway move`, `causeway checkpoint` and `causeway restore`.
//!
//! The caller carries the state from one server to the other. The session is held until the caller says that it may proceed; it
//! goes on here when the asker goes away before. Whom the session belongs to at the other server is the caller that brings it
//! there, by its own right to have sessions; its client comes by a secret that only the state and the client have.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use causeway_wire::handshake::SessionId;
use causeway_wire::moves::{MAX_STATE_PIECE, MoveReply, MoveRequest};
use causeway_wire::relocation::Relocation;

use super::drain::may_drain;
use super::idle_release::{FOLDER, make_file};
use super::move_state::{MoveProgress, MoveState};
use super::restore::{self, Purpose, read_header};
use super::shared::Shared;
use super::trial::{Trial, must_be_tried};
use crate::admission::{Origin, SessionSlot, Source};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, CheckpointStart, ToWorker, WrittenState};

/// How long an answer is waited for before the caller learns that it is pending.
const WAIT: Duration = Duration::from_millis(100);

/// The sessions that a caller moves.
pub struct Moves<'a> {
    shared: &'a Arc<Shared>,
    peer: Origin,
    leaving: Option<Leaving>,
    coming: Option<Coming>,
}

/// A session that is to go.
struct Leaving {
    session: SessionId,
    control: Arc<Control>,
    progress: Arc<MoveState>,
    number: u32,
    file: File,
    /// Whether it ends here, to be taken up some time.
    stops: bool,
    trial: Option<Trial>,
    has_proceeded: bool,
}

/// A session that comes.
struct Coming {
    file: File,
    bytes: u64,
    written: u64,
    /// Its place among the sessions of its peer, until it is started.
    seat: Option<SessionSlot>,
    started: Option<(SessionId, Arc<MoveState>)>,
}

fn refused(text: impl Into<String>) -> MoveReply {
    MoveReply::Refused { text: text.into().into() }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.has_proceeded {
            // A worker that has ended needs no word.
            let _ = messages::send(&self.control, &ToWorker::Stay { number: self.number }, None);
        }
        self.progress.change(|progress| progress.is_held = false);
    }
}

impl<'a> Moves<'a> {
    /// Nothing yet.
    pub fn new(shared: &'a Arc<Shared>, peer: Origin) -> Self {
        Self { shared, peer, leaving: None, coming: None }
    }

    /// Answers a question.
    pub fn reply(&mut self, request: MoveRequest) -> MoveReply {
        match request {
            MoveRequest::Hold { session, relocation, stops } => self.hold(session, relocation, stops),
            MoveRequest::TakeUp { bytes } => self.take_up(bytes),
            MoveRequest::Write { bytes } => self.write(&bytes),
            MoveRequest::Restore => self.restore(),
            MoveRequest::IsRestored => self.is_restored(),
            MoveRequest::Abandon => self.abandon(),
            MoveRequest::IsHeld
            | MoveRequest::Read { .. }
            | MoveRequest::Proceed
            | MoveRequest::Where
            | MoveRequest::Leave => match &mut self.leaving {
                None => refused("no session is held for this caller"),
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
            tracing::warn!(peer = %self.peer, %session, "a caller that may not asks for a session's state");
            return refused("only the server's own user and root may move its sessions, on its own host");
        }
        self.leaving = None;
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
                (progress.checkpoint, progress.returned) = (None, None);
                progress.number
            })
        });
        let Some(number) = number else {
            return refused(format!("session {session} is being moved already"));
        };
        let file = match self.make_file(0).and_then(|file| {
            let own = file.try_clone().map_err(|error| error.to_string())?;
            Ok((file, own))
        }) {
            Ok(files) => files,
            Err(why) => {
                progress.change(|progress| progress.is_held = false);
                return refused(why);
            }
        };
        tracing::info!(peer = %self.peer, %session, "a caller asks for the session's state");
        let (file, own) = file;
        let start = Box::new(CheckpointStart { number, relocation, stops });
        let own = OwnedFd::from(own);
        let sent = messages::send(&control, &ToWorker::Checkpoint(start), Some(&own));
        self.leaving = Some(Leaving {
            session,
            control,
            progress,
            number,
            file,
            stops,
            trial: None,
            has_proceeded: false,
        });
        match sent {
            Ok(()) => MoveReply::Pending,
            Err(error) => {
                self.leaving = None;
                refused(format!("the worker of session {session} cannot be asked: {error}"))
            }
        }
    }

    fn take_up(&mut self, bytes: u64) -> MoveReply {
        self.coming = None;
        if self.shared.drain.is_started() {
            return refused("the server is being drained, and takes no sessions");
        }
        if self.shared.config.keepalive.resume == 0 {
            return refused(
                "the server resumes no sessions (--resume-timeout 0), which one that is moved needs",
            );
        }
        // Before anything is written, so that a peer has no more files than sessions.
        let source = Source::of(self.peer);
        let seat = match self.shared.clients.limits(source).sessions {
            Some(limit) => self.shared.admission.take_session_of(source, limit),
            None => self.shared.admission.take_session(source),
        };
        let seat = match seat {
            Ok(seat) => Some(seat),
            Err(why) => return refused(why.to_string()),
        };
        match self.make_file(bytes) {
            Ok(file) => {
                self.coming = Some(Coming { file, bytes, written: 0, seat, started: None });
                MoveReply::Done
            }
            Err(why) => refused(why),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> MoveReply {
        let Some(coming) = self.coming.as_mut().filter(|coming| coming.started.is_none()) else {
            return refused("no session is awaited from this caller");
        };
        coming.written += bytes.len() as u64;
        if coming.written > coming.bytes {
            return refused("the session's state is longer than was said");
        }
        match coming.file.write_all(bytes) {
            Ok(()) => MoveReply::Done,
            Err(error) => refused(format!("the session's state cannot be written: {error}")),
        }
    }

    fn restore(&mut self) -> MoveReply {
        let Some(coming) = self.coming.as_mut().filter(|coming| coming.started.is_none()) else {
            return refused("no session is awaited from this caller");
        };
        let header = match read_header(&coming.file) {
            Ok(header) => header,
            Err(why) => return refused(why),
        };
        let session = header.session;
        let Some(seat) = coming.seat.take() else { return refused("the session was brought already") };
        let file = match coming.file.try_clone() {
            Ok(file) => OwnedFd::from(file),
            Err(error) => return refused(format!("the session's state cannot be read: {error}")),
        };
        if self.shared.sessions.move_state(session).is_some() {
            return refused(format!("session {session} is here already"));
        }
        tracing::info!(peer = %self.peer, %session, "a caller brings a session");
        match restore::start(self.shared, self.peer, header, file, Purpose::Client(seat)) {
            Ok(progress) => {
                coming.started = Some((session, progress));
                MoveReply::Pending
            }
            Err(error) => refused(format!("no thread can be started for the session: {error}")),
        }
    }

    fn is_restored(&self) -> MoveReply {
        let Some((session, progress)) = self.coming.as_ref().and_then(|coming| coming.started.as_ref())
        else {
            return refused("no session was brought by this caller");
        };
        let found = progress.wait_for(WAIT, |progress| match &progress.restored {
            Some(Err(why)) => Some(refused(why.text.as_str())),
            _ if progress.has_ended => Some(refused("the worker of the session has ended")),
            Some(Ok(())) if progress.has_arrived => Some(MoveReply::Arrived { session: *session }),
            Some(Ok(())) => Some(MoveReply::Done),
            None => None,
        });
        found.unwrap_or(MoveReply::Pending)
    }

    fn abandon(&mut self) -> MoveReply {
        let Some((session, progress)) = self.coming.take().and_then(|coming| coming.started) else {
            return MoveReply::Done;
        };
        if progress.change(|progress| progress.has_arrived) {
            return MoveReply::Arrived { session };
        }
        tracing::info!(%session, "a session that was brought is not wanted");
        restore::leave(self.shared, session, &progress, "the session that was brought here is not wanted");
        MoveReply::Done
    }
}

impl Leaving {
    fn reply(&mut self, request: &MoveRequest, shared: &Arc<Shared>, peer: Origin) -> MoveReply {
        let session = self.session;
        match request {
            MoveRequest::IsHeld => {
                let found = self.progress.wait_for(WAIT, |progress| checkpoint_of(progress, session));
                match found {
                    Some(Ok(state)) if self.stops && must_be_tried(state) => self.tried(state, shared, peer),
                    Some(Ok(state)) => MoveReply::Held { bytes: state.bytes },
                    Some(Err(reply)) => reply,
                    None => MoveReply::Pending,
                }
            }
            MoveRequest::Read { offset } => {
                let mut bytes = vec![0; MAX_STATE_PIECE];
                match self.file.read_at(&mut bytes, *offset) {
                    Ok(count) => {
                        bytes.truncate(count);
                        MoveReply::State { bytes }
                    }
                    Err(error) => refused(format!("the session's state cannot be read: {error}")),
                }
            }
            MoveRequest::Proceed => {
                // It may have waited for this too long.
                if let Some(Err(reply)) = self.progress.change(|progress| checkpoint_of(progress, session)) {
                    return reply;
                }
                self.has_proceeded = true;
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
                let why = "the session goes on at another server".to_owned();
                let _ = messages::send(&self.control, &ToWorker::Leave { why }, None);
                MoveReply::Done
            }
            _ => refused("that is no question about a session that is held"),
        }
    }

    /// The answer about a session that ends only once a trial has shown that its state can be taken up here;
    /// it would be lost otherwise.
    fn tried(&mut self, state: WrittenState, shared: &Arc<Shared>, peer: Origin) -> MoveReply {
        let session = self.session;
        let outcome = match &self.trial {
            Some(trial) => trial.outcome(state, WAIT),
            None => {
                let owner = shared.sessions.peer(session).unwrap_or(peer);
                Trial::start(&self.file, shared, owner).map(|trial| self.trial = Some(trial)).err().map(Err)
            }
        };
        match outcome {
            None => MoveReply::Pending,
            Some(Ok(())) => MoveReply::Held { bytes: state.bytes },
            Some(Err(why)) => refused(format!("session {session} is not moved: {why}")),
        }
    }
}

/// What is known of the state of a session that is to be held, or the reply that there is none.
fn checkpoint_of(progress: &MoveProgress, session: SessionId) -> Option<Result<WrittenState, MoveReply>> {
    match &progress.checkpoint {
        Some(Ok(state)) => Some(Ok(*state)),
        Some(Err(why)) => Some(Err(refused(format!("session {session} is not moved: {why}")))),
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
        let session = SessionId([7; 16]);
        let state = MoveState::default();
        state.change(|progress| progress.number = 2);
        let written = Ok(WrittenState { bytes: 5, has_variables: false });
        let say = |number, outcome| state.receive(ToBroker::Checkpointed { number, outcome });
        let known = || state.change(|progress| (checkpoint_of(progress, session), whereabouts(progress)));
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
