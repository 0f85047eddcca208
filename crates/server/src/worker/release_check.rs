//! Idle release decisions: whether the device memory of a session may go to the host now, and why not otherwise.

use std::time::{Duration, Instant};

use thiserror::Error;

/// Why device memory stays on the device; sentences for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotReleased {
    /// It is on the host already.
    #[error("its device memory has been released already")]
    Already,
    /// There is nothing to release.
    #[error("it has nothing on a device")]
    Nothing,
    /// Something is under way.
    #[error("it is busy: {0}")]
    Busy(Busy),
    /// Something keeps it from ever being released.
    #[error("it cannot be released: {0}")]
    Held(Held),
    /// The back end cannot, or has refused.
    #[error("it cannot be released: {0}")]
    BackEnd(String),
    /// The server has no place for it.
    #[error("it cannot be released: {0}")]
    Server(String),
}

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Busy {
    /// A message is being handled.
    #[error("a message of its program is being handled")]
    Message,
    /// A call waits.
    #[error("a call of its program waits for its result")]
    Call,
    /// Commands were deferred.
    #[error("commands wait for streams or for bytes")]
    Deferred,
    /// Bytes are coming or going.
    #[error("a transfer from or to its program is in progress")]
    Transfer,
    /// Slow commands.
    #[error("slow commands, such as the loading of code, are being executed")]
    Background,
    /// A stream has work, or has failed.
    #[error("a stream has unfinished work, waits for a host function, or has failed")]
    Stream,
}

/// What device memory is held by, for as long as the session lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Held {
    /// Other processes have its memory or events, or it has theirs.
    #[error("memory or events are shared with other processes (IPC, exported handles)")]
    Shared,
    /// Workers of other servers copy from it, or it from them.
    #[error("it copies from or to the GPUs of another server")]
    Peers,
    /// Network cards know its memory.
    #[error("network cards have registered its memory (RDMA)")]
    Rdma,
}

/// How long a session has been idle: no message has come, and nothing was under way.
#[derive(Debug)]
pub struct IdleClock {
    limit: Duration,
    idle_since: Instant,
    entries: u64,
    /// Not before this is it tried again.
    next_attempt: Instant,
    pause: Duration,
}

/// How long it takes at most until it is tried again to release what could not be.
const MAX_PAUSE: Duration = Duration::from_secs(600);

impl IdleClock {
    /// That of a session whose memory is released after `limit`.
    pub fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, idle_since: now, entries: 0, next_attempt: now, pause: limit }
    }

    /// How often it is looked.
    pub fn interval(&self) -> Duration {
        (self.limit / 8).clamp(Duration::from_millis(50), Duration::from_secs(5))
    }

    /// Whether the memory is to be released now, by how often the session has been entered and by what is under way.
    pub fn is_due(&mut self, now: Instant, entries: u64, busy: Option<Busy>) -> bool {
        if entries != self.entries || busy.is_some() {
            self.entries = entries;
            self.idle_since = now;
        }
        now.saturating_duration_since(self.idle_since) >= self.limit && now >= self.next_attempt
    }

    /// What has come of it. What was refused is tried again later, and ever more rarely.
    pub fn attempted(&mut self, now: Instant, outcome: &Result<(), NotReleased>) {
        match outcome {
            Err(NotReleased::Busy(_)) => self.idle_since = now,
            Err(NotReleased::Held(_) | NotReleased::BackEnd(_) | NotReleased::Server(_)) => {
                self.next_attempt = now + self.pause;
                self.pause = (self.pause * 2).min(MAX_PAUSE.max(self.limit));
            }
            Ok(()) | Err(NotReleased::Already | NotReleased::Nothing) => self.pause = self.limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_is_due_when_nothing_has_come_or_been_under_way_for_the_whole_time() {
        let start = Instant::now();
        let mut clock = IdleClock::new(10 * SECOND, start);
        let mut look = |seconds, entries, busy| clock.is_due(start + seconds * SECOND, entries, busy);
        assert!(!look(9, 0, None) && look(10, 0, None));
        assert!(!look(11, 7, None), "something has come");
        assert!(!look(20, 7, None) && look(21, 7, None));
        // A kernel that runs for long is no idle time, also not when it has just ended.
        assert!(!look(30, 8, Some(Busy::Stream)) && !look(60, 8, Some(Busy::Call)));
        assert!(!look(69, 8, None) && look(70, 8, None));
    }

    #[test]
    fn what_was_refused_is_tried_again_ever_more_rarely() {
        let start = Instant::now();
        let mut clock = IdleClock::new(10 * SECOND, start);
        let refused = Err(NotReleased::Server("no room".to_owned()));
        let mut attempts = Vec::new();
        for seconds in 0..4000 {
            let now = start + seconds * SECOND;
            if clock.is_due(now, 0, None) {
                clock.attempted(now, &refused);
                attempts.push(seconds);
            }
        }
        assert_eq!(attempts[..5], [10, 20, 40, 80, 160]);
        assert!(attempts.windows(2).all(|pair| pair[1] - pair[0] <= 600), "{attempts:?}");
        // A stream that is busy after all is one more idle time.
        let mut clock = IdleClock::new(10 * SECOND, start);
        assert!(clock.is_due(start + 10 * SECOND, 0, None));
        clock.attempted(start + 10 * SECOND, &Err(NotReleased::Busy(Busy::Stream)));
        assert!(!clock.is_due(start + 19 * SECOND, 0, None) && clock.is_due(start + 20 * SECOND, 0, None));
    }

    #[test]
    fn it_is_looked_often_enough_and_not_too_often() {
        let interval = |seconds| IdleClock::new(seconds * SECOND, Instant::now()).interval();
        assert_eq!(interval(1), Duration::from_millis(125));
        assert_eq!(interval(3600), 5 * SECOND);
    }
}
