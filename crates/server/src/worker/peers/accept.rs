//! Links of workers of other servers that read from this one: their connections, which arrive in any order,
//! and their acceptance.

use std::sync::Arc;

use causeway_connection::channel::Connection;
use causeway_link::transports::NotJoined;
use causeway_link::{DeviceUse, Link, Upgrade};
use causeway_sync::threads;
use causeway_wire::handshake::LaneToken;

use crate::locks::{Monitor, rank};
use crate::worker::peers::gpudirect::{PEER_TIMEOUT, gpudirect};
use crate::worker::peers::source::{self, Offers};
use crate::worker::rdma::DeviceBlocks;
use crate::worker::session::Session;
use crate::worker_process::{Arrival, IncomingPeer};

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
            tracing::error!("cannot serve workers of other servers: {cause}");
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
            Step::Refuse => return tracing::warn!("unexpected connection from a worker of another server"),
            Step::Attach(lane) => {
                return self.links.attach(ticket, lane);
            }
            Step::Upgrade(connection, upgrade) => match upgrade.accept(&connection) {
                Ok(served) => Ok(served),
                Err(NotJoined::System(error)) => Err(error),
                Err(NotJoined::Unusable(why)) => {
                    tracing::info!("another server's worker: {why}");
                    let step = arrivals.not_upgraded(ticket, connection);
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
            Err(cause) => tracing::error!("cannot serve a worker of another server: {cause}"),
        }
    }
}

/// The links of workers that have come with a ticket.
#[derive(Default)]
pub struct Links(Monitor<rank::Leaf, Vec<(LaneToken, Link)>>);

impl Links {
    /// The worker with this ticket is served by a link from now on.
    pub fn add(&self, ticket: LaneToken, link: Link) {
        self.0.change(|links| links.push((ticket, link)));
    }

    /// Gives one more connection to the link of a worker, if it is served already.
    pub fn attach(&self, ticket: LaneToken, lane: Connection) {
        let links = self.0.lock();
        if let Some((_, link)) = links.iter().find(|(known, _)| *known == ticket) {
            link.attach_lane(lane);
        }
    }

    /// The link of the worker that has come with a ticket, or is about to.
    pub fn wait_for(&self, ticket: LaneToken) -> Option<Link> {
        self.0.wait_for(PEER_TIMEOUT, |links| {
            links.iter().find(|(known, _)| *known == ticket).map(|(_, link)| link.clone())
        })
    }

    /// Ends all of them.
    pub fn close(&self) {
        self.0.lock().iter().for_each(|(_, link)| link.close());
    }
}

/// Lanes that may wait for the first connection of their link. The broker lets no more come with a ticket
/// than a link has.
const MAX_UNEXPECTED: usize = 256;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<C, U> {
    /// Nothing yet.
    Wait,
    /// Go on over another transport; when that fails, [`PendingLinks::not_upgraded`] has the connection back.
    Upgrade(C, U),
    /// Serve over this connection, with these lanes.
    Serve(C, Vec<C>),
    /// Give the lane to the link that is served already.
    Attach(C),
    /// End it: it came out of turn.
    Refuse,
}

/// Links that are not whole yet, and which ones are.
pub struct PendingLinks<C, U> {
    links: Vec<(LaneToken, Parts<C, U>)>,
    unexpected: usize,
}

enum Parts<C, U> {
    Missing { first: Option<C>, upgrade: Option<U>, lanes: Vec<C> },
    Served,
}

impl<C, U> Default for PendingLinks<C, U> {
    fn default() -> Self {
        Self { links: Vec::new(), unexpected: 0 }
    }
}

