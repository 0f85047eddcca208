//! How does a receiver come to a queue pair by which it reads?

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use causeway_ibverbs::{QueuePair, Route};

use super::address;
use super::card::{Card, Wanted};
use super::end::End;
use super::error::CardError;
use super::parts::{CAPACITY, Parts, QP_CONNECT_TIMEOUT};
use super::path::Path;

/// A receiver's end that is not joined yet.
#[derive(Debug)]
pub(crate) struct Reader {
    /// None where rdma_cm makes it.
    pair: Option<QueuePair>,
    parts: Parts,
    card: Card,
    own: End,
}

impl Reader {
    /// An end at the card that is wanted.
    pub(crate) fn new(wanted: &Wanted) -> Result<Self, CardError> {
        let card = Card::open(wanted)?;
        let parts = Parts::new(&card.device)?;
        if card.needs_manager() {
            let own = End { by_manager: true, ..parts.end(card.port.mtu) };
            return Ok(Self { pair: None, parts, card, own });
        }
        let (pair, own) = parts.queue_pair(&card)?;
        Ok(Self { pair: Some(pair), parts, card, own })
    }

    /// What the peer is to be told.
    pub(crate) fn end(&self) -> End {
        self.own
    }

    /// Joins the end with the peer's, which is at that address, if at one of a network.
    pub(crate) fn join(self, peer: &End, address: Option<IpAddr>) -> Result<Path, CardError> {
        let Self { pair, parts, card, own } = self;
        if !peer.by_manager {
            let pair = pair.ok_or(CardError::Senseless)?;
            parts.join(&card, &pair, &own, peer)?;
            return Ok(Path::new(pair, parts));
        }
        drop(pair);
        let deadline = Instant::now() + QP_CONNECT_TIMEOUT;
        // Two ranks of a host have no address but the one that the peer tells. It may not lead elsewhere.
        let address = match (address, peer.address()) {
            (Some(address), _) => address,
            (None, Some(told)) if address::is_of_this_host(told).map_err(CardError::Addresses)? => told,
            (None, Some(told)) => return Err(CardError::Elsewhere(told)),
            (None, None) => return Err(CardError::Senseless),
        };
        let address = SocketAddr::new(address, peer.manager_port);
        let route = Route::resolve(card.device.libraries(), None, address, deadline)?;
        let parts = Parts::new(route.device())?;
        let pair = route.queue_pair(&parts.domain, &parts.completions, CAPACITY)?;
        let settings = parts.settings(own.mtu.min(peer.mtu), peer.reads);
        // The queue pair keeps the connection.
        route.connect(&peer.secret, &settings, deadline)?;
        Ok(Path::new(pair, parts))
    }
}
