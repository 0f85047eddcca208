//! How does rdma_cm connect queue pairs?
//!
//! It finds the device that belongs to an IP address, exchanges what both queue pairs need, and brings them into their
//! states. iWARP devices are connected in no other way. Both ends carry a few bytes of the program's own with the request, by
//! which they recognise each other.
//!
//! Everything here waits, up to a deadline, and is meant for the start of a session.

use core::ops::Deref;
use core::ptr::{self, NonNull};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use thiserror::Error;

use crate::completion::CompletionQueue;
use crate::device::Device;
use crate::events::{Channel, Event, step_failed};
use crate::library::{self, Libraries, LoadError, Manager, text};
use crate::memory::ProtectionDomain;
use crate::queue_pair::{Capacity, QueuePair, Settings, initial};
use crate::sys::*;

/// Bytes that may go with a request: what InfiniBand's message has room for, behind rdma_cm's own header.
pub const MOST_PRIVATE_DATA: usize = 56;
/// Requests that wait to be taken in; more are refused.
const MOST_PENDING: usize = 64;

/// Why a connection is not made.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// librdmacm cannot be used.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// A step failed.
    #[error("rdma_cm cannot {step}: {source}{}", advice(source))]
    Step {
        /// What was to be done.
        step: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// Something else happened than was waited for.
    #[error("rdma_cm cannot {step}: it reports {event} (status {status})")]
    Event {
        /// What was waited for.
        step: &'static str,
        /// What librdmacm calls it.
        event: &'static str,
        /// The number that came with it.
        status: i32,
    },
    /// Nothing happened in time.
    #[error("rdma_cm cannot {step}: nothing was heard in time")]
    TimedOut {
        /// What was waited for.
        step: &'static str,
    },
    /// The address belongs to no RDMA device.
    #[error("no RDMA device of this machine has the address {0}")]
    NoDevice(IpAddr),
}

impl ManagerError {
    /// Whether the port that rdma_cm chose for this end belongs to somebody else, so that another one may do. It keeps account of
    /// its own ports only, and iWARP's connections need the same number from TCP.
    pub fn is_port_taken(&self) -> bool {
        match self {
            Self::Step { source, .. } => source.raw_os_error() == Some(libc::EADDRINUSE),
            Self::Event { status, .. } => *status == -libc::EADDRINUSE,
            Self::Library(_) | Self::TimedOut { .. } | Self::NoDevice(_) => false,
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EADDRINUSE) => ". rdma_cm chose a port that TCP has in use",
        Some(libc::ENOENT | libc::ENODEV) => {
            ". /dev/infiniband/rdma_cm must exist and be accessible, and an RDMA device must have the address"
        }
        _ => "",
    }
}

/// librdmacm's end of one connection, or of a listener.
pub(crate) struct Identifier {
    raw: NonNull<rdma_cm_id>,
    channel: Arc<Channel>,
}

impl core::fmt::Debug for Identifier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Identifier").finish_non_exhaustive()
    }
}

