//! Accounting of a worker: as the session of its peer, or not at all.

use causeway_access::keys::groups::PeerLimits;
use causeway_access::keys::limits::ClientLimits;

use super::clients::AcceptedClients;
use crate::admission::{Origin, Source};

/// How a worker is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accounting {
    /// As the session of its peer.
    Session,
    /// Not at all: it only tries whether a session could be taken up.
    Trial,
}

impl Accounting {
    /// What the worker may have. A trial shares nothing with the sessions of its peer, but its memory is
    /// bounded as theirs.
    pub fn limits(self, clients: &AcceptedClients, peer: Origin) -> PeerLimits {
        let limits = clients.limits(Source::of(peer));
        match self {
            Self::Session => limits,
            Self::Trial => {
                let session_memory = limits.lowest(|limits| limits.session_memory).map(|(limit, _)| limit);
                PeerLimits { own: ClientLimits { session_memory, ..ClientLimits::default() }, group: None }
            }
        }
    }

    /// Whose device memory it has: that of a trial is not its peer's, whose session has the same memory.
    pub fn owner(self, peer: Source) -> Source {
        match self {
            Self::Session => peer,
            Self::Trial => Source::User(u32::MAX),
        }
    }
}
