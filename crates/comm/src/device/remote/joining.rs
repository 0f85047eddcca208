//! Joining of two ranks' network cards, before the links begin: each end makes a queue pair, tells the other one of
//! it by their connection, and both say whether it worked. Where it did not, the link's stream has all.

use super::end::STAGING_BYTES;
use super::rdma::{BOUNCE_BYTES, RDMA_STAGING_BYTES, RdmaPath, slots_of};
use crate::device::peers::{PeerError, Peers};
use crate::verbs::{EndpointAddress, LinkNic, UnjoinedLink};
use causeway_ibverbs::MemoryRegion;

/// An end that is not joined: its queue pair, and its memory.
struct Unjoined {
    link: UnjoinedLink,
    bounce: MemoryRegion,
    staging: MemoryRegion,
}

/// What has come of a link: a path, or why there is none.
pub(crate) type Joined = (u32, Result<RdmaPath, String>);

/// Joins this rank's card with those of peers that have one, each with the address of a link's staging memory. All
/// ranks call it at the same time.
///
/// # Safety
/// The memory is there, and stays until the paths have been dropped.
///
/// # Errors
/// When a peer has gone.
pub(crate) unsafe fn join(
    nic: &LinkNic,
    peers: &Peers,
    links: &[(u32, u64)],
) -> Result<Vec<Joined>, PeerError> {
    let mut ends = Vec::with_capacity(links.len());
    for (peer, staging) in links {
        // SAFETY: the caller keeps the staging memory until the paths have been dropped.
        let end = unsafe { prepare(nic, *staging) };
        let address = end.as_ref().ok().map(|end| end.link.address(slots_of(&end.bounce)));
        peers.send_endpoint(*peer, address.as_ref())?;
        ends.push(end);
    }
    let mut joined = Vec::with_capacity(links.len());
    for ((peer, _), end) in links.iter().zip(ends) {
        let theirs = peers.receive_endpoint(*peer)?;
        let path = end.and_then(|end| complete(nic, end, theirs));
        peers.send_joined(*peer, path.is_ok())?;
        joined.push((*peer, path));
    }
    for (peer, path) in &mut joined {
        if !peers.receive_joined(*peer)? && path.is_ok() {
            *path = Err(format!("rank {peer} could not join its RDMA device with this rank's, and says why"));
        }
    }
    Ok(joined)
}

/// # Safety
/// As for [`join`].
unsafe fn prepare(nic: &LinkNic, staging: u64) -> Result<Unjoined, String> {
    let as_text = |error: crate::verbs::RdmaError| error.to_string();
    let link = UnjoinedLink::new(nic).map_err(as_text)?;
    let (bounce, all) = (staging + STAGING_BYTES, STAGING_BYTES + RDMA_STAGING_BYTES);
    // SAFETY: the bounce slots are a part of the staging memory, which the caller keeps. The peer writes to
    // them alone.
    let bounce = unsafe { nic.register(bounce, BOUNCE_BYTES, true) }.map_err(as_text)?;
    // SAFETY: the caller keeps the staging memory until the paths have been dropped.
    let staging = unsafe { nic.register(staging, all, false) }.map_err(as_text)?;
    Ok(Unjoined { link, bounce, staging })
}

fn complete(nic: &LinkNic, end: Unjoined, theirs: Option<EndpointAddress>) -> Result<RdmaPath, String> {
    let theirs = theirs.ok_or("the peer could not make a queue pair, and says why")?;
    let pair = end.link.join(nic, &theirs).map_err(|error| error.to_string())?;
    RdmaPath::new(pair, &theirs, end.bounce, end.staging).map_err(|error| error.to_string())
}
