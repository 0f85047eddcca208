//! Ways from server to server, by which copies between their devices go without passing here.

use crate::locks::{OnceMap, rank};
use crate::log::{error, info};
use crate::remote::session::{Session, call_in, with};
use crate::statistics;
use causeway_access::target::random_bytes;
use causeway_api::calls;
use causeway_api::handle::Handle;
use causeway_api::sys::CUresult;
use causeway_api::types::{PeerTicket, PeerTransport};
use causeway_config::read::PROCESS;
use causeway_config::table::BETWEEN_SERVERS;
use causeway_link::TransportKind;
use causeway_link::inter_server::BetweenServers;
use std::sync::OnceLock;

/// What the user lets carry copies between devices of two servers.
pub fn choice() -> BetweenServers {
    static CHOICE: OnceLock<BetweenServers> = OnceLock::new();
    // One that makes no sense has kept the session from being opened.
    *CHOICE.get_or_init(|| PROCESS.parsed(&BETWEEN_SERVERS).ok().flatten().unwrap_or(BetweenServers::Auto))
}

/// What carries copies from the devices of one server to those of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerPath {
    /// A link between their workers.
    Link(PeerLink),
    /// This process, since there is no other way.
    Client,
}

/// A link by which the worker of one server reads what the client offers it of another one's devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerLink {
    /// The number by which the reader knows the other worker: its server's.
    pub peer: u64,
    /// The ticket with which it came there.
    pub ticket: PeerTicket,
    /// What carries the bytes.
    pub via: TransportKind,
}

/// The ways, by destination and source. A link that could not be had is not tried again.
static PATHS: OnceMap<rank::PeerPaths, (usize, usize), PeerPath> = OnceMap::new();

/// The way for copies between devices of two servers, which is found when it is first needed.
///
/// # Errors
/// When one of the servers is lost.
pub fn path(destination: usize, source: usize) -> Result<PeerPath, CUresult> {
    if choice() == BetweenServers::Client {
        return Ok(PeerPath::Client);
    }
    PATHS.get_or_make(&(destination, source), || connect(destination, source))
}

/// Notes what has been found out about a way.
pub fn note(sentence: String) {
    info!("{sentence}");
    statistics::note_between_servers(sentence);
}

fn connect(destination: usize, source: usize) -> Result<PeerPath, CUresult> {
    let Session { target, address, via, locality, .. } = with(source)?;
    let via = choice().link(*via);
    let ticket = call_in(Handle::null_of(source), &calls::peer_ticket {})?;
    let peer = source as u64;
    let request = calls::peer_connect {
        peer,
        address,
        via: &via.to_string(),
        in_clear: via.in_clear,
        boot_id: &locality.boot_id,
        sockets: &locality.sockets.join("\n"),
        ticket,
    };
    let PeerTransport { via, reason } = call_in(Handle::null_of(destination), &request)?;
    let (destination, source) = (destination + 1, source + 1);
    match TransportKind::named(&via) {
        Some(via) => {
            note(format!(
                "copies from devices of server {source} to those of server {destination} go via {via}{reason}"
            ));
            Ok(PeerPath::Link(PeerLink { peer, ticket, via }))
        }
        None => {
            let sentence = format!(
                "server {destination} cannot copy from devices of server {source} at {target}: {reason}. \
                 Such copies go through this machine and are limited by its network"
            );
            error!("{sentence}");
            statistics::note_between_servers(sentence);
            Ok(PeerPath::Client)
        }
    }
}

/// A number for something that a server is allowed to read: who knows it may, so nobody can guess it.
pub fn offer_number() -> u64 {
    u64::from_le_bytes(random_bytes())
}
