//! Connection manager (rdma_cm) for queue pairs: route to a listener, and the listener with its connection
//! requests.
//!
//! It finds the device that belongs to an IP address, exchanges what both queue pairs need, and brings them
//! into their states. iWARP devices are connected in no other way. Both ends carry a few bytes of the
//! program's own with the request, by which they recognise each other.
//!
//! Everything here waits, up to a deadline, and is meant for the start of a session.
//!
//! | module | contents |
//! | --- | --- |
//! | `connection` | Connection of rdma_cm: its identifier (`rdma_cm_id`), its parameters, and its states before and after it is established |
//! | `events` | Event channel of rdma_cm, and errors of its connections |

mod connection;
mod events;

use core::ops::Deref;
use core::ptr::{self, NonNull};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::device::Device;
use crate::library::{self, Libraries};
use crate::manager::connection::Identifier;
use crate::manager::events::{Channel, Event, step_failed};
use crate::queue_pair::Settings;
use crate::sys::*;

pub use connection::{Connection, MAX_PRIVATE_DATA, Unjoined};
pub use events::ManagerError;

/// The way to a peer that listens: found, and not yet taken.
#[derive(Debug)]
pub struct Route(Unjoined);

impl Deref for Route {
    type Target = Unjoined;

    fn deref(&self) -> &Unjoined {
        &self.0
    }
}

impl Route {
    /// Finds the device and the path to `remote`, from `local` if it is given.
    pub fn resolve(
        libraries: Libraries,
        local: Option<IpAddr>,
        remote: SocketAddr,
        deadline: Instant,
    ) -> Result<Self, ManagerError> {
        const ADDRESS: &str = "find the device that leads to the peer";
        const ROUTE: &str = "find the path to the peer";
        let identifier = Arc::new(Identifier::new(Channel::new(library::manager()?)?)?);
        let (manager, raw) = (identifier.manager(), identifier.raw.as_ptr());
        let mut source = local.map(|address| raw_address(SocketAddr::new(address, 0)));
        let source = source
            .as_mut()
            .map_or(ptr::null_mut(), |address| ptr::from_mut(address).cast::<libc::sockaddr>());
        let mut destination = raw_address(remote);
        let destination = (&raw mut destination).cast::<libc::sockaddr>();
        let left = |deadline: Instant| {
            deadline.saturating_duration_since(Instant::now()).as_millis().min(60_000) as i32
        };
        // SAFETY: the identifier lives, and the addresses are ones.
        if unsafe { (manager.rdma_resolve_addr)(raw, source, destination, left(deadline)) } != 0 {
            return Err(step_failed(ADDRESS));
        }
        identifier.expect(RDMA_CM_EVENT_ADDR_RESOLVED, ADDRESS, deadline)?;
        // SAFETY: the identifier has an address.
        if unsafe { (manager.rdma_resolve_route)(raw, left(deadline)) } != 0 {
            return Err(step_failed(ROUTE));
        }
        identifier.expect(RDMA_CM_EVENT_ROUTE_RESOLVED, ROUTE, deadline)?;
        let device = identifier.device(libraries).ok_or(ManagerError::NoDevice(remote.ip()))?;
        Ok(Self(Unjoined { identifier, device }))
    }

    /// Connects the queue pair, and waits until both ends can send.
    pub fn connect(
        self,
        private_data: &[u8],
        settings: &Settings,
        deadline: Instant,
    ) -> Result<Connection, ManagerError> {
        const STEP: &str = "connect to the peer";
        let Self(end) = self;
        let Unjoined { identifier, .. } = &end;
        end.begin(identifier.manager().rdma_connect, private_data, settings, STEP)?;
        let event = identifier.expect(RDMA_CM_EVENT_ESTABLISHED, STEP, deadline)?;
        Ok(Connection { identifier: Arc::clone(identifier), private_data: event.private_data })
    }
}

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

/// An address in the form of the system's calls.
fn raw_address(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all fields are numbers, for which 0 is a value.
    let mut storage: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let to: *mut libc::sockaddr_storage = &mut storage;
    match address {
        SocketAddr::V4(address) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is long enough and aligned for every kind of address.
            unsafe { to.cast::<libc::sockaddr_in>().write(value) };
        }
        SocketAddr::V6(address) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: the storage is long enough and aligned for every kind of address.
            unsafe { to.cast::<libc::sockaddr_in6>().write(value) };
        }
    }
    storage
}
