//! Limits of descriptors: how many each purpose of the broker may take, and so how many connections, sessions
//! and exports there can be.
//!
//! Everything that a peer can make the broker keep costs descriptors, and a broker without any accepts
//! no connection. So they are divided up once, when the broker starts, and each purpose stays within its part.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// What the broker has open whoever calls: standard streams, listeners, the log, the control sockets of the
/// monitor and of the worker that is kept ready, and the pipes of a process that is being started.
const OWN: usize = 64;

/// Descriptors of a process that makes a diagnosis, while it starts: two ends of its control socket, the
/// connection twice, and a pipe.
const DIAGNOSIS: usize = 6;

/// Diagnoses at the same time.
pub const DIAGNOSES: usize = 4;

/// Those of one peer.
pub const DIAGNOSES_PER_PEER: usize = 2;

/// Descriptors of a caller that shakes hands: its connection, once more for the encrypted part, and once more
/// to end it by.
const HANDSHAKE: usize = 3;

/// A caller that gives way keeps its slot until its thread has ended, so there are twice as many for a
/// moment.
const SLOTS_WHILE_CLOSING: usize = 2;

/// Descriptors of a session: its control socket and its process; while it starts the connection twice and the
/// worker's end of the control socket; and one that its worker has just sent.
const SESSION: usize = 6;

/// The most sessions unless somebody asks for more. Each has a thread here and a process beside.
const DEFAULT_MAX_SESSIONS: usize = 4096;

/// The most exports: each takes up to a kilobyte of memory besides its descriptor.
const MAX_EXPORTS: usize = 65_536;

/// The most of them that one session has, where there are enough.
const MAX_EXPORTS_PER_SESSION: usize = 4096;

/// Fewer descriptors than this are not worth dividing up.
pub const MIN_DESCRIPTORS: usize = 256;

/// What the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestedLimits {
    /// The most callers from the network that shake hands at the same time.
    pub handshakes: usize,
    /// The most sessions; as many as usual, or as the descriptors allow, if not given.
    pub sessions: Option<usize>,
    /// The most sessions of one peer.
    pub sessions_per_peer: usize,
}

/// How much there may be of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Callers from the network that shake hands at the same time.
    pub network_handshakes: usize,
    /// Callers at sockets of this host that do.
    pub local_handshakes: usize,
    /// Sessions.
    pub sessions: usize,
    /// Sessions of one peer.
    pub sessions_per_peer: usize,
    /// Exports of sessions to each other.
    pub exports: usize,
    /// Those of one session.
    pub exports_per_session: usize,
}

/// Why there are no limits that suit the user and the system.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LimitsError {
    /// The system gives the broker hardly any descriptors.
    #[error(
        "the server needs at least {MIN_DESCRIPTORS} descriptors, and the system allows {found}: raise the \
         hard limit of open files (`ulimit -Hn`, LimitNOFILE= of systemd)"
    )]
    TooFewDescriptors {
        /// How many it may have.
        found: usize,
    },
    /// More sessions are asked for than there are descriptors.
    #[error(
        "--max-sessions {requested} needs more than the {descriptors} descriptors that the system allows, \
         which suffice for {max}: give a smaller number, or raise the hard limit of open files (`ulimit \
         -Hn`, LimitNOFILE= of systemd)"
    )]
    TooManySessions {
        /// How many sessions are asked for.
        requested: usize,
        /// For how many there are descriptors.
        max: usize,
        /// How many descriptors there are.
        descriptors: usize,
    },
}

impl Limits {
    /// Divides `descriptors` up: what the broker has anyway comes first; callers from the network get an
    /// eighth of the rest at most and local ones half of that; of what is left then sessions get half, or up
    /// to three quarters if so many are asked for, and exports all else.
    pub fn divide(descriptors: usize, requested: &RequestedLimits) -> Result<Self, LimitsError> {
        if descriptors < MIN_DESCRIPTORS {
            return Err(LimitsError::TooFewDescriptors { found: descriptors });
        }
        let rest = descriptors - OWN - DIAGNOSES * DIAGNOSIS;
        let slot = HANDSHAKE * SLOTS_WHILE_CLOSING;
        let network_handshakes = requested.handshakes.clamp(1, rest / 8 / slot);
        let local_handshakes = requested.handshakes.div_ceil(4).clamp(1, rest / 16 / slot);
        let rest = rest - (network_handshakes + local_handshakes) * slot;
        let sessions = match requested.sessions {
            None => (rest / 2 / SESSION).min(DEFAULT_MAX_SESSIONS),
            Some(requested) => {
                let max = rest / 4 * 3 / SESSION;
                if requested > max {
                    return Err(LimitsError::TooManySessions { requested, max, descriptors });
                }
                requested
            }
        };
        let exports = (rest - sessions * SESSION).min(MAX_EXPORTS);
        Ok(Self {
            network_handshakes,
            local_handshakes,
            sessions,
            sessions_per_peer: requested.sessions_per_peer.min(sessions),
            exports,
            exports_per_session: exports.div_ceil(4).min(MAX_EXPORTS_PER_SESSION),
        })
    }

