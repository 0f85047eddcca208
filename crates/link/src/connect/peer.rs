//! Connection from the worker of one server to that of another.
//!
//! The first connection goes over TCP and proves that the ticket is known. What the connecting worker does
//! next shows the other one where the link goes on: it joins in shared memory or over verbs, or opens lanes.

use std::time::Duration;

use causeway_wire::handshake::{LaneToken, Locality, Opening, PeerHello, SessionId};

use super::establish::{establish, facts};
use crate::handshake::error::ConnectError;
use crate::handshake::hello::Proof;
use crate::handshake::lanes::{Purpose, open_lane};
use crate::handshake::options::ConnectOptions;
use crate::link::Link;
use crate::receiver::Receiver;
use crate::transport_choice::Reason;
use crate::transports::{Dialling, TRANSPORTS};

use causeway_access::target::Target;
use causeway_connection::socket::round_trip;
use causeway_pipeline::lanes::lanes_for;
use causeway_sync::spin;

/// Where the other worker is.
#[derive(Debug, Clone)]
pub struct PeerAddress {
    /// Its server. No key is needed: the ticket takes its place.
    pub target: Target,
    /// How that server is reached from its own host.
    pub locality: Locality,
}

/// A way to the worker of another server.
#[derive(Debug)]
pub struct PeerLink {
    /// For sending.
    pub link: Link,
    /// For the one thread that receives.
    pub receiver: Receiver,
    /// Why the transports that are not in use are not.
    pub reasons: Vec<Reason>,
}

/// Connects a worker to that of another server, by a ticket which that one gave. Two on one host share memory
/// if they can; others are joined by their RDMA devices where these reach each other; otherwise the link goes
/// over TCP.
pub fn connect_peer(
    address: &PeerAddress,
    session: SessionId,
    ticket: LaneToken,
    options: &ConnectOptions,
) -> Result<PeerLink, ConnectError> {
    let target = Target { key: None, ..address.target.clone() };
    let proof = Proof::Ticket(ticket);
    let hello = PeerHello { session, ticket, connection: 0 };
    let connection =
        open_lane(&target, proof, options, "a way for copies", |out| Opening::encode_peer(&hello, out))?;
    let length = round_trip(connection.socket()).unwrap_or_default();
    let (link, receiver, reasons) = establish(
        TRANSPORTS,
        Dialling {
            facts: facts(&target, options, &connection, &address.locality),
            target: &target,
            options,
            purpose: Purpose::Peer { session, ticket },
            lanes: lanes_for(length, spin::cores()),
            connection: Some(connection),
            resume: Duration::ZERO,
        },
    )?;
    // The first frame shows whether the other worker does the same.
    link.keep_alive(options.keepalive, false);
    Ok(PeerLink { link, receiver, reasons })
}
