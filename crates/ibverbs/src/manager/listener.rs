//! Listener of rdma_cm: connection requests, and accepting them.

use core::ops::Deref;
use core::ptr::{self, NonNull};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use super::address::raw_address;
use super::connection::{Connection, Unjoined};
use super::error::{ManagerError, step_failed};
use super::identifier::Identifier;
use crate::device::Device;
use crate::events::{Channel, Event};
use crate::library::{self, Libraries};
use crate::queue_pair::Settings;
use crate::sys::*;

/// Requests that wait to be taken in; more are refused.
const MAX_PENDING: usize = 64;

/// An address at which connections of peers are taken.
pub struct Listener {
    identifier: Arc<Identifier>,
    device: Device,
    pending: VecDeque<Request>,
}

impl core::fmt::Debug for Listener {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Listener").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens at an address of an RDMA device, at a port of the kernel's choice.
    pub fn bind(libraries: Libraries, address: IpAddr) -> Result<Self, ManagerError> {
        let identifier = Arc::new(Identifier::new(Channel::new(library::manager()?)?)?);
        let mut raw = raw_address(SocketAddr::new(address, 0));
        // SAFETY: the identifier lives, and the address is one.
        let bound = unsafe {
            (identifier.manager().rdma_bind_addr)(
                identifier.raw.as_ptr(),
                (&raw mut raw).cast::<libc::sockaddr>(),
            )
        };
        if bound != 0 {
            return Err(step_failed("take the address"));
        }
        let device = identifier.device(libraries).ok_or(ManagerError::NoDevice(address))?;
        // SAFETY: the identifier is bound.
        if unsafe { (identifier.manager().rdma_listen)(identifier.raw.as_ptr(), 16) } != 0 {
            return Err(step_failed("listen"));
        }
        Ok(Self { identifier, device, pending: VecDeque::new() })
    }

    /// The device that has the address.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The port at which it listens.
    pub fn port(&self) -> u16 {
        // SAFETY: the identifier lives.
        u16::from_be(unsafe { (self.identifier.manager().rdma_get_src_port)(self.identifier.raw.as_ptr()) })
    }

    /// The next request of a peer.
    pub fn next(&mut self, deadline: Instant) -> Result<Request, ManagerError> {
        const STEP: &str = "receive a request to connect";
        loop {
            if let Some(request) = self.pending.pop_front() {
                return Ok(request);
            }
            let event = self.identifier.channel.next(STEP, deadline)?;
            self.sort(event);
        }
    }

    /// Keeps an event that is a request; others are about connections that have been given up.
    fn sort(&mut self, event: Event) {
        if let (RDMA_CM_EVENT_CONNECT_REQUEST, Some(raw)) = (event.kind, NonNull::new(event.id)) {
            let identifier = Arc::new(Identifier { raw, channel: Arc::clone(&self.identifier.channel) });
            let end = Unjoined { identifier, device: self.device.clone() };
            let request = Request { end, private_data: event.private_data };
            if self.pending.len() < MAX_PENDING {
                self.pending.push_back(request);
            } else {
                request.reject();
            }
        }
    }

    /// Accepts a request whose queue pair has been made, and waits until both ends can send. On iWARP the
    /// side that asked for the connection sends first.
    pub fn accept(
        &mut self,
        request: Request,
        private_data: &[u8],
        settings: &Settings,
        deadline: Instant,
    ) -> Result<Connection, ManagerError> {
        const STEP: &str = "accept a connection";
        let Request { end, .. } = request;
        let Unjoined { identifier, .. } = &end;
        end.begin(identifier.manager().rdma_accept, private_data, settings, STEP)?;
        loop {
            let event = self.identifier.channel.next(STEP, deadline)?;
            if event.id != identifier.raw.as_ptr() {
                self.sort(event);
            } else if event.kind == RDMA_CM_EVENT_ESTABLISHED {
                return Ok(Connection { identifier: Arc::clone(identifier), private_data: Vec::new() });
            } else {
                return Err(identifier.unexpected(&event, STEP));
            }
        }
    }
}

/// A peer's request to connect. Refused when it is dropped without having been accepted.
#[derive(Debug)]
pub struct Request {
    end: Unjoined,
    private_data: Vec<u8>,
}

impl Request {
    /// What the peer sent with it. May be followed by zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Refuses it.
    pub fn reject(self) {
        let Unjoined { identifier, .. } = &self.end;
        // SAFETY: the identifier lives. An error says that the peer has gone, which is what is wanted.
        unsafe { (identifier.manager().rdma_reject)(identifier.raw.as_ptr(), ptr::null(), 0) };
    }
}

impl Deref for Request {
    type Target = Unjoined;

    fn deref(&self) -> &Unjoined {
        &self.end
    }
}
