//! How long a client waits for what, and which ways to the server it takes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_config::ValueError;
use causeway_config::read::PROCESS;
use causeway_config::table::{KEEPALIVE_TIMEOUT, KEEPALIVE_TIMEOUT_DEFAULT, LANES, RESUME_TIMEOUT};
use causeway_connection::Dial;
use causeway_connection::keepalive::KeepaliveTimeouts;

use super::relocations::Relocations;
use crate::transport_choice::TransportChoice;

/// How long a client waits for what, and which ways it takes.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// For the TCP connection.
    pub connect_timeout: Duration,
    /// For the server's first word, which it says at once, before it starts anything: what says nothing for
    /// so long is another kind of server, or does not run.
    pub preface_timeout: Duration,
    /// For the server's answer, which comes after its worker has started the GPU.
    pub response_timeout: Duration,
    /// How long nothing may come over a link.
    pub keepalive: KeepaliveTimeouts,
    /// Open as many lanes as the length of the network asks for, not all that were granted.
    pub lanes_by_distance: bool,
    /// Which transport the session goes over.
    pub via: TransportChoice,
    /// Whether verbs, which do not encrypt, are good enough for a server with a key where others may listen.
    /// What is asked for by [`via`](Self::via) is.
    pub verbs_in_clear: bool,
    /// A folder in which the server's sockets may be, besides where the server says.
    pub socket_folder: Option<PathBuf>,
    /// Who makes the connections; this process itself if nobody is named.
    pub dialer: Option<Arc<dyn Dial>>,
    /// Where the session's further connections are dialled, when it moves.
    pub relocations: Arc<Relocations>,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const PREFACE_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: CONNECT_TIMEOUT,
            preface_timeout: PREFACE_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
            keepalive: keepalive(),
            lanes_by_distance: configured_lanes().is_ok_and(|lanes| lanes.is_none()),
            via: TransportChoice::Auto,
            verbs_in_clear: false,
            socket_folder: None,
            dialer: None,
            relocations: Arc::default(),
        }
    }
}

/// What `CAUSEWAY_KEEPALIVE_TIMEOUT` says. A connection is as little worth as all of them where nothing comes, since a
/// worker is not stopped as programs are.
fn keepalive() -> KeepaliveTimeouts {
    // What the variable may not be is refused before anybody connects.
    let seconds = PROCESS.seconds(&KEEPALIVE_TIMEOUT).ok().flatten().unwrap_or(KEEPALIVE_TIMEOUT_DEFAULT);
    KeepaliveTimeouts::of_seconds(seconds, seconds)
}

/// What `CAUSEWAY_RESUME_TIMEOUT` says.
pub(crate) fn resume_seconds() -> u32 {
    // What the variable may not be is refused before anybody connects.
    PROCESS.seconds(&RESUME_TIMEOUT).ok().flatten().map_or(0, |seconds| seconds as u32)
}

/// What `CAUSEWAY_LANES` says.
pub(crate) fn configured_lanes() -> Result<Option<u32>, ValueError> {
    Ok(PROCESS.number(&LANES)?.map(|lanes| lanes as u32))
}
