//! Session clock: whether a session has been open, or idle, for as long as it may.

use std::time::{Duration, Instant};

use causeway_access::keys::groups::{GroupName, PeerLimits};
use causeway_config::TimeSpan;
use thiserror::Error;

use crate::activity::Counts;

/// Why a session ends; sentences for the client's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TimeIsOver {
    /// It has been open for as long as it may.
    #[error("it was open for {}, the maximum that the server's owner allows (`session-time`{})", TimeSpan(*.0), of(*.1))]
    Open(Duration, Option<GroupName>),
    /// Nothing has happened in it for as long as that may be.
    #[error("it was idle for {}, the maximum that the server's owner allows (`idle-timeout`{})", TimeSpan(*.0), of(*.1))]
    Idle(Duration, Option<GroupName>),
}

impl TimeIsOver {
    /// The same for logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Open(_, None) => "it was open for the maximum time of its client's sessions (session-time)",
            Self::Open(_, Some(_)) => {
                "it was open for the maximum time of its group's sessions (session-time)"
            }
            Self::Idle(_, None) => "it was idle for the maximum time of its client's sessions (idle-timeout)",
            Self::Idle(_, Some(_)) => {
                "it was idle for the maximum time of its group's sessions (idle-timeout)"
            }
        }
    }
}

/// Names the group whose limit it is.
fn of(group: Option<GroupName>) -> String {
    group.map(|group| format!(" of group {group}")).unwrap_or_default()
}

/// Whether sessions end by themselves after a time.
pub fn has_time_limit(limits: &PeerLimits) -> bool {
    limits.lowest(|limits| limits.idle_timeout).is_some()
        || limits.lowest(|limits| limits.session_time).is_some()
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
    pub fn look(&mut self, now: Instant, counts: Option<&Counts>, limits: &PeerLimits) -> Option<TimeIsOver> {
        let commands = counts.map(|counts| counts.posted.wrapping_add(counts.called));
        if commands != Some(self.commands) || counts.is_none_or(Counts::is_waiting) {
            self.idle_since = now;
            self.commands = commands.unwrap_or(0);
        }
        let is_over = |since: Instant, limit: Duration| now.saturating_duration_since(since) >= limit;
        let open = limits.lowest(|limits| limits.session_time);
        let open = open.filter(|(limit, _)| is_over(self.started_at, *limit));
        let idle = limits.lowest(|limits| limits.idle_timeout);
        let idle = idle.filter(|(limit, _)| is_over(self.idle_since, *limit));
        let open = open.map(|(limit, group)| TimeIsOver::Open(limit, group));
        open.or_else(|| idle.map(|(limit, group)| TimeIsOver::Idle(limit, group)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::keys::limits::ClientLimits;

    fn own(own: ClientLimits) -> PeerLimits {
        PeerLimits { own, group: None }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_is_idle_while_no_command_comes_or_waits() {
        let start = Instant::now();
        let limits = own(ClientLimits { idle_timeout: Some(10 * SECOND), ..ClientLimits::default() });
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
        assert_eq!(look(50, Some(&answered)), Some(TimeIsOver::Idle(10 * SECOND, None)));
        assert_eq!(look(51, None), None, "nothing is known");
    }

    #[test]
    fn a_session_is_open_for_no_longer_than_it_may() {
        let start = Instant::now();
        let mut clock = SessionClock::new(start);
        let limits = own(ClientLimits { session_time: Some(90 * SECOND), ..ClientLimits::default() });
        let mut look = |seconds, limits: &PeerLimits| clock.look(start + seconds * SECOND, None, limits);
        assert_eq!((look(89, &limits), look(1000, &PeerLimits::default())), (None, None));
        let over = look(90, &limits).unwrap();
        assert_eq!(over, TimeIsOver::Open(90 * SECOND, None));
        assert!(over.to_string().contains("open for 90s") && over.reason().contains("session-time"));
        let of_group = ClientLimits { session_time: Some(50 * SECOND), ..ClientLimits::default() };
        let limits = PeerLimits { group: Some(("staff".parse().unwrap(), of_group)), ..limits };
        let over = look(50, &limits).unwrap();
        assert!(
            over.to_string().contains("(`session-time` of group staff)")
                && over.reason().contains("its group's")
        );
        assert!(
            look(49, &limits).is_none() && has_time_limit(&limits) && !has_time_limit(&PeerLimits::default())
        );
    }
}
