//! Accepting of links from workers of other servers.

use super::gpudirect::gpudirect;
use super::links::Links;
use super::pending_links::{PendingLinks, Step};
use super::source::{self, Offers};
use crate::handover::IncomingPeer;
use crate::worker::rdma::DeviceBlocks;
use crate::worker::session::Session;
use causeway_connection::channel::Connection;
use causeway_link::transports::NotJoined;
use causeway_link::{DeviceUse, Link, Upgrade};
use causeway_sync::threads;
use causeway_wire::handshake::LaneToken;
use std::sync::Arc;

/// What takes in connections of other workers.
pub struct Acceptor {
    /// The session in which they read.
    pub session: Arc<Session>,
    /// Device memory that cards of their links may come to reach.
    pub blocks: Arc<DeviceBlocks>,
    /// What they may read.
    pub offers: Arc<Offers>,
    /// Where their links are found.
    pub links: Arc<Links>,
}

impl Acceptor {
    /// Starts the thread that takes them in as they come.
    pub fn start(self) {
        let incoming_peers = self.session.exchange().incoming_peers();
        let started = threads::spawn("peers", move || {
            let mut arrivals = PendingLinks::default();
            for IncomingPeer { ticket, arrival } in incoming_peers {
                let step = arrivals.take(ticket, arrival);
                self.resume(&mut arrivals, ticket, step);
            }
        });
        if let Err(cause) = started {
            tracing::error!("workers of other servers cannot be served: {cause}");
        }
    }

    /// Does what has to be done with what came.
    fn resume(
        &self,
        arrivals: &mut PendingLinks<Connection, Upgrade>,
        ticket: LaneToken,
        step: Step<Connection, Upgrade>,
    ) {
        let served = match step {
            Step::Wait => return,
            Step::Refuse => return tracing::warn!("another server's worker opened a connection out of turn"),
            Step::Attach(lane) => {
                return self.links.attach(ticket, lane);
            }
            Step::Join(connection, upgrade) => match upgrade.accept(&connection) {
                Ok(served) => Ok(served),
                Err(NotJoined::System(error)) => Err(error),
                Err(NotJoined::Unusable(why)) => {
                    tracing::info!("another server's worker: {why}");
                    let step = arrivals.not_joined(ticket, connection);
                    return self.resume(arrivals, ticket, step);
                }
            },
            Step::Serve(connection, lanes) => Link::accepted(connection)
                .inspect(|(link, _)| lanes.into_iter().for_each(|lane| link.attach_lane(lane))),
        };
        match served {
            Ok((link, receiver)) => {
                let (direct, found) =
                    gpudirect(&self.session, &self.blocks, &link, DeviceUse::ExposedForRead);
                let found = if found.is_empty() { found } else { format!(", out of the device by {found}") };
                tracing::info!("another server's worker reads here via {}{found}", link.kind());
                // The first frame shows whether the other worker does the same.
                link.keep_alive(self.session.exchange().peer_keepalive(), false);
                source::serve(&self.session, &self.offers, &link, receiver, direct);
                self.links.add(ticket, link);
            }
            Err(cause) => tracing::error!("another server's worker cannot be served: {cause}"),
        }
    }
}
