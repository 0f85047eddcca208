//! Links of other workers that read from this one.

use super::gpudirect::PEER_TIMEOUT;
use causeway_connection::channel::Connection;
use causeway_link::Link;
use causeway_sync::Monitor;
use causeway_wire::handshake::LaneToken;

/// The links of workers that have come with a ticket.
#[derive(Default)]
pub struct Links(Monitor<Vec<(LaneToken, Link)>>);

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
