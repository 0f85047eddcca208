//! Incoming session: one that a caller brings from another server or from a file.
//!
//! Its state goes to its worker through a pipe as it comes, so that the worker starts, and loads code, before all of it is
//! here, and this server keeps none of it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_wire::handshake::SessionId;
use causeway_wire::moves::{MoveReply, QUIET_TIMEOUT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use super::move_state::MoveState;
use super::restore::{self, Purpose};
use super::shared::Shared;
use crate::admission::{Origin, SessionSlot, Source};
use crate::protocol::messages::Carried;
use crate::state_file::{MAX_HEADER, StateFileError, StateHeader, StateReader};

/// How long an answer is waited for before the caller learns that it is pending.
pub const WAIT: Duration = Duration::from_millis(100);

/// How long a worker may take none of the state: as long as it takes to load large code.
const TAKE_TIMEOUT: Duration = Duration::from_secs(600);

/// What a pipe holds, where the system allows: a piece of the state.
pub const PIPE_SIZE: usize = 1 << 20;

/// The most bytes of a state in which there is a header.
const MAX_BEGINNING: usize = MAX_HEADER + 64;

/// How long the state's header may take to come. Its session may be busy before it is held, and is asked to stop only
/// once this server has a slot for it.
const HEADER_TIMEOUT: Duration = QUIET_TIMEOUT.saturating_mul(4);

/// A session that comes.
pub struct IncomingSession {
    /// Its place among the sessions of its peer, until it is started.
    slot: Option<SessionSlot>,
    stage: Stage,
}

/// How far it is.
enum Stage {
    /// The first bytes of its state, in which there is no whole header yet.
    Beginning { bytes: Vec<u8>, since: Instant },
    /// Its worker reads the state.
    Started { session: SessionId, progress: Arc<MoveState>, state: Option<File> },
}

const DRAINED: &str = "the server is being drained and accepts no sessions";

fn refused(text: impl Into<String>) -> MoveReply {
    MoveReply::Refused { text: text.into().into() }
}

impl IncomingSession {
    /// Awaits the state of one from a peer.
    ///
    /// # Errors
    /// Why the peer may have none, for people.
    pub fn begin(shared: &Arc<Shared>, peer: Origin) -> Result<Self, String> {
        if shared.config.keepalive.resume == 0 {
            return Err(
                "the server does not resume sessions (--resume-timeout 0), which a move requires".to_owned()
            );
        }
        // Before anything comes, so that a peer has no more of them than sessions.
        let slot = Some(shared.take_slot(peer).map_err(|why| why.to_string())?);
        // With the slot: a drain waits for who has one, and who comes later sees that it has begun.
        if shared.drain.is_started() {
            return Err(DRAINED.to_owned());
        }
        Ok(Self { slot, stage: Stage::Beginning { bytes: Vec::new(), since: Instant::now() } })
    }

    /// How long its header may still take to come; nothing once it has a worker.
    pub fn time_left(&self) -> Option<Duration> {
        match &self.stage {
            Stage::Beginning { since, .. } => Some(HEADER_TIMEOUT.saturating_sub(since.elapsed())),
            Stage::Started { .. } => None,
        }
    }

    /// Takes the next bytes of its state.
    pub fn write(&mut self, shared: &Arc<Shared>, peer: Origin, bytes: &[u8]) -> MoveReply {
        self.pace(shared, peer, bytes.len());
        if let Stage::Beginning { bytes: beginning, .. } = &mut self.stage {
            beginning.extend_from_slice(bytes);
            let header = match StateReader::begin(&beginning[..]) {
                Ok((_, header)) => header,
                Err(StateFileError::CutShort) if beginning.len() < MAX_BEGINNING => return MoveReply::Done,
                Err(why) => return refused(why.to_string()),
            };
            let beginning = core::mem::take(beginning);
            return match self.start(shared, peer, header) {
                Ok(()) => self.pass_on(&beginning),
                Err(why) => refused(why),
            };
        }
        self.pass_on(bytes)
    }

    /// Waits until the peer may bring so many bytes more.
    fn pace(&self, shared: &Shared, peer: Origin, bytes: usize) {
        let source = Source::of(peer);
        let limits = shared.clients.limits(source);
        let carried = Carried { is_received: true, is_bulk: true, bytes: bytes as u64 };
        std::thread::sleep(shared.bandwidth.carried(source, carried, &limits));
    }

    /// Starts its worker.
    fn start(&mut self, shared: &Arc<Shared>, peer: Origin, header: StateHeader) -> Result<(), String> {
        let session = header.session;
        if shared.drain.is_started() {
            return Err(DRAINED.to_owned());
        }
        if shared.sessions.move_state(session).is_some() {
            return Err(format!("session {session} is already here"));
        }
        let (input, output) = pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| format!("cannot create a pipe for the session's state: {error}"))?;
        // Where a user has too many pipes it is slower.
        let _ = fcntl_setpipe_size(&output, PIPE_SIZE);
        rustix::io::ioctl_fionbio(&output, true)
            .map_err(|error| format!("cannot create a pipe for the session's state: {error}"))?;
        let Some(slot) = self.slot.take() else { return Err("the session has already arrived".to_owned()) };
        tracing::info!(%peer, %session, "a session arrives from another server or a file");
        let progress = restore::start(shared, peer, header, input, Purpose::Client(slot))
            .map_err(|error| format!("cannot start a thread for the session: {error}"))?;
        self.stage = Stage::Started { session, progress, state: Some(File::from(output)) };
        Ok(())
    }

    /// Passes bytes on to its worker.
    fn pass_on(&mut self, bytes: &[u8]) -> MoveReply {
        let Stage::Started { progress, state, .. } = &mut self.stage else {
            return refused("the session's state has no header");
        };
        let Some(pipe) = state else { return refused("the session has already arrived") };
        match write_all(pipe, bytes) {
            Ok(()) => MoveReply::Done,
            Err(error) => {
                *state = None;
                // The worker says why it reads no further.
                let reason = progress.wait_for(WAIT, |progress| match &progress.restored {
                    Some(Err(why)) => Some(why.text.clone()),
                    _ => progress.has_ended.then(|| "its worker has ended".to_owned()),
                });
                refused(reason.unwrap_or_else(|| format!("cannot send the state to its worker: {error}")))
            }
        }
    }

    /// All of its state has come.
    pub fn finish(&mut self) -> MoveReply {
        match &mut self.stage {
            Stage::Beginning { .. } => refused(StateFileError::CutShort.to_string()),
            Stage::Started { state, .. } => match state.take() {
                Some(_) => MoveReply::Pending,
                None => refused("the session has already arrived"),
            },
        }
    }

    /// Whether it has been taken up, and its client has come.
    pub fn is_restored(&self) -> MoveReply {
        let Stage::Started { session, progress, .. } = &self.stage else {
            return refused("this peer has not sent a session");
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

    /// Ends it, unless its client has come.
    pub fn abandon(self, shared: &Shared) -> MoveReply {
        let Stage::Started { session, progress, .. } = self.stage else { return MoveReply::Done };
        if progress.change(|progress| progress.has_arrived) {
            return MoveReply::Arrived { session };
        }
        tracing::info!(%session, "the arriving session was discarded");
        restore::leave(shared, session, &progress, "the session that arrived here was discarded");
        MoveReply::Done
    }
}

/// Writes to a pipe that does not wait, as long as the other end takes something now and then.
fn write_all(mut pipe: &File, mut bytes: &[u8]) -> io::Result<()> {
    let mut taken_at = Instant::now();
    while !bytes.is_empty() {
        match pipe.write(bytes) {
            Ok(count) => {
                bytes = &bytes[count..];
                taken_at = Instant::now();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = TAKE_TIMEOUT.saturating_sub(taken_at.elapsed());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
                let mut descriptors = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::OUT)];
                match poll(&mut descriptors, Some(&timeout)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
