//! Forks of sessions, from the request of the parent's program until the child's comes for its session.
//!
//! The parent's worker writes the session's state into a pipe, whose other end is kept here with the place
//! that the child's session has among those of its peer. Both programs are the same source, and a state is
//! given out once. Where no program comes for it the pipe is closed, which has the parent's session go on.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use causeway_wire::handshake::{LaneToken, SessionId};

use crate::admission::{SessionSlot, Source};
use crate::locks::{Mutex, rank};

/// A session that is to begin with the state of another one.
pub struct Fork {
    /// The other one.
    pub parent: SessionId,
    /// Where its state is read.
    pub state: OwnedFd,
    /// The place of the new session.
    pub slot: SessionSlot,
}

struct Awaited {
    ticket: LaneToken,
    source: Source,
    deadline: Instant,
    fork: Fork,
}

/// The forks whose program has not come yet. There are no more than sessions, as each has its place already.
#[derive(Default)]
pub struct Forks(Mutex<rank::Leaf, Vec<Awaited>>);

impl Forks {
    /// How long a program may take to come for its session.
    pub const TIMEOUT: Duration = Duration::from_secs(15);

    /// A program of this source will come with this ticket.
    pub fn add(&self, ticket: LaneToken, source: Source, fork: Fork) {
        self.0.lock().push(Awaited { ticket, source, deadline: Instant::now() + Self::TIMEOUT, fork });
    }

    /// The fork for which a program of this source comes with this ticket, once.
    pub fn take(&self, ticket: LaneToken, source: Source) -> Option<Fork> {
        let mut forks = self.0.lock();
        let index = forks.iter().position(|fork| fork.ticket == ticket && fork.source == source)?;
        Some(forks.swap_remove(index).fork)
    }

    /// The program with this ticket is not awaited any more.
    pub fn abandon(&self, ticket: LaneToken) {
        // What is dropped closes a pipe and gives a place back, without the lock.
        let _abandoned: Vec<Awaited> = self.0.lock().extract_if(.., |fork| fork.ticket == ticket).collect();
    }

    /// Whether any is awaited.
    pub fn is_any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Forks whose time is over are not awaited any more.
    pub fn abandon_late(&self) {
        let now = Instant::now();
        let _abandoned: Vec<Awaited> = self.0.lock().extract_if(.., |fork| now >= fork.deadline).collect();
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::pipe;

    use super::*;
    use crate::admission::{Admission, Limits, RequestedLimits};
    use causeway_access::keys::groups::PeerLimits;

    #[test]
    fn a_state_goes_once_to_the_source_of_the_parent() {
        let requested = RequestedLimits { handshakes: 4, sessions: Some(2), sessions_per_peer: 2 };
        let admission = Admission::new(Limits::divide(1024, &requested).unwrap());
        let (forks, ticket, ada) = (Forks::default(), LaneToken([1; 32]), Source::User(1));
        let add = || {
            let (state, output) = pipe().unwrap();
            let slot = admission.take_session(ada, &PeerLimits::default()).unwrap();
            forks.add(ticket, ada, Fork { parent: SessionId([7; 16]), state, slot });
            output
        };
        let _output = add();
        assert!(forks.take(ticket, Source::User(2)).is_none());
        assert!(forks.take(LaneToken([2; 32]), ada).is_none());
        let fork = forks.take(ticket, ada).unwrap();
        assert!(fork.parent == SessionId([7; 16]) && forks.take(ticket, ada).is_none());
        assert_eq!(admission.sessions(), 1, "it has its place before its program comes");
        drop(fork);
        // The parent's worker notices it.
        let output = add();
        forks.abandon_late();
        assert_eq!(rustix::io::write(&output, &[1]), Ok(1));
        forks.abandon(ticket);
        assert_eq!(rustix::io::write(&output, &[1]), Err(rustix::io::Errno::PIPE));
        assert_eq!(admission.sessions(), 0);
    }
}
