//! Progress of a session's move, as its worker says and as the caller waits for.

use std::time::Duration;

use crate::locks::{Monitor, rank};
use crate::protocol::messages::{NotTakenUp, ToBroker, WrittenState};

/// What has come of it so far.
#[derive(Debug, Default)]
pub struct MoveProgress {
    /// Whether a caller has the session held.
    pub is_held: bool,
    /// The number of the checkpoint that is wanted.
    pub number: u32,
    /// Whether nothing of it is under way, and its state is about to be written.
    pub is_quiet: bool,
    /// The state that was written, or why it was not.
    pub checkpoint: Option<Result<WrittenState, String>>,
    /// Why the client has come back.
    pub returned: Option<String>,
    /// Whether the session was taken up here, or why not.
    pub restored: Option<Result<(), NotTakenUp>>,
    /// Whether its client has come here.
    pub has_arrived: bool,
    /// Whether the worker has ended.
    pub has_ended: bool,
    /// Why the session that is taken up here is not to stay, if so.
    pub unwanted: Option<&'static str>,
}

/// The progress of one session's move.
#[derive(Debug, Default)]
pub struct MoveState(Monitor<rank::Leaf, MoveProgress>);

impl MoveState {
    /// Changes it, and wakes waiting threads.
    pub fn change<R>(&self, change: impl FnOnce(&mut MoveProgress) -> R) -> R {
        self.0.change(change)
    }

    /// Waits until `found` gives something, but no longer than `timeout`.
    pub fn wait_for<R>(
        &self,
        timeout: Duration,
        found: impl FnMut(&mut MoveProgress) -> Option<R>,
    ) -> Option<R> {
        self.0.wait_for(timeout, found)
    }

    /// Takes in what the worker says.
    pub fn receive(&self, message: ToBroker) {
        self.change(|progress| match message {
            ToBroker::Checkpointed { number, outcome } if number == progress.number => {
                progress.checkpoint = Some(outcome);
            }
            ToBroker::Quiet { number } if number == progress.number => progress.is_quiet = true,
            ToBroker::ClientReturned { text } => progress.returned = Some(text),
            ToBroker::Restored { refused } => {
                progress.restored = Some(refused.map_or(Ok(()), Err));
            }
            ToBroker::Arrived => progress.has_arrived = true,
            _ => {}
        });
    }
}
