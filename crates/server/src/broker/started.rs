//! Handles of a started worker process.

use std::process::Child;

use causeway_sandbox::Jail;

use super::worker_log::WorkerLog;
use crate::protocol::control::Control;

/// A process that the broker has started, confined, and told nothing yet.
pub struct Started {
    /// The process.
    pub child: Child,
    /// How it is reached.
    pub control: Control,
    /// What it has until it has ended.
    pub jail: Jail,
    /// Its log lines.
    pub log: WorkerLog,
}

impl Started {
    /// Ends the process, which nobody needs.
    pub fn discard(mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            tracing::warn!("a process that is not needed cannot be ended: {error}");
        }
    }
}
