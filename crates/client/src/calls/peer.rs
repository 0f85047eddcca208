//! What devices may do with each other's memory.

use super::Outcome;
use crate::device::device;
use crate::entry::give;
use crate::session::session;
use causeway_api::snapshot::Peer;
use causeway_api::sys::{CUdevice, CUdevice_P2PAttribute, CUresult};

/// What the server said about a pair of devices.
fn pair(dev: CUdevice, peer: CUdevice) -> Result<Option<&'static Peer>, CUresult> {
    let (dev, peer) = (device(dev)?.ordinal as usize, device(peer)?.ordinal as usize);
    let snapshot = &session()?.snapshot;
    Ok(snapshot.peers.get(dev * snapshot.devices.len() + peer).filter(|_| dev != peer))
}

pub unsafe fn cuDeviceCanAccessPeer(canAccessPeer: *mut i32, dev: CUdevice, peerDev: CUdevice) -> Outcome {
    let can = pair(dev, peerDev)?.is_some_and(|peer| peer.can_access);
    // SAFETY: room for the result, or null.
    unsafe { give(canAccessPeer, i32::from(can)) }
}

pub unsafe fn cuDeviceGetP2PAttribute(
    value: *mut i32,
    attrib: CUdevice_P2PAttribute,
    srcDevice: CUdevice,
    dstDevice: CUdevice,
) -> Outcome {
    let peer = pair(srcDevice, dstDevice)?.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    let found = peer.attributes.iter().find(|(number, _)| *number == attrib.0 as i32);
    // SAFETY: room for the result, or null.
    unsafe { give(value, found.map_or(0, |(_, value)| *value)) }
}
