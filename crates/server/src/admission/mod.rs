//! Admission control: limits of handshakes and sessions, in all and per peer.
//!
//! A peer may be hostile until it has proved its key, and may ask for more than its share afterwards. A
//! handshake takes a *handshake slot*: when all are taken, an unfinished handshake is evicted. A session takes a
//! *session slot*: when all are taken, the session is refused. Each source of connections may hold a limited
//! number of both. Their number follows from the number of descriptors that the broker may open.
//!
//! | module | contents |
//! | --- | --- |
//! | `limits` | Limits of descriptors: how many each purpose of the broker may take, and so how many connections, sessions and exports there can be |
//! | `source` | Origin of a connection (network address, or credentials of a local process), and the group of origins that share a limit |
//! | `handshake_slots` | Handshake slots: eviction of unfinished handshakes when all slots are in use |
//! | `session_slots` | Limits per peer: sessions, in all and of each peer, and attempts with invitations, which each peer may make at a rate |
//! | `handshakes` | Handshakes in progress, and closing of those that are evicted |
//!
//! All but the last two only decide.

pub mod handshake_slots;
mod handshakes;
pub mod limits;
pub mod session_slots;
pub mod source;

use std::sync::Arc;

use crate::locks::{Mutex, rank};
use causeway_access::keys::groups::{GroupName, PeerLimits};
use thiserror::Error;

pub use handshakes::{HandshakeSlot, Handshakes};
pub use limits::raise_limit;
pub use limits::{Limits, LimitsError, RequestedLimits};
pub use session_slots::Attempts;
pub use session_slots::{Full, SessionSlots};
pub use source::{LimitScope, Source};
pub use source::{NetworkAddress, Origin};

/// Who is let in by one broker.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    /// Callers from the network.
    pub network: Handshakes,
    /// Callers at sockets of this host.
    pub local: Handshakes,
    sessions: Arc<Mutex<rank::Leaf, SessionSlots>>,
    diagnoses: Arc<Mutex<rank::Leaf, SessionSlots>>,
}

/// A session slot that is taken; released when dropped.
#[derive(Debug)]
pub struct SessionSlot {
    slots: Arc<Mutex<rank::Leaf, SessionSlots>>,
    source: Source,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.slots.lock().release(self.source);
    }
}

/// Why a session is refused; sentences for the client's user.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionRefused {
    /// There are as many as there may be.
    #[error(
        "it already serves {max} sessions, its maximum: try again when one has ended, or start the server \
         with a higher --max-sessions"
    )]
    InAll {
        /// How many there may be.
        max: usize,
    },
    /// The peer has as many as one may have.
    #[error(
        "it already serves {max} sessions of {peer}, the maximum for one peer: end one, or start the server \
         with a higher --max-sessions-per-peer"
    )]
    OfPeer {
        /// How many one may have.
        max: usize,
        /// The peer.
        peer: Source,
    },
    /// The client has as many as the server's list of clients gives it.
    #[error(
        "it already serves {max} sessions of {client}, the maximum for this client: end one, or ask its \
         owner for a higher limit (`causeway client limit --sessions`)"
    )]
    OfClient {
        /// How many it may have.
        max: usize,
        /// The client.
        client: Source,
    },
    /// The client's group has as many as the server's list of clients gives it.
    #[error(
        "it serves {max} sessions of group {group}, which are all that its owner lets the members of this group have together: \
         end one, or ask for a greater limit (`sessions` of [groups.{group}] in the server's list of clients)"
    )]
    OfGroup {
        /// How many they may have.
        max: usize,
        /// The group.
        group: GroupName,
    },
}

/// Why a diagnosis is refused; sentences for the client's user.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DiagnosisRefused {
    /// There are as many as there may be.
    #[error("it already runs {} diagnoses, its maximum: try again in a minute", limits::DIAGNOSES)]
    InAll,
    /// The peer has as many as one may have.
    #[error(
        "it already runs {} diagnoses for {peer}, the maximum for one peer: try again in a minute",
        limits::DIAGNOSES_PER_PEER
    )]
    OfPeer {
        /// The peer.
        peer: Source,
    },
}

impl Admission {
    /// With all slots free.
    pub fn new(limits: Limits) -> Self {
        let slots = |max, of_source| Arc::new(Mutex::new(SessionSlots::new(max, of_source)));
        Self {
            limits,
            network: Handshakes::new(limits.network_handshakes),
            local: Handshakes::new(limits.local_handshakes),
            sessions: slots(limits.sessions, limits.sessions_per_peer),
            diagnoses: slots(limits::DIAGNOSES, limits::DIAGNOSES_PER_PEER),
        }
    }

    /// Sessions that have a slot, those included that are being started or have just ended.
    pub fn sessions(&self) -> usize {
        self.sessions.lock().taken()
    }

    /// Sessions that there may be.
    pub fn max_sessions(&self) -> usize {
        self.limits.sessions
    }