impl<C, U> PendingLinks<C, U> {
    /// Takes in what came with a ticket.
    pub fn take(&mut self, ticket: LaneToken, arrival: Arrival<C, U>) -> Step<C, U> {
        let place = self.links.iter().position(|(known, _)| *known == ticket).unwrap_or_else(|| {
            self.links.push((ticket, Parts::Missing { first: None, upgrade: None, lanes: Vec::new() }));
            self.links.len() - 1
        });
        let parts = &mut self.links[place].1;
        match (&mut *parts, arrival) {
            (Parts::Served, Arrival::Lane(lane)) => return Step::Attach(lane),
            (Parts::Served, _) => return Step::Refuse,
            (Parts::Missing { first, .. }, Arrival::First(connection)) => *first = Some(connection),
            (Parts::Missing { upgrade, .. }, Arrival::Upgrade(requested)) => *upgrade = Some(requested),
            (Parts::Missing { lanes, .. }, Arrival::Lane(lane)) => {
                if self.unexpected >= MAX_UNEXPECTED {
                    return Step::Refuse;
                }
                self.unexpected += 1;
                lanes.push(lane);
            }
        }
        match core::mem::replace(parts, Parts::Served) {
            Parts::Missing { first: Some(connection), upgrade: Some(upgrade), lanes } => {
                self.unexpected -= lanes.len();
                Step::Upgrade(connection, upgrade)
            }
            Parts::Missing { first: Some(connection), upgrade: None, lanes } if !lanes.is_empty() => {
                self.unexpected -= lanes.len();
                Step::Serve(connection, lanes)
            }
            incomplete => {
                *parts = incomplete;
                Step::Wait
            }
        }
    }

    /// The other transport could not be had: this connection waits for lanes, or for the next try.
    pub fn not_upgraded(&mut self, ticket: LaneToken, connection: C) -> Step<C, U> {
        self.links.retain(|(known, _)| *known != ticket);
        self.take(ticket, Arrival::First(connection))
    }
}

#[cfg(test)]
mod tests {
    use Arrival::{First, Lane, Upgrade};

    use super::*;

    const TICKET: LaneToken = LaneToken([1; 32]);

    #[test]
    fn a_lane_ends_the_choice_and_upgrades_come_in_any_order() {
        let mut arrivals = PendingLinks::<u8, char>::default();
        assert_eq!(arrivals.take(TICKET, First(0)), Step::Wait);
        assert_eq!(arrivals.take(TICKET, Lane(1)), Step::Serve(0, vec![1]));
        assert_eq!(arrivals.take(TICKET, Lane(2)), Step::Attach(2));
        let (unexpected, joining) = (LaneToken([2; 32]), LaneToken([3; 32]));
        assert_eq!(arrivals.take(unexpected, Lane(1)), Step::Wait);
        assert_eq!(arrivals.take(unexpected, Lane(2)), Step::Wait);
        assert_eq!(arrivals.take(unexpected, First(0)), Step::Serve(0, vec![1, 2]));
        assert_eq!(arrivals.take(joining, Upgrade('s')), Step::Wait);
        assert_eq!(arrivals.take(joining, First(0)), Step::Upgrade(0, 's'));
    }

    #[test]
    fn a_failed_upgrade_tries_again_or_goes_on_with_lanes() {
        let mut arrivals = PendingLinks::<u8, char>::default();
        arrivals.take(TICKET, First(0));
        assert_eq!(arrivals.take(TICKET, Upgrade('s')), Step::Upgrade(0, 's'));
        assert_eq!(arrivals.not_upgraded(TICKET, 0), Step::Wait);
        assert_eq!(arrivals.take(TICKET, Upgrade('v')), Step::Upgrade(0, 'v'));
        assert_eq!(arrivals.not_upgraded(TICKET, 0), Step::Wait);
        assert_eq!(arrivals.take(TICKET, Lane(1)), Step::Serve(0, vec![1]));
        assert_eq!(arrivals.take(TICKET, Upgrade('t')), Step::Refuse);
        assert_eq!(arrivals.take(TICKET, First(0)), Step::Refuse);
    }

    #[test]
    fn lanes_without_a_link_are_bounded() {
        let mut arrivals = PendingLinks::<usize, ()>::default();
        for lane in 0..MAX_UNEXPECTED {
            assert_eq!(arrivals.take(LaneToken([(lane % 200) as u8; 32]), Lane(lane)), Step::Wait);
        }
        assert_eq!(arrivals.take(TICKET, Lane(0)), Step::Refuse);
    }
}
