//! The names of the transports: the one enum that says them.

use core::fmt;

/// A transport: what a session and its copies go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransportKind {
    /// Memory that both processes map, on one host.
    Shm,
    /// Queue pairs of InfiniBand, RoCE or iWARP cards.
    Verbs,
    /// Connections over TCP.
    Tcp,
    /// One that is not among Causeway's own. Copies are planned for it as for TCP.
    Other(&'static str),
}

impl TransportKind {
    /// Causeway's own, the best first.
    pub const ALL: [Self; 3] = [Self::Shm, Self::Verbs, Self::Tcp];

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Verbs => "verbs",
            Self::Tcp => "tcp",
            Self::Other(name) => name,
        }
    }

    /// How copies pass it, as part of a sentence.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Shm => "through shared memory",
            Self::Verbs => "by RDMA",
            Self::Tcp => "over TCP",
            Self::Other(name) => name,
        }
    }

    /// Its number in memory that processes share; 0 where it is not among Causeway's own. Processes of several
    /// releases may share such memory, so numbers stay what they are.
    pub const fn number(self) -> u64 {
        match self {
            Self::Tcp => 1,
            Self::Shm => 2,
            Self::Verbs => 3,
            Self::Other(_) => 0,
        }
    }

    /// The one of Causeway's own that has this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The one of Causeway's own that has this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether the transport joins processes of one host alone.
    pub fn is_within_host(self) -> bool {
        self == Self::Shm
    }

    /// Whether lanes carry its copies, so that it matters how many there are; otherwise threads do.
    pub fn has_lanes(self) -> bool {
        self == Self::Tcp
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transport_is_found_by_its_name_and_number() {
        for kind in TransportKind::ALL {
            assert_eq!(TransportKind::named(&kind.to_string()), Some(kind));
            assert_eq!(TransportKind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(TransportKind::from_number(TransportKind::Other("toy").number()), None);
        assert_eq!(TransportKind::named("rdma"), None);
    }
}
