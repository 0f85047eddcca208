//! Incoming connections from the worker of another server.

use causeway_connection::channel::Connection;
use causeway_link::Upgrade;
use causeway_wire::handshake::LaneToken;

/// What has come with a ticket; `C` is a connection, `U` a request for another transport.
#[derive(Debug)]
pub enum Arrival<C, U> {
    /// The connection that carries messages.
    First(C),
    /// A lane.
    Lane(C),
    /// A request for another transport.
    Upgrade(U),
}

/// What comes from another server's worker.
#[derive(Debug)]
pub struct IncomingPeer {
    /// The ticket with which it came.
    pub ticket: LaneToken,
    /// What it is.
    pub arrival: Arrival<Connection, Upgrade>,
}
