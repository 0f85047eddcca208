//! By which links do other workers read here?

use super::way::PATIENCE;
use causeway_connection::channel::Connection;
use causeway_link::Link;
use causeway_wire::handshake::LaneToken;
use parking_lot::{Condvar, Mutex};
use std::time::Instant;

/// The links of workers that have come with a ticket.
#[derive(Default)]
pub struct Links {
    table: Mutex<Vec<(LaneToken, Link)>>,
    /// There is one more of them.
    came: Condvar,
}

impl Links {
    /// The worker with this ticket is served by a link from now on.
    pub fn add(&self, ticket: LaneToken, link: Link) {
        self.table.lock().push((ticket, link));
        self.came.notify_all();
    }

    /// Gives one more connection to the link of a worker, if it is served already.
    pub fn attach(&self, ticket: LaneToken, lane: Connection) {
        let table = self.table.lock();
        if let Some((_, link)) = table.iter().find(|(known, _)| *known == ticket) {
            link.attach_lane(lane);
        }
    }

    /// The link of the worker that has come with a ticket, or is about to.
    pub fn wait_for(&self, ticket: LaneToken) -> Option<Link> {
        let deadline = Instant::now() + PATIENCE;
        let mut table = self.table.lock();
        loop {
            if let Some((_, link)) = table.iter().find(|(known, _)| *known == ticket) {
                return Some(link.clone());
            }
            if self.came.wait_until(&mut table, deadline).timed_out() {
                return None;
            }
        }
    }

    /// Ends all of them.
    pub fn close(&self) {
        self.table.lock().iter().for_each(|(_, link)| link.close());
    }
}
