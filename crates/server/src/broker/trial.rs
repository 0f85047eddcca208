//! Trial of a session's state: a second worker takes it up before the session may end by `causeway
//! checkpoint`.
//!
//! A trial is no session: it is not listed, counted, written to the audit log, or charged to the session's
//! peer.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::target::random_bytes;
use causeway_wire::handshake::SessionId;
use thiserror::Error;

use super::move_state::MoveState;
use super::restore::{self, Purpose, read_header};
use super::shared::Shared;
use crate::admission::Origin;
use crate::protocol::messages::{NotTakenUp, WrittenState};
use crate::state_file::StateHeader;

/// States of at most so many bytes are tried whatever they hold.
const MAX_TRIED_BYTES: u64 = 1 << 30;

/// How long a trial may take: as long as it takes to load large code and to write all memory of a device.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(600);

/// Why a session may not end; sentences behind "session ... was not moved: ".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TrialFailed {
    /// No worker could be started for it.
    #[error("it is unknown whether it could be restored: {0}")]
    NotStarted(String),
    /// The trial takes too long.
    #[error(
        "it is unknown whether it could be restored: a trial here takes longer than {} s",
        TRIAL_TIMEOUT.as_secs()
    )]
    Late,
    /// It could not be taken up.
    #[error("it could not be restored, as a trial here shows: {0}")]
    NotTakenUp(String),
}

/// A worker that takes up the state of a session which is to end, to see whether that can be done. It ends
/// when this is dropped.
pub struct Trial {
    session: SessionId,
    progress: Arc<MoveState>,
    shared: Arc<Shared>,
    started_at: Instant,
}

/// Whether a session may end only when a trial has shown that its state can be taken up again: where it
/// depends on what addresses the driver gives, and where the trial takes little memory. A large one without
/// variables need not fit twice.
pub fn must_be_tried(state: WrittenState) -> bool {
    state.has_variables || state.bytes <= MAX_TRIED_BYTES
}

/// What a trial that failed says against the end of the session. Where nothing but memory is missing there is
/// some when it has ended.
fn why_not(failure: NotTakenUp, state: WrittenState) -> Result<(), TrialFailed> {
    if state.has_variables || !failure.lacks_memory {
        return Err(TrialFailed::NotTakenUp(failure.text));
    }
    Ok(())
}

impl Trial {
    /// Starts a worker under another name, that the client does not find.
    pub fn start(file: &File, shared: &Arc<Shared>, peer: Origin) -> Result<Self, TrialFailed> {
        let started = || -> Result<_, String> {
            let session = SessionId(random_bytes());
            let header = StateHeader { session, ..read_header(file)? };
            let file = OwnedFd::from(file.try_clone().map_err(|error| error.to_string())?);
            let progress = restore::start(shared, peer, header, file, Purpose::Trial);
            Ok((session, progress.map_err(|error| error.to_string())?))
        };
        let (session, progress) = started().map_err(TrialFailed::NotStarted)?;
        Ok(Self { session, progress, shared: Arc::clone(shared), started_at: Instant::now() })
    }

    /// Whether the session may end, after at most twice `timeout`; nothing as long as that is not known.
    pub fn outcome(&self, state: WrittenState, timeout: Duration) -> Option<Result<(), TrialFailed>> {
        let outcome = self.progress.wait_for(timeout, |progress| match &progress.restored {
            Some(outcome) => Some(outcome.clone()),
            None => progress
                .has_ended
                .then(|| Err(NotTakenUp::from("the worker that was to do so has ended".to_owned()))),
        });
        match outcome {
            Some(Err(failure)) => Some(why_not(failure, state)),
            Some(Ok(())) if self.is_over(timeout) => Some(Ok(())),
            Some(Ok(())) | None => {
                (self.started_at.elapsed() > TRIAL_TIMEOUT).then_some(Err(TrialFailed::Late))
            }
        }
    }

    /// Ends the worker; whether it has ended, and its memory is free.
    fn is_over(&self, timeout: Duration) -> bool {
        self.end();
        self.progress.wait_for(timeout, |progress| progress.has_ended.then_some(())).is_some()
    }

    fn end(&self) {
        restore::leave(&self.shared, self.session, &self.progress, "the trial of a session's state is over");
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.end();
    }
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
        let fails = Err(TrialFailed::NotTakenUp("it fails".to_owned()));
        assert_eq!(why_not(failed(false), small), fails);
        assert_eq!(why_not(failed(true), small), Ok(()));
        assert_eq!(why_not(failed(true), with_variables), fails);
    }
}
