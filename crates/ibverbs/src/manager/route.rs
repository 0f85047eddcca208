//! Address and route resolution, and connecting to a listener.

use core::ops::Deref;
use core::ptr;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use super::address::raw_address;
use super::connection::{Connection, Unjoined};
use super::error::{ManagerError, step_failed};
use super::identifier::Identifier;
use crate::events::Channel;
use crate::library::{self, Libraries};
use crate::queue_pair::Settings;
use crate::sys::*;

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
