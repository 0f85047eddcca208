//! Ways from server to server, by which copies between their devices go without passing here.

use super::with;
use crate::log::{error, info};
use causeway_api::calls;
use causeway_api::handle::{Handle, MOST_SERVERS};
use causeway_api::sys::CUresult;
use causeway_fabric::target::random_bytes;
use parking_lot::Mutex;

/// Whether there is a way, by destination and source. One that could not be had is not tried again.
static WAYS: Mutex<[[Option<bool>; MOST_SERVERS]; MOST_SERVERS]> =
    Mutex::new([[None; MOST_SERVERS]; MOST_SERVERS]);

/// Makes sure that the worker of one server can read what the client offers it of another one's devices. Gives the number
/// by which the reader knows the other worker.
///
/// # Errors
/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED` when the servers cannot reach each other; the reason is on standard error.
pub fn way(destination: usize, source: usize) -> Result<u64, CUresult> {
    let mut ways = WAYS.lock();
    let known = &mut ways[destination][source];
    if known.is_none() {
        *known = Some(connect(destination, source)?);
    }
    if *known == Some(true) { Ok(source as u64) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) }
}

fn connect(destination: usize, source: usize) -> Result<bool, CUresult> {
    let target = &with(source)?.target;
    let ticket = super::call_in(Handle::null_of(source), &calls::peer_ticket {})?;
    let request = calls::peer_connect {
        peer: source as u64,
        host: &target.host,
        port: target.port.into(),
        encrypted: target.key.is_some(),
        ticket,
    };
    let trouble = super::call_in(Handle::null_of(destination), &request)?;
    let (destination, source) = (destination + 1, source + 1);
    if trouble.is_empty() {
        info!("copies from devices of server {source} to those of server {destination} go by their own way");
    } else {
        error!(
            "devices of server {source} cannot be copied from by server {destination}, which has to reach it at {target}: \
             {trouble}"
        );
    }
    Ok(trouble.is_empty())
}

/// A number for something that a server is allowed to read: who knows it may, so nobody can guess it.
pub fn offer_number() -> u64 {
    u64::from_le_bytes(random_bytes())
}