// SAFETY: librdmacm allows all calls from any thread.
unsafe impl Send for Identifier {}
// SAFETY: as above.
unsafe impl Sync for Identifier {}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: its queue pair, which holds it, has gone; no event of it is unacknowledged.
        unsafe { (self.channel.manager.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

impl Identifier {
    fn new(channel: Arc<Channel>) -> Result<Self, ManagerError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel lives, and is held by the identifier.
        let code = unsafe {
            (channel.manager.rdma_create_id)(channel.raw.as_ptr(), &mut raw, ptr::null_mut(), RDMA_PS_TCP)
        };
        match NonNull::new(raw) {
            Some(raw) if code == 0 => Ok(Self { raw, channel }),
            _ => Err(step_failed("make an identifier")),
        }
    }

    fn manager(&self) -> &'static Manager {
        self.channel.manager
    }

    /// The device that it is bound to.
    fn device(self: &Arc<Self>, libraries: Libraries) -> Option<Device> {
        // SAFETY: the identifier lives; the context stays open as long as it does.
        let context = unsafe { self.raw.as_ref().verbs };
        let keeper: Arc<dyn core::any::Any + Send + Sync> = Arc::<Self>::clone(self);
        (!context.is_null()).then(|| Device::of_manager(libraries, context, keeper))
    }

    fn queue_pair(
        self: &Arc<Self>,
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        capacity: Capacity,
    ) -> Result<QueuePair, ManagerError> {
        let mut attributes = initial(completions, capacity);
        // SAFETY: identifier, domain and queue live, and are held by the queue pair from here on.
        let code =
            unsafe { (self.manager().rdma_create_qp)(self.raw.as_ptr(), domain.raw(), &mut attributes) };
        // SAFETY: the identifier lives.
        let raw = unsafe { self.raw.as_ref().qp };
        match NonNull::new(raw) {
            Some(raw) if code == 0 => {
                Ok(QueuePair::of_manager(raw, &attributes, domain, completions, Arc::clone(self)))
            }
            _ => Err(step_failed("make a queue pair")),
        }
    }

    pub(crate) fn destroy_queue_pair(&self) {
        // SAFETY: the one queue pair of this identifier is being dropped.
        unsafe { (self.manager().rdma_destroy_qp)(self.raw.as_ptr()) };
    }

    fn disconnect(&self) {
        // SAFETY: the identifier lives. An error says that there is no connection any more.
        unsafe { (self.manager().rdma_disconnect)(self.raw.as_ptr()) };
    }

    /// Waits for an event of this identifier.
    fn expect(&self, kind: i32, step: &'static str, deadline: Instant) -> Result<Event, ManagerError> {
        let event = self.channel.next(step, deadline)?;
        if event.kind == kind { Ok(event) } else { Err(self.unexpected(&event, step)) }
    }

    fn unexpected(&self, event: &Event, step: &'static str) -> ManagerError {
        // SAFETY: the function takes any number and answers a constant string.
        let name = text(unsafe { (self.manager().rdma_event_str)(event.kind) });
        ManagerError::Event { step, event: name, status: event.status }
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
            // SAFETY: as above.
            unsafe { to.cast::<libc::sockaddr_in6>().write(value) };
        }
    }
    storage
}

/// A function that lets an identifier begin to connect: `rdma_connect` or `rdma_accept`.
type Begin = unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> i32;

/// This end of a connection that is not made yet.
#[derive(Debug)]
pub struct Unjoined {
    identifier: Arc<Identifier>,
    device: Device,
}

impl Unjoined {
    /// The device over which the peer is reached.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes this end's queue pair, in which receives can be posted before the connection is made.
    pub fn queue_pair(
        &self,
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        capacity: Capacity,
    ) -> Result<QueuePair, ManagerError> {
        self.identifier.queue_pair(domain, completions, capacity)
    }

    /// Begins to connect. rdma_cm takes MTU and timeouts from the path; of `settings` it uses the rest.
    fn begin(
        &self,
        begin: Begin,
        private_data: &[u8],
        settings: &Settings,
        step: &'static str,
    ) -> Result<(), ManagerError> {
        let mut parameters = rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: private_data.len().min(MOST_PRIVATE_DATA) as u8,
            responder_resources: settings.answered_reads,
            initiator_depth: settings.reads,
            flow_control: 0,
            retry_count: settings.retries,
            rnr_retry_count: settings.rnr_retries,
            srq: 0,
            qp_num: 0,
        };
        // SAFETY: the identifier lives; the private data is copied.
        match unsafe { begin(self.identifier.raw.as_ptr(), &mut parameters) } {
            0 => Ok(()),
            _ => Err(step_failed(step)),
        }
    }
}

/// A joined pair of queue pairs, as librdmacm sees it. The connection ends when this and its queue pair have been dropped.
#[derive(Debug)]
pub struct Connection {
    identifier: Arc<Identifier>,
    private_data: Vec<u8>,
}

impl Connection {
    /// What the peer sent with its answer. May be followed by zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Ends the connection: the queue pairs of both sides end with it.
    pub fn disconnect(&self) {
        self.identifier.disconnect();
    }
}

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
            if self.pending.len() < MOST_PENDING {
                self.pending.push_back(request);
            } else {
                request.reject();
            }
        }
    }

    /// Accepts a request whose queue pair has been made, and waits until both ends can send. On iWARP the side that asked for
    /// the connection sends first.
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
