//! Stages of a move in the log.

use std::time::Instant;

/// How long the stages of a move take, for the log.
pub struct Stages {
    what: &'static str,
    since: Instant,
}

impl Stages {
    /// The first stage begins.
    pub fn begin(what: &'static str) -> Self {
        Self { what, since: Instant::now() }
    }

    /// A stage has ended, and the next begins.
    pub fn end(&mut self, stage: &str) {
        let now = Instant::now();
        let milliseconds = now.duration_since(self.since).as_millis() as u64;
        tracing::debug!(stage, milliseconds, "the session's state is {}", self.what);
        self.since = now;
    }
}
