//! Whether two ends can talk to each other, and which version of the protocol they talk.

use core::fmt;

use thiserror::Error;

use crate::record;
use crate::text::Printable;

/// The protocol versions that this build speaks, oldest and newest.
pub const VERSIONS: VersionRange = VersionRange { oldest: 4, newest: 4 };

/// A range of protocol versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// The oldest version spoken.
    pub oldest: u16,
    /// The newest version spoken.
    pub newest: u16,
}

record!(VersionRange { oldest, newest });

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "protocol {}", self.oldest)
        } else {
            write!(f, "protocols {} to {}", self.oldest, self.newest)
        }
    }
}

/// What one end can talk: the part of the handshake that never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Protocol versions spoken.
    pub versions: VersionRange,
    /// Fingerprint of the list of driver functions that opcodes and payloads are generated from.
    pub fingerprint: u64,
    /// Version of the program, for people to read, e.g. `0.1.0`.
    pub release: Printable,
}

record!(Offer { versions, fingerprint, release });

/// Why two ends cannot talk to each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VersionMismatch {
    /// No protocol version is spoken by both.
    #[error(
        "the server is Causeway {} ({}) and the client is Causeway {} ({}), and they have no protocol \
         version in common; install the same release on both machines",
        server.release, server.versions, client.release, client.versions
    )]
    Protocol {
        /// What the server can talk.
        server: Offer,
        /// What the client can talk.
        client: Offer,
    },
    /// The ends know different lists of driver functions.
    #[error(
        "the server is Causeway {} (API list {:016x}) and the client is Causeway {} (API list {:016x}), and \
         their lists of driver functions differ; install the same release on both machines",
        server.release, server.fingerprint, client.release, client.fingerprint
    )]
    Functions {
        /// What the server can talk.
        server: Offer,
        /// What the client can talk.
        client: Offer,
    },
}

/// Chooses the protocol version to talk: the newest that both ends speak.
pub fn negotiate(server: &Offer, client: &Offer) -> Result<u16, VersionMismatch> {
    let newest = server.versions.newest.min(client.versions.newest);
    if newest < server.versions.oldest.max(client.versions.oldest) {
        return Err(VersionMismatch::Protocol { server: server.clone(), client: client.clone() });
    }
    if server.fingerprint != client.fingerprint {
        return Err(VersionMismatch::Functions { server: server.clone(), client: client.clone() });
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(oldest: u16, newest: u16, fingerprint: u64) -> Offer {
        Offer {
            versions: VersionRange { oldest, newest },
            fingerprint,
            release: format!("0.{newest}.0").into(),
        }
    }

    #[test]
    fn the_newest_common_version_is_chosen() {
        assert_eq!(negotiate(&offer(1, 4, 9), &offer(2, 3, 9)), Ok(3));
        assert_eq!(negotiate(&offer(3, 4, 9), &offer(2, 3, 9)), Ok(3));
    }

    #[test]
    fn a_mismatch_names_both_versions_and_says_what_to_do() {
        let text = negotiate(&offer(3, 4, 9), &offer(1, 2, 9)).unwrap_err().to_string();
        assert_eq!(
            text,
            "the server is Causeway 0.4.0 (protocols 3 to 4) and the client is Causeway 0.2.0 (protocols 1 \
             to 2), \
             and they have no protocol version in common; install the same release on both machines"
        );
        let text = negotiate(&offer(1, 1, 9), &offer(1, 1, 10)).unwrap_err().to_string();
        assert!(text.contains("API list 0000000000000009") && text.contains("API list 000000000000000a"));
    }
}
