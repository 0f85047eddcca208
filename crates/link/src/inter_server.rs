//! Transport of device copies between two servers, by the user's setting. Pure decisions.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use crate::transport_choice::TransportChoice;
use causeway_pipeline::TransportKind;

/// The variable by which the user chooses; see [`BetweenServers`].
pub const VARIABLE: &str = causeway_config::table::BETWEEN_SERVERS.name;

/// What may carry copies between devices of two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BetweenServers {
    /// The destination's device by itself where it reaches the source's memory, else the best link between
    /// the workers that works, else the client.
    #[default]
    Auto,
    /// The best link between the workers, even where devices reach each other's memory.
    Link,
    /// A link over this transport, else the client.
    Only(TransportKind),
    /// The client.
    Client,
}

/// A text that names no [`BetweenServers`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{VARIABLE}={0} is invalid: choose auto, link, shm, verbs, tcp or client")]
pub struct UnknownPath(String);

impl FromStr for BetweenServers {
    type Err = UnknownPath;

    fn from_str(text: &str) -> Result<Self, UnknownPath> {
        match text.trim() {
            "" | "auto" => Ok(Self::Auto),
            "link" => Ok(Self::Link),
            "client" => Ok(Self::Client),
            other => {
                let kind = TransportKind::named(other);
                kind.map(Self::Only).ok_or_else(|| UnknownPath(other.to_owned()))
            }
        }
    }
}

/// What a link between two workers may go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkVia {
    /// The transports.
    pub choice: TransportChoice,
    /// Whether the user has asked for verbs, so that they may be used where others could listen.
    pub in_clear: bool,
}

impl fmt::Display for LinkVia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.choice.fmt(f)
    }
}

impl BetweenServers {
    /// What links between the workers of a program may go over whose sessions go over `session`. Of the
    /// choices for sessions only TCP is insisted on, which alone every pair of hosts has.
    pub fn link(self, session: TransportChoice) -> LinkVia {
        let tcp = TransportChoice::Only(TransportKind::Tcp);
        let choice = match self {
            Self::Only(via) => TransportChoice::Only(via),
            _ if session == tcp => tcp,
            _ => TransportChoice::Auto,
        };
        let in_clear = self == Self::Only(TransportKind::Verbs)
            || session == TransportChoice::Only(TransportKind::Verbs);
        LinkVia { choice, in_clear }
    }
}

#[cfg(test)]
mod tests {
    use causeway_config::{Values, table};

    use super::*;

    #[test]
    fn choices_are_read_and_nonsense_is_named() {
        let read = |text: &str| text.parse::<BetweenServers>();
        assert_eq!((read(""), read("auto")), (Ok(BetweenServers::Auto), Ok(BetweenServers::Auto)));
        assert_eq!((read("link"), read("client ")), (Ok(BetweenServers::Link), Ok(BetweenServers::Client)));
        for (text, via) in
            [("shm", TransportKind::Shm), ("verbs", TransportKind::Verbs), ("tcp", TransportKind::Tcp)]
        {
            assert_eq!(read(text), Ok(BetweenServers::Only(via)));
        }
        let Values::Word(choices) = table::BETWEEN_SERVERS.values else { panic!("it is a choice") };
        assert!(choices.iter().all(|choice| read(choice).is_ok()), "{choices:?}");
        let error = read("rdma").unwrap_err().to_string();
        for kind in TransportKind::ALL {
            assert!(choices.contains(&kind.name()) && error.contains(kind.name()), "{kind}");
        }
        assert!(error.contains("CAUSEWAY_BETWEEN_SERVERS=rdma") && error.contains("verbs"), "{error}");
    }

    #[test]
    fn a_transport_is_insisted_on_where_it_was_named_and_of_sessions_choices_only_tcp() {
        use BetweenServers::{Auto, Link, Only};
        let link = |between: BetweenServers, session| {
            let LinkVia { choice, in_clear } = between.link(session);
            (choice, in_clear)
        };
        let only = TransportChoice::Only;
        assert_eq!(link(Auto, TransportChoice::Auto), (TransportChoice::Auto, false));
        assert_eq!(link(Link, only(TransportKind::Tcp)), (only(TransportKind::Tcp), false));
        assert_eq!(link(Auto, only(TransportKind::Shm)), (TransportChoice::Auto, false));
        assert_eq!(link(Auto, only(TransportKind::Verbs)), (TransportChoice::Auto, true));
        assert_eq!(
            link(Only(TransportKind::Verbs), only(TransportKind::Tcp)),
            (only(TransportKind::Verbs), true)
        );
        assert_eq!(
            link(Only(TransportKind::Tcp), only(TransportKind::Verbs)),
            (only(TransportKind::Tcp), true)
        );
    }
}
