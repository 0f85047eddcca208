//! Refusals: why a client is not admitted, as a label and as the message to it.

use causeway_connection::channel::{Connection, end_after_goodbye};
use causeway_link::accept::AcceptError;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::Response;

use crate::admission::SessionRefused;

/// Why a client is refused. The list is short and fixed: it becomes a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// There are as many sessions as there may be.
    Full,
    /// The peer has as many as one may have.
    FullOfPeer,
    /// The server is being drained.
    Draining,
    /// No key, another key, one that counts no more, or another user.
    NotProved,
    /// Another version.
    Version,
    /// The handshake took too long.
    TooSlow,
    /// What was sent makes no sense.
    Damaged,
    /// No worker could be started.
    NoWorker,
    /// The GPU could not be started.
    NoGpu,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Full,
        Self::FullOfPeer,
        Self::Draining,
        Self::NotProved,
        Self::Version,
        Self::TooSlow,
        Self::Damaged,
        Self::NoWorker,
        Self::NoGpu,
    ];

    /// The label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::FullOfPeer => "full_of_peer",
            Self::Draining => "draining",
            Self::NotProved => "not_proved",
            Self::Version => "version",
            Self::TooSlow => "too_slow",
            Self::Damaged => "damaged",
            Self::NoWorker => "no_worker",
            Self::NoGpu => "no_gpu",
        }
    }

    /// Why a client is refused after its handshake; nothing for one that has gone.
    pub fn of_handshake(error: &AcceptError) -> Option<Self> {
        Some(match error {
            AcceptError::Io(_) | AcceptError::Ended => return None,
            AcceptError::TooSlow => Self::TooSlow,
            AcceptError::NoKey
            | AcceptError::Clear
            | AcceptError::NotAllowed
            | AcceptError::NeedlessKey
            | AcceptError::WrongKey(_)
            | AcceptError::NoSession
            | AcceptError::ClientNotAccepted(_)
            | AcceptError::NotForInvitations
            | AcceptError::NotForTickets => Self::NotProved,
            AcceptError::Version(_) => Self::Version,
            AcceptError::NotCauseway(_) | AcceptError::Damaged(_) => Self::Damaged,
        })
    }
}

impl From<&SessionRefused> for Refusal {
    fn from(refused: &SessionRefused) -> Self {
        match refused {
            SessionRefused::InAll { .. } => Self::Full,
            SessionRefused::OfPeer { .. }
            | SessionRefused::OfClient { .. }
            | SessionRefused::OfGroup { .. } => Self::FullOfPeer,
        }
    }
}

/// Tells a client why it is refused, and ends the connection.
pub fn refuse(connection: &mut Connection, text: &str) {
    let refusal = Response::Refused { text: text.into() };
    // The client may be gone already; it is refused either way.
    let _ = connection.send_handshake(|out| refusal.encode(out));
    end_after_goodbye(connection.socket());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_handshake_is_a_refusal_unless_the_client_has_gone() {
        assert_eq!(Refusal::of_handshake(&AcceptError::Ended), None);
        assert_eq!(Refusal::of_handshake(&AcceptError::NoKey), Some(Refusal::NotProved));
    }
}
