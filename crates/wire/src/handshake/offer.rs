//! Version offer: the part of the handshake whose format never changes.

use core::fmt;

use crate::record;
use crate::text::Printable;

/// The protocol versions that this build speaks, oldest and newest. From 5 on ends of different releases talk
/// to each other (`docs/src/reference/versions.md`).
pub const VERSIONS: VersionRange = VersionRange { oldest: 5, newest: 5 };

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
    /// Fingerprint of the commands that it knows, by which people tell builds of development apart.
    pub fingerprint: u64,
    /// Version of the program, for people to read, e.g. `0.1.0`.
    pub release: Printable,
}

record!(Offer { versions, fingerprint, release });
