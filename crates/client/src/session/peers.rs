//! Ways from server to server, by which copies between their devices go without passing here.

use super::{Session, with};
use crate::log::{error, info};
use causeway_api::calls;
use causeway_api::handle::{Handle, MOST_SERVERS};
use causeway_api::sys::CUresult;
use causeway_fabric::Via;
use causeway_fabric::target::random_bytes;
use parking_lot::Mutex;

/// What carries copies from the devices of one server to those of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// A link between their workers, over this module.
    Link(Via),
    /// Nothing.
    None,
}

/// The ways, by destination and source. One that could not be had is not tried again.
static WAYS: Mutex<[[Option<Way>; MOST_SERVERS]; MOST_SERVERS]> =
    Mutex::new([[None; MOST_SERVERS]; MOST_SERVERS]);

/// A way by which the worker of one server can read what the client offers it of another one's devices.
pub struct Path {
    /// The number by which the reader knows the other worker.
    pub peer: u64,
    /// What carries the bytes.
    pub via: Via,
}

/// Makes sure that the worker of one server can read what the client offers it of another one's devices.
///
/// # Errors
/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED` when the servers cannot reach each other; the reason is on standard error.
pub fn way(destination: usize, source: usize) -> Result<Path, CUresult> {
    let mut ways = WAYS.lock();
    let known = &mut ways[destination][source];
    let way = match known {
        Some(way) => *way,
        None => *known.insert(connect(destination, source)?),
    };
    match way {
        Way::Link(via) => Ok(Path { peer: source as u64, via }),
        Way::None => Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
    }
}

fn connect(destination: usize, source: usize) -> Result<Way, CUresult> {
    let Session { target, via, locality, .. } = with(source)?;
    let ticket = super::call_in(Handle::null_of(source), &calls::peer_ticket {})?;
    let request = calls::peer_connect {
        peer: source as u64,
        host: &target.host,
        port: target.port.into(),
        encrypted: target.key.is_some(),
        via: &via.to_string(),
        boot_id: &locality.boot_id,
        sockets: &locality.sockets.join("\n"),
        ticket,
    };
    let way = super::call_in(Handle::null_of(destination), &request)?;
    let (destination, source) = (destination + 1, source + 1);
    match Via::ALL.into_iter().find(|via| via.to_string() == way.via) {
        Some(via) => {
            let reason = way.reason;
            info!(
                "copies from devices of server {source} to those of server {destination} go via {via}{reason}"
            );
            Ok(Way::Link(via))
        }
        None => {
            error!(
                "devices of server {source} cannot be copied from by server {destination}, which has to reach it at \
                 {target}: {}",
                way.reason
            );
            Ok(Way::None)
        }
    }
}

/// A number for something that a server is allowed to read: who knows it may, so nobody can guess it.
pub fn offer_number() -> u64 {
    u64::from_le_bytes(random_bytes())
}
