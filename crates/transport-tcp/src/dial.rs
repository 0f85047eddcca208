//! Dialling further connections of a link, at the end that connects.

use std::time::Duration;

use causeway_connection::channel::Connection;
use thiserror::Error;

/// Opens the bulk lanes of a link.
pub trait DialLanes: Send + Sync {
    /// How many there are to open.
    fn lanes(&self) -> u32;

    /// For how long the peer is dialled in place of what was agreed, where it is known to be away.
    fn time_left(&self) -> Option<Duration> {
        None
    }

    /// Opens one lane, authenticated; or the connection that takes the place of the one for commands
    /// ([`LaneHello::COMMANDS`](causeway_wire::handshake::LaneHello::COMMANDS)).
    fn open(&self, lane: u32) -> Result<Connection, NotOpened>;
}

/// Why a connection was not opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotOpened {
    /// The peer does not want it, and will not later.
    #[error("{0}")]
    Refused(String),
    /// Something else went wrong.
    #[error("{0}")]
    Failed(String),
}
