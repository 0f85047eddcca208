//! Transport names: the one list of them, from which the choices of variables are made.

use core::fmt;

/// Declares the transports, the best first: the name that people write, the number, and how copies pass it.
macro_rules! transports {
    ($($(#[$documentation:meta])* $kind:ident = $name:literal, number $number:literal, $description:literal;)+) => {
        /// A transport: what a session and its copies go over.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum TransportKind {
            $($(#[$documentation])* $kind,)+
            /// One that is not among Causeway's own. Copies are planned for it as for TCP.
            Other(&'static str),
        }

        impl TransportKind {
            /// Causeway's own, the best first.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$kind),+];

            /// What may be chosen for a session.
            pub(crate) const CHOICES: &[&str] = &["auto", $($name),+];

            /// What may be chosen for copies between servers.
            pub(crate) const CHOICES_BETWEEN_SERVERS: &[&str] = &["auto", "link", $($name,)+ "client"];

            /// Its name, as people write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                    Self::Other(name) => name,
                }
            }

            /// How copies pass it, as part of a sentence.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$kind => $description,)+
                    Self::Other(name) => name,
                }
            }

            /// Its number in memory that processes share; 0 where it is not among Causeway's own. Processes of
            /// several releases may share such memory, so numbers stay what they are.
            pub const fn number(self) -> u64 {
                match self {
                    $(Self::$kind => $number,)+
                    Self::Other(_) => 0,
                }
            }
        }
    };
}

transports! {
    /// Memory that both processes map, on one host.
    Shm = "shm", number 2, "through shared memory";
    /// Queue pairs of InfiniBand, RoCE or iWARP cards.
    Verbs = "verbs", number 3, "by RDMA";
    /// Connections over TCP.
    Tcp = "tcp", number 1, "over TCP";
}

impl TransportKind {
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
