//! Facts about both ends, known before a transport is tried.

use core::cell::OnceCell;
use std::net::IpAddr;

use causeway_access::{Endpoint, Target};
use causeway_transport_verbs::upgrade::VerbsCapability;
use causeway_wire::handshake::{Locality, Protection};

use crate::handshake::options::ConnectOptions;
use crate::transport_choice::TransportChoice;

/// What is known of both ends before anything is tried.
#[derive(Debug)]
pub struct Facts<'a> {
    /// Where the server is reached.
    pub endpoint: &'a Endpoint,
    /// How connections to it are protected.
    pub protection: Protection,
    /// Which transport the user wants.
    pub choice: TransportChoice,
    /// Whether a transport without encryption is good enough where others may listen.
    pub in_clear: bool,
    /// How the server is reached from its own host, once it has said so.
    pub server: Option<&'a Locality>,
    /// What this machine's kernel calls its current life.
    pub boot_id: String,
    /// This end of the connection to the server, once there is one.
    pub local: Option<IpAddr>,
    /// What this process can do with RDMA devices. Found when a probe first asks: libraries are loaded for
    /// that.
    pub rdma: OnceCell<Result<Rdma, String>>,
}

impl<'a> Facts<'a> {
    /// What is known before a connection is made.
    pub fn before(target: &'a Target, options: &ConnectOptions) -> Self {
        Self {
            endpoint: &target.endpoint,
            protection: target.protection,
            choice: options.via,
            in_clear: options.verbs_in_clear,
            server: None,
            boot_id: String::new(),
            local: None,
            rdma: OnceCell::new(),
        }
    }
}

/// What this process can do with RDMA devices.
#[derive(Debug)]
pub struct Rdma {
    /// Whether packets go over Ethernet, where many can read them.
    pub is_ethernet: bool,
    /// How it would be done.
    pub(crate) chance: Option<VerbsCapability>,
}
