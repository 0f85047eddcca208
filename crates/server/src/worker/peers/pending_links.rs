//! Pending links: connections of another worker that arrive in any order.
//!
//! The first connection shows that the worker has a ticket. What follows it decides: a socket of this host
//! means shared memory, a connection for setting up queue pairs means verbs, a lane means TCP. The broker
//! hands each connection over on a thread of its own, so that any of them may be the first to come here.

use crate::handover::Arrival;
use causeway_wire::handshake::LaneToken;

/// Lanes that may wait for the first connection of their link. The broker lets no more come with a ticket
/// than a link has.
const MAX_UNEXPECTED: usize = 256;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<C, S> {
    /// Nothing yet.
    Wait,
    /// Be joined otherwise; when that fails, [`PendingLinks::not_joined`] has the connection back.
    Join(C, S),
    /// Serve over TCP, with these lanes.
    Serve(C, Vec<C>),
    /// Give the lane to the link that is served already.
    Attach(C),
    /// End it: it came out of turn.
    Refuse,
}

/// Links that are not whole yet, and which ones are.
pub struct PendingLinks<C, S> {
    links: Vec<(LaneToken, Parts<C, S>)>,
    unexpected: usize,
}

enum Parts<C, S> {
    Missing { first: Option<C>, socket: Option<S>, lanes: Vec<C> },
    Served,
}

impl<C, S> Default for PendingLinks<C, S> {
    fn default() -> Self {
        Self { links: Vec::new(), unexpected: 0 }
    }
}

impl<C, S> PendingLinks<C, S> {
    /// Takes in what came with a ticket.
    pub fn take(&mut self, ticket: LaneToken, arrival: Arrival<C, S>) -> Step<C, S> {
        let place = self.links.iter().position(|(known, _)| *known == ticket).unwrap_or_else(|| {
            self.links.push((ticket, Parts::Missing { first: None, socket: None, lanes: Vec::new() }));
            self.links.len() - 1
        });
        let parts = &mut self.links[place].1;
        match (&mut *parts, arrival) {
            (Parts::Served, Arrival::Lane(lane)) => return Step::Attach(lane),
            (Parts::Served, _) => return Step::Refuse,
            (Parts::Missing { first, .. }, Arrival::First(connection)) => *first = Some(connection),
            (Parts::Missing { socket, .. }, Arrival::Joins(joining)) => *socket = Some(joining),
            (Parts::Missing { lanes, .. }, Arrival::Lane(lane)) => {
                if self.unexpected >= MAX_UNEXPECTED {
                    return Step::Refuse;
                }
                self.unexpected += 1;
                lanes.push(lane);
            }
        }
        match core::mem::replace(parts, Parts::Served) {
            Parts::Missing { first: Some(connection), socket: Some(socket), lanes } => {
                self.unexpected -= lanes.len();
                Step::Join(connection, socket)
            }
            Parts::Missing { first: Some(connection), socket: None, lanes } if !lanes.is_empty() => {
                self.unexpected -= lanes.len();
                Step::Serve(connection, lanes)
            }
            incomplete => {
                *parts = incomplete;
                Step::Wait
            }
        }
    }

    /// The workers could not be joined otherwise: this connection waits for lanes, or for the next try.
    pub fn not_joined(&mut self, ticket: LaneToken, connection: C) -> Step<C, S> {
        self.links.retain(|(known, _)| *known != ticket);
        self.take(ticket, Arrival::First(connection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arrival::{First, Joins, Lane};

    const TICKET: LaneToken = LaneToken([1; 32]);

    #[test]
    fn a_lane_means_tcp_and_a_wish_to_join_is_tried_in_any_order() {
        let mut arrivals = PendingLinks::<u8, char>::default();
        assert_eq!(arrivals.take(TICKET, First(0)), Step::Wait);
        assert_eq!(arrivals.take(TICKET, Lane(1)), Step::Serve(0, vec![1]));
        assert_eq!(arrivals.take(TICKET, Lane(2)), Step::Attach(2));
        let (unexpected, joining) = (LaneToken([2; 32]), LaneToken([3; 32]));
        assert_eq!(arrivals.take(unexpected, Lane(1)), Step::Wait);
        assert_eq!(arrivals.take(unexpected, Lane(2)), Step::Wait);
        assert_eq!(arrivals.take(unexpected, First(0)), Step::Serve(0, vec![1, 2]));
        assert_eq!(arrivals.take(joining, Joins('s')), Step::Wait);
        assert_eq!(arrivals.take(joining, First(0)), Step::Join(0, 's'));
    }

    #[test]
    fn what_cannot_be_joined_tries_again_or_goes_on_over_tcp() {
        let mut arrivals = PendingLinks::<u8, char>::default();
        arrivals.take(TICKET, First(0));
        assert_eq!(arrivals.take(TICKET, Joins('s')), Step::Join(0, 's'));
        assert_eq!(arrivals.not_joined(TICKET, 0), Step::Wait);
        assert_eq!(arrivals.take(TICKET, Joins('v')), Step::Join(0, 'v'));
        assert_eq!(arrivals.not_joined(TICKET, 0), Step::Wait);
        assert_eq!(arrivals.take(TICKET, Lane(1)), Step::Serve(0, vec![1]));
        assert_eq!(arrivals.take(TICKET, Joins('t')), Step::Refuse);
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
