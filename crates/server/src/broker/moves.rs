//! Moves of sessions to and from this server, for `causeway move`, `causeway checkpoint` and `causeway restore`.
//!
//! The caller carries the state from one server to the other. The session is held until the caller says that it may proceed; it
//! goes on here when the asker goes away before. Whom the session belongs to at the other server is the caller that brings it
//! there, by its own right to have sessions; its client comes by a secret that only the state and the client have.

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::target::random_bytes;
use causeway_sync::threads;
use causeway_wire::handshake::SessionId;
use causeway_wire::moves::{MAX_STATE_PIECE, MoveReply, MoveRequest};
use causeway_wire::relocation::Relocation;

use super::drain::may_drain;
use super::idle_release::{FOLDER, make_file};
use super::move_state::MoveState;
use super::session;
use super::shared::Shared;
use crate::admission::{Origin, SessionSlot, Source};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, CheckpointStart, NotTakenUp, ToWorker, WrittenState};
use crate::state_file::{StateHeader, StateReader};

/// States of at most so many bytes are tried whatever they hold.
const MAX_TRIED_BYTES: u64 = 1 << 30;

/// How long a trial may take: as long as it takes to load large code and to write all memory of a device.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(600);

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

/// A worker that takes up the state of a session which is to end, to see whether that can be done.
struct Trial {
    session: SessionId,
    progress: Arc<MoveState>,
    shared: Arc<Shared>,
    started_at: Instant,
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
        match start(self.shared, self.peer, header, file, Some(seat)) {
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
        leave(self.shared, session, &progress);
        MoveReply::Done
    }
}

impl Leaving {
    fn reply(&mut self, request: &MoveRequest, shared: &Arc<Shared>, peer: Origin) -> MoveReply {
        let session = self.session;
        match request {
            MoveRequest::IsHeld => {
                let found = self.progress.wait_for(WAIT, |progress| match &progress.checkpoint {
                    Some(Ok(state)) => Some(Ok(*state)),
                    Some(Err(why)) => Some(Err(refused(format!("session {session} is not moved: {why}")))),
                    None if progress.has_ended => Some(Err(MoveReply::Ended)),
                    None => None,
                });
                match found {
                    Some(Ok(state)) if self.stops && must_be_tried(state) => self
                        .refuse_by_trial(state, shared, peer)
                        .unwrap_or(MoveReply::Held { bytes: state.bytes }),
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
                self.has_proceeded = true;
                match messages::send(&self.control, &ToWorker::Proceed { number: self.number }, None) {
                    Ok(()) => MoveReply::Done,
                    Err(_) => MoveReply::Ended,
                }
            }
            MoveRequest::Where => {
                let found = self.progress.wait_for(WAIT, |progress| match &progress.returned {
                    Some(text) => Some(MoveReply::Returned { text: text.as_str().into() }),
                    None if progress.has_ended => Some(MoveReply::Ended),
                    None => None,
                });
                found.unwrap_or(MoveReply::Pending)
            }
            MoveRequest::Leave => {
                // A worker that has ended needs no word.
                let _ = messages::send(&self.control, &ToWorker::Leave, None);
                MoveReply::Done
            }
            _ => refused("that is no question about a session that is held"),
        }
    }
}

/// Whether a session may end only when a trial has shown that its state can be taken up again: where it depends on what
/// addresses the driver gives, and where the trial takes little memory. A large one without variables need not fit twice.
fn must_be_tried(state: WrittenState) -> bool {
    state.has_variables || state.bytes <= MAX_TRIED_BYTES
}

/// What a trial that failed says against the end of the session. Where nothing but memory is missing there is some when it
/// has ended.
fn why_not(failure: &NotTakenUp, state: WrittenState) -> Option<&str> {
    (state.has_variables || !failure.lacks_memory).then_some(failure.text.as_str())
}

impl Leaving {
    /// The answer as long as it is not known that the state can be taken up here; nothing once it is. The session ends
    /// then, and would be lost otherwise.
    fn refuse_by_trial(
        &mut self,
        state: WrittenState,
        shared: &Arc<Shared>,
        peer: Origin,
    ) -> Option<MoveReply> {
        let not_tried = |why: String| {
            refused(format!(
                "session {} stays: it is not known whether it can be taken up again: {why}",
                self.session
            ))
        };
        let trial = match &mut self.trial {
            Some(trial) => trial,
            none => {
                match Trial::start(&self.file, shared, shared.sessions.peer(self.session).unwrap_or(peer)) {
                    Ok(trial) => none.insert(trial),
                    Err(why) => return Some(not_tried(why)),
                }
            }
        };
        let outcome = trial.progress.wait_for(WAIT, |progress| match &progress.restored {
            Some(outcome) => Some(outcome.clone()),
            None => progress
                .has_ended
                .then(|| Err(NotTakenUp::from("the worker that was to do so has ended".to_owned()))),
        });
        let is_late = trial.started_at.elapsed() > TRIAL_TIMEOUT;
        match outcome {
            Some(Ok(())) if trial.is_over() => None,
            Some(Ok(())) | None if is_late => {
                Some(not_tried(format!("a trial here takes longer than {} s", TRIAL_TIMEOUT.as_secs())))
            }
            Some(Ok(())) | None => Some(MoveReply::Pending),
            Some(Err(why)) => why_not(&why, state).map(|why| {
                refused(format!(
                    "session {} is not moved: it could not be taken up again, as a trial here shows: {why}",
                    self.session
                ))
            }),
        }
    }
}

impl Trial {
    /// Starts a worker under another name, that the client does not find.
    fn start(file: &File, shared: &Arc<Shared>, peer: Origin) -> Result<Self, String> {
        let session = SessionId(random_bytes());
        let header = StateHeader { session, ..read_header(file)? };
        let file = OwnedFd::from(file.try_clone().map_err(|error| error.to_string())?);
        let progress = start(shared, peer, header, file, None).map_err(|error| error.to_string())?;
        Ok(Self { session, progress, shared: Arc::clone(shared), started_at: Instant::now() })
    }