    /// Lets a peer have one more session, as far as it and its group may.
    pub fn take_session(&self, peer: Source, limits: &PeerLimits) -> Result<SessionSlot, SessionRefused> {
        let own = limits.own.sessions;
        let group = limits.group.map(|(name, limits)| (name, limits.sessions));
        let taken = self.sessions.lock().take_of(peer, own, group);
        taken.map_err(|full| match (full, own, group) {
            (Full::InAll, ..) => SessionRefused::InAll { max: self.limits.sessions },
            (Full::OfGroup, _, Some((group, Some(max)))) => SessionRefused::OfGroup { max, group },
            (_, Some(max), _) => SessionRefused::OfClient { max, client: peer },
            (_, None, _) => SessionRefused::OfPeer { max: self.limits.sessions_per_peer, peer },
        })?;
        Ok(SessionSlot { slots: Arc::clone(&self.sessions), source: peer })
    }

    /// Lets a peer have a diagnosis made.
    pub fn take_diagnosis(&self, peer: Source) -> Result<SessionSlot, DiagnosisRefused> {
        take(&self.diagnoses, peer).map_err(|full| match full {
            Full::InAll => DiagnosisRefused::InAll,
            Full::OfSource | Full::OfGroup => DiagnosisRefused::OfPeer { peer },
        })
    }
}

fn take(slots: &Arc<Mutex<rank::Leaf, SessionSlots>>, source: Source) -> Result<SessionSlot, Full> {
    slots.lock().take(source)?;
    Ok(SessionSlot { slots: Arc::clone(slots), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::keys::limits::ClientLimits;

    #[test]
    fn refusals_say_which_limit_it_is_and_seats_come_back() {
        let requested = RequestedLimits { handshakes: 4, sessions: Some(3), sessions_per_peer: 2 };
        let admission = Admission::new(Limits::divide(1024, &requested).unwrap());
        let (one, other) = (Source::User(1), Source::User(2));
        let first = admission.take_session(one, &PeerLimits::default()).unwrap();
        let second = admission.take_session(one, &PeerLimits::default()).unwrap();
        let refused = admission.take_session(one, &PeerLimits::default()).unwrap_err();
        assert_eq!(refused, SessionRefused::OfPeer { max: 2, peer: one });
        assert!(refused.to_string().contains("--max-sessions-per-peer"));
        let third = admission.take_session(other, &PeerLimits::default()).unwrap();
        let refused = admission.take_session(other, &PeerLimits::default()).unwrap_err();
        assert!(refused.to_string().ends_with("--max-sessions"), "{refused}");
        drop(first);
        let again = admission.take_session(other, &PeerLimits::default());
        assert!(again.is_ok() && admission.take_session(one, &PeerLimits::default()).is_err());
        drop((second, third));
    }

    #[test]
    fn where_one_peer_has_all_sessions_the_limit_of_all_is_named() {
        let requested = RequestedLimits { handshakes: 4, sessions: Some(1), sessions_per_peer: 64 };
        let admission = Admission::new(Limits::divide(1024, &requested).unwrap());
        let _only = admission.take_session(Source::User(1), &PeerLimits::default()).unwrap();
        assert_eq!(
            admission.take_session(Source::User(1), &PeerLimits::default()).unwrap_err(),
            SessionRefused::InAll { max: 1 }
        );
    }

    #[test]
    fn a_client_has_as_many_sessions_as_it_is_given() {
        let requested = RequestedLimits { handshakes: 4, sessions: Some(4), sessions_per_peer: 1 };
        let admission = Admission::new(Limits::divide(1024, &requested).unwrap());
        let ada = Source::Client("ada".parse().unwrap());
        let of = |sessions| ClientLimits { sessions, ..ClientLimits::default() };
        let own = |sessions| PeerLimits { own: of(Some(sessions)), group: None };
        let first = admission.take_session(ada, &own(2)).unwrap();
        let _second = admission.take_session(ada, &own(2)).unwrap();
        let refused = admission.take_session(ada, &own(2)).unwrap_err().to_string();
        assert!(refused.contains("2 sessions of client ada"), "{refused}");
        drop(first);
        assert!(admission.take_session(ada, &own(0)).is_err());
        let in_group = PeerLimits { group: Some(("staff".parse().unwrap(), of(Some(2)))), ..own(9) };
        let _third = admission.take_session(ada, &in_group).unwrap();
        for peer in [ada, Source::User(7)] {
            let refused = admission.take_session(peer, &in_group).unwrap_err().to_string();
            assert!(
                refused.contains("2 sessions of group staff") && refused.contains("[groups.staff]"),
                "{refused}"
            );
        }
    }

    #[test]
    fn one_peer_leaves_diagnoses_to_others() {
        let admission = Admission::new(
            Limits::divide(1024, &RequestedLimits { handshakes: 4, sessions: None, sessions_per_peer: 2 })
                .unwrap(),
        );
        let take = |last| admission.take_diagnosis(Source::User(last));
        let slots: Vec<_> = (0..limits::DIAGNOSES_PER_PEER).map(|_| take(1).unwrap()).collect();
        assert!(matches!(take(1), Err(DiagnosisRefused::OfPeer { .. })) && take(2).is_ok());
        drop(slots);
        assert!(take(1).is_ok());
    }
}
