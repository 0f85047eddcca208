//! Listening sockets that a broker gets from the one whose place it takes.

use std::os::fd::OwnedFd;

use crate::protocol::messages::ListenerAddress;

/// The sockets that nobody has taken yet. Those that are left over are closed: the configuration has changed.
#[derive(Debug, Default)]
pub struct InheritedSockets(Vec<(ListenerAddress, OwnedFd)>);

impl InheritedSockets {
    /// Adds one.
    pub fn add(&mut self, address: ListenerAddress, socket: OwnedFd) {
        self.0.push((address, socket));
    }

    /// Takes the one of an address, if it is there.
    pub fn take<S: From<OwnedFd>>(&mut self, address: &ListenerAddress) -> Option<S> {
        let at = self.0.iter().position(|(known, _)| known == address)?;
        Some(self.0.swap_remove(at).1.into())
    }

    /// Takes the one of which clients are told whose name is wanted, and the name.
    pub fn take_announced<S: From<OwnedFd>>(
        &mut self,
        is_requested: impl Fn(&str) -> bool,
    ) -> Option<(String, S)> {
        let name = self.0.iter().find_map(|(address, _)| match address {
            ListenerAddress::Announced(name) if is_requested(name) => Some(name.clone()),
            _ => None,
        })?;
        self.take(&ListenerAddress::Announced(name.clone())).map(|socket| (name, socket))
    }
}
