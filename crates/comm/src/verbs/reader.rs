//! Initiator side of RDMA reads: queue pair.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use causeway_ibverbs::{QueuePair, Route};

use super::address;
use super::endpoint::EndpointAddress;
use super::error::RdmaError;
use super::nic::{NicSelector, RdmaDevice};
use super::path::Path;
use super::queue_pair::{CAPACITY, Parts, QP_CONNECT_TIMEOUT};

/// A receiver's end that is not joined yet.
#[derive(Debug)]
pub(crate) struct Reader {
    /// None where rdma_cm makes it.
    pair: Option<QueuePair>,
    parts: Parts,
    nic: RdmaDevice,
    own: EndpointAddress,
}

impl Reader {
    /// An end at the card that is wanted.
    pub(crate) fn new(selector: &NicSelector) -> Result<Self, RdmaError> {
        let nic = RdmaDevice::open(selector)?;
        let parts = Parts::new(&nic.device)?;
        if nic.needs_manager() {
            let own = EndpointAddress { by_manager: true, ..parts.end(nic.port.mtu) };
            return Ok(Self { pair: None, parts, nic, own });
        }
        let (pair, own) = parts.queue_pair(&nic)?;
        Ok(Self { pair: Some(pair), parts, nic, own })
    }

    /// What the peer is to be told.
    pub(crate) fn end(&self) -> EndpointAddress {
        self.own
    }

    /// Joins the end with the peer's, which is at that address, if at one of a network.
    pub(crate) fn join(self, peer: &EndpointAddress, address: Option<IpAddr>) -> Result<Path, RdmaError> {
        let Self { pair, parts, nic, own } = self;
        if !peer.by_manager {
            let pair = pair.ok_or(RdmaError::Senseless)?;
            parts.join(&nic, &pair, &own, peer)?;
            return Ok(Path::new(pair, parts));
        }
        drop(pair);
        let deadline = Instant::now() + QP_CONNECT_TIMEOUT;
        // Two ranks of a host have no address but the one that the peer tells. It may not lead elsewhere.
        let address = match (address, peer.address()) {
            (Some(address), _) => address,
            (None, Some(announced))
                if address::is_of_this_host(announced).map_err(RdmaError::Addresses)? =>
            {
                announced
            }
            (None, Some(announced)) => return Err(RdmaError::Elsewhere(announced)),
            (None, None) => return Err(RdmaError::Senseless),
        };
        let address = SocketAddr::new(address, peer.manager_port);
        let route = Route::resolve(nic.device.libraries(), None, address, deadline)?;
        let parts = Parts::new(route.device())?;
        let pair = route.queue_pair(&parts.domain, &parts.completions, CAPACITY)?;
        let settings = parts.settings(own.mtu.min(peer.mtu), peer.reads);
        // The queue pair keeps the connection.
        route.connect(&peer.secret, &settings, deadline)?;
        Ok(Path::new(pair, parts))
    }
}
