//! What carries copies between devices of two servers, as the user wants it? Pure decisions.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use crate::via::{Via, ViaChoice};

/// The variable by which the user chooses; see [`BetweenServers`].
pub const VARIABLE: &str = "CAUSEWAY_BETWEEN_SERVERS";

/// What may carry copies between devices of two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BetweenServers {
    /// The destination's device by itself where it reaches the source's memory, else the best link between the workers
    /// that works, else the client.
    #[default]
    Auto,
    /// The best link between the workers, even where devices reach each other's memory.
    Link,
    /// A link over this module, else the client.
    Only(Via),
    /// The client.
    Client,
}

/// A text that names no [`BetweenServers`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{VARIABLE}={0} means nothing: choose auto, link, shm, verbs, tcp or client")]
pub struct UnknownBetween(String);

impl FromStr for BetweenServers {
    type Err = UnknownBetween;

    fn from_str(text: &str) -> Result<Self, UnknownBetween> {
        match text.trim() {
            "" | "auto" => Ok(Self::Auto),
            "link" => Ok(Self::Link),
            "client" => Ok(Self::Client),
            other => {
                let module = Via::ALL.into_iter().find(|via| via.to_string() == other);
                module.map(Self::Only).ok_or_else(|| UnknownBetween(other.to_owned()))
            }
        }
    }
}

/// What a link between two workers may go over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkVia {
    /// The modules.
    pub choice: ViaChoice,
    /// Whether the user has asked for verbs, so that they may be used where others could listen.
    pub in_clear: bool,
}

impl fmt::Display for LinkVia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.choice.fmt(f)
    }
}

impl BetweenServers {
    /// What links between the workers of a program may go over whose sessions go over `session`. Of the choices for sessions
    /// only TCP is insisted on, which alone every pair of hosts has.
    pub fn link(self, session: ViaChoice) -> LinkVia {
        let tcp = ViaChoice::Only(Via::Tcp);
        let choice = match self {
            Self::Only(via) => ViaChoice::Only(via),
            _ if session == tcp => tcp,
            _ => ViaChoice::Auto,
        };
        let in_clear = self == Self::Only(Via::Verbs) || session == ViaChoice::Only(Via::Verbs);
        LinkVia { choice, in_clear }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_nonsense_is_named() {
        let read = |text: &str| text.parse::<BetweenServers>();
        assert_eq!((read(""), read("auto")), (Ok(BetweenServers::Auto), Ok(BetweenServers::Auto)));
        assert_eq!((read("link"), read("client ")), (Ok(BetweenServers::Link), Ok(BetweenServers::Client)));
        for (text, via) in [("shm", Via::Shm), ("verbs", Via::Verbs), ("tcp", Via::Tcp)] {
            assert_eq!(read(text), Ok(BetweenServers::Only(via)));
        }
        let error = read("rdma").unwrap_err().to_string();
        assert!(error.contains("CAUSEWAY_BETWEEN_SERVERS=rdma") && error.contains("verbs"), "{error}");
    }

    #[test]
    fn a_module_is_insisted_on_where_it_was_named_and_of_sessions_choices_only_tcp() {
        use BetweenServers::{Auto, Link, Only};
        let link = |between: BetweenServers, session| {
            let LinkVia { choice, in_clear } = between.link(session);
            (choice, in_clear)
        };
        let only = ViaChoice::Only;
        assert_eq!(link(Auto, ViaChoice::Auto), (ViaChoice::Auto, false));
        assert_eq!(link(Link, only(Via::Tcp)), (only(Via::Tcp), false));
        assert_eq!(link(Auto, only(Via::Shm)), (ViaChoice::Auto, false));
        assert_eq!(link(Auto, only(Via::Verbs)), (ViaChoice::Auto, true));
        assert_eq!(link(Only(Via::Verbs), only(Via::Tcp)), (only(Via::Verbs), true));
        assert_eq!(link(Only(Via::Tcp), only(Via::Verbs)), (only(Via::Tcp), true));
    }
}
