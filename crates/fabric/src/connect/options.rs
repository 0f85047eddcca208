//! How long a client waits for what, and which ways to the server it takes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::ConnectError;
use super::error::not_via;
use super::lanes::lanes_asked_for;
use crate::verbs::join::chance;
use crate::via::{Via, ViaChoice};
use causeway_access::target::{Endpoint, Target};
use causeway_connection::Dial;

/// How long a client waits for what, and which ways it takes.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// For the TCP connection.
    pub connect_timeout: Duration,
    /// For the server's answer, which comes after its worker has started the GPU.
    pub answer_timeout: Duration,
    /// Open as many lanes as the length of the network asks for, not all that were granted.
    pub lanes_by_distance: bool,
    /// Which module the session goes over.
    pub via: ViaChoice,
    /// Whether verbs, which do not encrypt, are good enough for a server with a key where others may listen. What is asked for by
    /// [`via`](Self::via) is.
    pub verbs_in_clear: bool,
    /// A folder in which the server's sockets may be, besides where the server says.
    pub socket_folder: Option<PathBuf>,
    /// Who makes the connections; this process itself if nobody is named.
    pub dialer: Option<Arc<dyn Dial>>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            lanes_by_distance: lanes_asked_for().is_none(),
            via: ViaChoice::Auto,
            verbs_in_clear: false,
            socket_folder: None,
            dialer: None,
        }
    }
}

impl ConnectOptions {
    /// An error when the module that was asked for cannot be had from this server, or from any.
    pub fn check(&self, target: &Target) -> Result<(), ConnectError> {
        if let (ViaChoice::Only(via @ (Via::Tcp | Via::Verbs)), Endpoint::Unix(_)) =
            (self.via, &target.endpoint)
        {
            let text =
                "a Unix socket leads to memory that program and server share (shm), and to nothing else";
            return Err(not_via(target, via, text.to_owned()));
        }
        if self.via != ViaChoice::Only(Via::Verbs) {
            return Ok(());
        }
        chance(None).map(drop).map_err(|error| not_via(target, Via::Verbs, error.to_string()))
    }
}
