//! Session clock: whether a session has been open, or idle, for as long as it may.

use std::time::{Duration, Instant};

use causeway_access::keys::limits::ClientLimits;
use causeway_config::TimeSpan;
use thiserror::Error;

use crate::activity::Counts;

/// Why a session ends; sentences for the client's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TimeIsOver {
    /// It has been open for as long as it may.
    #[error("it was open for {}, which is all that the server's owner lets it (`session-time`)", TimeSpan(*.0))]
    Open(Duration),
    /// Nothing has happened in it for as long as that may be.
    #[error("nothing happened for {}, which is all that the server's owner lets it (`idle-timeout`)", TimeSpan(*.0))]
    Idle(Duration),
}

impl TimeIsOver {
    /// The same for logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Open(_) => "it was open for as long as its client's sessions may be (session-time)",
            Self::Idle(_) => "it was idle for as long as its client's sessions may be (idle-timeout)",
        }
    }
}

/// How long a session has been open, and since when it is idle: no command has come, and none waits for its answer.
#[derive(Debug)]
pub struct SessionClock {
    started_at: Instant,
    idle_since: Instant,
    /// How many commands had come when that was looked at last.
    commands: u64,
}

impl SessionClock {
    /// That of a session that began then.
    pub fn new(started_at: Instant) -> Self {
        Self { started_at, idle_since: started_at, commands: 0 }
    }

    /// Whether the session must end now, by what it has done. A session of which nothing is known is not idle.
    pub fn look(
        &mut self,
        now: Instant,
        counts: Option<&Counts>,
        limits: &ClientLimits,
    ) -> Option<TimeIsOver> {
        let commands = counts.map(|counts| counts.posted.wrapping_add(counts.called));
        if commands != Some(self.commands) || counts.is_none_or(Counts::is_waiting) {
            self.idle_since = now;
            self.commands = commands.unwrap_or(0);
        }
        let is_over = |since: Instant, limit: &Duration| now.saturating_duration_since(since) >= *limit;
        let open = limits.session_time.filter(|limit| is_over(self.started_at, limit)).map(TimeIsOver::Open);
        open.or_else(|| {
            limits.idle_timeout.filter(|limit| is_over(self.idle_since, limit)).map(TimeIsOver::Idle)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_is_idle_while_no_command_comes_or_waits() {
        let start = Instant::now();
        let limits = ClientLimits { idle_timeout: Some(10 * SECOND), ..ClientLimits::default() };
        let mut clock = SessionClock::new(start);
        let counts = |posted, called| Counts { posted, called, ..Counts::default() };
        let mut look =
            |seconds, counts: Option<&Counts>| clock.look(start + seconds * SECOND, counts, &limits);
        assert_eq!(look(9, Some(&counts(0, 0))), None);
        assert_eq!(look(10, Some(&counts(3, 0))), None, "commands have come");
        assert_eq!(look(19, Some(&counts(3, 0))), None);
        assert_eq!(look(20, Some(&counts(3, 1))), None, "one waits");
        assert_eq!(look(40, Some(&counts(3, 1))), None, "it waits still");
        let mut answered = counts(3, 1);
        answered.waits.add(SECOND);
        assert_eq!(look(49, Some(&answered)), None);
        assert_eq!(look(50, Some(&answered)), Some(TimeIsOver::Idle(10 * SECOND)));
        assert_eq!(look(51, None), None, "nothing is known");
    }

    #[test]
    fn a_session_is_open_for_no_longer_than_it_may() {
        let start = Instant::now();
        let mut clock = SessionClock::new(start);
        let limits = ClientLimits { session_time: Some(90 * SECOND), ..ClientLimits::default() };
        let mut look = |seconds, limits: &ClientLimits| clock.look(start + seconds * SECOND, None, limits);
        assert_eq!((look(89, &limits), look(1000, &ClientLimits::default())), (None, None));
        let over = look(90, &limits).unwrap();
        assert_eq!(over, TimeIsOver::Open(90 * SECOND));
        assert!(over.to_string().contains("open for 90s") && over.reason().contains("session-time"));
    }
}
