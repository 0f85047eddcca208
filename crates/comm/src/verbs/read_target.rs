//! Target side of RDMA reads: registration and queue pair.

use std::net::IpAddr;
use std::time::Instant;

use causeway_ibverbs::{Listener, PathMtu, ProtectionDomain, QueuePair};

use super::endpoint::{EndpointAddress, Slots};
use super::error::RdmaError;
use super::nic::{NicSelector, RdmaDevice};
use super::queue_pair::{CAPACITY, Parts, QP_CONNECT_TIMEOUT};
use crate::job;

/// A sender's end, before or after it is joined with the receiver's.
#[derive(Debug)]
pub(crate) struct ReadTarget {
    /// In front of all else, so that nobody reads any more when that goes.
    pair: Option<QueuePair>,
    listener: Option<Listener>,
    parts: Parts,
    own: EndpointAddress,
}

impl ReadTarget {
    /// An end for this peer, who has come over the address `local`, if over a network. Within a host its own
    /// card is used, which it has chosen by its GPU.
    pub(crate) fn new(peer: &EndpointAddress, local: Option<IpAddr>) -> Result<Self, RdmaError> {
        let gid = Some(peer.remote.gid).filter(|gid| local.is_none() && !peer.by_manager && !gid.is_empty());
        let nic = RdmaDevice::open(&NicSelector { local, gpu: None, gid })?;
        if peer.by_manager || nic.needs_manager() {
            let address = local.map_or_else(|| nic.address(), Ok)?;
            let listener = Listener::bind(nic.device.libraries(), address)?;
            let parts = Parts::new(listener.device())?;
            let (manager_port, secret) = (listener.port(), job::random()?);
            let own = EndpointAddress { by_manager: true, manager_port, secret, ..parts.end(nic.port.mtu) };
            // Within a host the peer does not know where that is.
            let own = if local.is_none() { own.at(address) } else { own };
            return Ok(Self { pair: None, listener: Some(listener), parts, own });
        }
        let parts = Parts::new(&nic.device)?;
        let (pair, own) = parts.queue_pair(&nic)?;
        parts.join(&nic, &pair, &own, peer)?;
        Ok(Self { pair: Some(pair), listener: None, parts, own })
    }

    /// Where memory is registered that the peer is to read.
    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.parts.domain
    }

    /// What the peer is to be told, with the slots that it is to read.
    pub(crate) fn end(&self, slots: Slots) -> EndpointAddress {
        EndpointAddress { slots, ..self.own }
    }

    /// Waits until the peer, who has been told, has joined the two where rdma_cm does that.
    pub(crate) fn finish(&mut self) -> Result<(), RdmaError> {
        let Some(mut listener) = self.listener.take() else { return Ok(()) };
        let deadline = Instant::now() + QP_CONNECT_TIMEOUT;
        let request = loop {
            let request = listener.next(deadline)?;
            if request.private_data().starts_with(&self.own.secret) {
                break request;
            }
            request.reject();
        };
        let pair = request.queue_pair(&self.parts.domain, &self.parts.completions, CAPACITY)?;
        let settings = self.parts.settings(PathMtu::Mtu1024, self.own.reads);
        // The queue pair keeps the connection.
        listener.accept(request, &[], &settings, deadline)?;
        self.pair = Some(pair);
        Ok(())
    }
}
