//! How does the worker of one server reach that of another?
//!
//! The first connection goes over TCP and proves that the ticket is known. What the connecting worker does next shows the
//! other one where the link goes on: it joins in shared memory or over verbs, or opens lanes.

use std::io;

use causeway_wire::handshake::{JoinHello, LaneToken, Locality, Opening, PeerHello, SessionId};

use super::error::not_via;
use super::first_words::Proof;
use super::lanes::{LaneDialer, Purpose, open_lane};
use super::{ConnectError, ConnectOptions, join_over_verbs};
use crate::link::{Link, Receiver};
use crate::shm::join::join;
use crate::shm::staging;
use crate::via::{self, Reason, Via, ViaChoice};
use causeway_access::target::Target;
use causeway_connection::socket::round_trip;
use causeway_pipeline::lanes::lanes_for;
use causeway_sync::awake;

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
    /// Why the modules that are not in use are not.
    pub reasons: Vec<Reason>,
}

/// Connects a worker to that of another server, by a ticket which that one gave. Two on one host share memory if they can;
/// others are joined by their RDMA devices where these reach each other; otherwise the link goes over TCP.
pub fn connect_peer(
    address: &PeerAddress,
    session: SessionId,
    ticket: LaneToken,
    options: &ConnectOptions,
) -> Result<PeerLink, ConnectError> {
    let target = Target { key: None, ..address.target.clone() };
    let proof = Proof::Ticket(ticket);
    let no_thread = |cause: io::Error| ConnectError::Failed {
        target: target.to_string(),
        text: format!("no thread could be started: {cause}"),
    };
    let hello = PeerHello { session, ticket, connection: 0 };
    let connection =
        open_lane(&target, proof, options, "a way for copies", |out| Opening::encode_peer(&hello, out))?;
    let mut tried = Vec::new();
    if options.via.admits(Via::Shm) {
        let limit = staging::cgroup_limit();
        let allowed = |bytes| staging::client_may_use(bytes, limit);
        let owner = JoinHello { session, token: ticket };
        match join(&address.locality, &owner, options, allowed) {
            Ok(joined) => {
                let (link, receiver) = joined.link(&connection).map_err(no_thread)?;
                let reasons = via::reasons(options.via, link.via(), &tried);
                return Ok(PeerLink { link, receiver, reasons });
            }
            Err(error) => {
                let text = via::explain_no_shm(&address.locality, &causeway_access::local::boot_id(), &error);
                tried.push(Reason { via: Via::Shm, text });
            }
        }
    }
    if options.via.admits(Via::Verbs) {
        match join_over_verbs(&target, proof, options, &connection, session, ticket) {
            Ok(joined) => {
                let (link, receiver) = joined.link(&connection).map_err(no_thread)?;
                let reasons = via::reasons(options.via, link.via(), &tried);
                return Ok(PeerLink { link, receiver, reasons });
            }
            Err(text) => tried.push(Reason { via: Via::Verbs, text }),
        }
    }
    if let (ViaChoice::Only(via @ (Via::Shm | Via::Verbs)), Some(reason)) = (options.via, tried.first()) {
        return Err(not_via(&target, via, reason.text.clone()));
    }
    let length = round_trip(connection.socket()).unwrap_or_default();
    let lanes = LaneDialer {
        target: target.clone(),
        options: options.clone(),
        purpose: Purpose::Peer { session, ticket },
        lanes: lanes_for(length, awake::cores()),
    };
    let (link, receiver) = Link::dialled(connection, lanes).map_err(no_thread)?;
    let reasons = via::reasons(options.via, link.via(), &tried);
    Ok(PeerLink { link, receiver, reasons })
}