    /// Ends the worker; whether it has ended, and its memory is free.
    fn is_over(&self) -> bool {
        self.end();
        self.progress.wait_for(WAIT, |progress| progress.has_ended.then_some(())).is_some()
    }

    fn end(&self) {
        leave(&self.shared, self.session, &self.progress);
    }
}

/// Starts a worker that takes up a session, with its place among those of its peer.
fn start(
    shared: &Arc<Shared>,
    peer: Origin,
    header: StateHeader,
    state: OwnedFd,
    seat: Option<SessionSlot>,
) -> io::Result<Arc<MoveState>> {
    let progress = Arc::<MoveState>::default();
    let (shared, moves) = (Arc::clone(shared), Arc::clone(&progress));
    threads::spawn("restored", move || {
        if let Some(worker) = session::run_restored(&shared, peer, header, state, &moves) {
            return shared.relatives.session_ends(worker, || drop(seat));
        }
        drop(seat);
    })?;
    Ok(progress)
}

/// Ends the worker of a session that is taken up here and not wanted, now or once it is among the sessions.
fn leave(shared: &Shared, session: SessionId, progress: &MoveState) {
    progress.change(|progress| progress.is_unwanted = true);
    if let Some((control, _)) = shared.sessions.move_state(session) {
        // A worker that has ended needs no word.
        let _ = messages::send(&control, &ToWorker::Leave, None);
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.end();
    }
}

/// The header of a state, by which its worker is started.
fn read_header(file: &File) -> Result<StateHeader, String> {
    use std::io::{Seek as _, SeekFrom};
    let read = || -> Result<StateHeader, Box<dyn core::error::Error>> {
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        let (_, header) = StateReader::begin(BufReader::new(&file))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(header)
    };
    read().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_fails_keeps_the_session_unless_memory_is_all_it_lacks() {
        let [small, with_variables, large] = [(1, false), (u64::MAX, true), (u64::MAX, false)]
            .map(|(bytes, has_variables)| WrittenState { bytes, has_variables });
        assert_eq!([small, with_variables, large].map(must_be_tried), [true, true, false]);
        let failed = |lacks_memory| NotTakenUp { text: "it fails".to_owned(), lacks_memory };
        assert_eq!(why_not(&failed(false), small), Some("it fails"));
        assert_eq!(why_not(&failed(true), small), None);
        assert_eq!(why_not(&failed(true), with_variables), Some("it fails"));
    }
}