    /// The most descriptors that the broker has when everything is taken.
    #[cfg(test)]
    fn descriptors(&self) -> usize {
        let handshakes = (self.network_handshakes + self.local_handshakes) * HANDSHAKE * SLOTS_WHILE_CLOSING;
        OWN + DIAGNOSES * DIAGNOSIS + handshakes + self.sessions * SESSION + self.exports
    }
}

/// More are of no use to the broker, and some programs walk through all that they could have.
const MAX_DESCRIPTORS: u64 = 1 << 20;

/// Raises the limit of this process, and of those that it starts, as far as the system lets it, and returns
/// it.
///
/// The usual soft limit of 1024 is kept low for programs that call `select`; nothing here does.
pub fn raise_limit() -> io::Result<usize> {
    let found = getrlimit(Resource::Nofile);
    // No limit at all is a limit that is not given.
    let reachable = found.maximum.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS);
    let now = found.current.unwrap_or(MAX_DESCRIPTORS);
    if now < reachable {
        setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), maximum: found.maximum })?;
    }
    Ok(usize::try_from(now.max(reachable).min(MAX_DESCRIPTORS)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: RequestedLimits =
        RequestedLimits { handshakes: 256, sessions: None, sessions_per_peer: 256 };

    #[test]
    fn a_usual_machine_serves_a_cluster() {
        let limits = Limits::divide(1 << 20, &DEFAULT).unwrap();
        assert_eq!((limits.network_handshakes, limits.local_handshakes), (256, 64));
        assert_eq!((limits.sessions, limits.sessions_per_peer), (4096, 256));
        assert_eq!((limits.exports, limits.exports_per_session), (65_536, 4096));
    }

    #[test]
    fn few_descriptors_leave_something_for_everybody() {
        let limits = Limits::divide(MIN_DESCRIPTORS, &DEFAULT).unwrap();
        assert!(limits.network_handshakes >= 2 && limits.local_handshakes >= 1, "{limits:?}");
        assert!(limits.sessions >= 8 && limits.exports_per_session >= 8, "{limits:?}");
        let too_few = Limits::divide(MIN_DESCRIPTORS - 1, &DEFAULT);
        assert_eq!(too_few, Err(LimitsError::TooFewDescriptors { found: MIN_DESCRIPTORS - 1 }));
    }

    #[test]
    fn more_sessions_than_there_are_descriptors_for_are_an_error_that_says_how_many_there_can_be() {
        let requested = |sessions| RequestedLimits { sessions: Some(sessions), ..DEFAULT };
        let error = Limits::divide(1024, &requested(4000)).unwrap_err();
        let LimitsError::TooManySessions { requested: 4000, max, descriptors: 1024 } = error else {
            panic!("another error: {error}");
        };
        assert!(error.to_string().contains(&format!("suffice for {max}:")), "{error}");
        assert_eq!(Limits::divide(1024, &requested(max)).unwrap().sessions, max);
        assert!(Limits::divide(1024, &requested(max + 1)).is_err());
    }

    proptest! {
        #[test]
        fn the_parts_are_never_more_than_the_whole(
            descriptors in MIN_DESCRIPTORS..2_000_000,
            handshakes in 0_usize..10_000,
            sessions in proptest::option::of(0_usize..100_000),
            sessions_per_peer in 0_usize..10_000,
        ) {
            let requested = RequestedLimits { handshakes, sessions, sessions_per_peer };
            let Ok(limits) = Limits::divide(descriptors, &requested) else {
                prop_assert!(sessions.is_some());
                return Ok(());
            };
            prop_assert!(limits.descriptors() <= descriptors, "{limits:?}");
            prop_assert!(limits.network_handshakes >= 1 && limits.local_handshakes >= 1);
            prop_assert!(limits.sessions_per_peer <= limits.sessions);
            // No session can take all that there is for exports.
            prop_assert!(limits.exports_per_session < limits.exports);
            prop_assert!(sessions.is_none_or(|requested| requested == limits.sessions));
        }
    }

    #[test]
    fn the_limit_is_what_the_system_allows() {
        let limit = raise_limit().unwrap();
        let found = getrlimit(Resource::Nofile);
        assert!(found.current.is_none_or(|current| current >= limit as u64));
        assert_eq!(limit as u64, found.maximum.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS));
    }
}
