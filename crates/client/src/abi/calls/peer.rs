//! Peer access calls.

use crate::abi::outcome::Outcome;
use crate::arguments::write_out;
use crate::model::context;
use crate::model::device::device;
use crate::remote::session;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::snapshot::Peer;
use causeway_api::sys::{CUcontext, CUdevice, CUdevice_P2PAttribute, CUresult};

/// What a device may do with the memory of one that is on another server.
static NOTHING: Peer = Peer { can_access: false, attributes: Vec::new() };

/// What the server said about a pair of devices; nothing for a device and itself.
fn pair(dev: CUdevice, peer: CUdevice) -> Result<Option<&'static Peer>, CUresult> {
    let (dev, peer) = (device(dev)?, device(peer)?);
    if dev.server != peer.server {
        return Ok(Some(&NOTHING));
    }
    let snapshot = &session::with(dev.server)?.snapshot;
    let (dev, peer) = (dev.ordinal as usize, peer.ordinal as usize);
    Ok(snapshot.peers.get(dev * snapshot.devices.len() + peer).filter(|_| dev != peer))
}

pub unsafe fn cuDeviceCanAccessPeer(canAccessPeer: *mut i32, dev: CUdevice, peerDev: CUdevice) -> Outcome {
    let can = pair(dev, peerDev)?.is_some_and(|peer| peer.can_access);
    // SAFETY: room for the result, or null.
    unsafe { write_out(canAccessPeer, i32::from(can)) }
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
    unsafe { write_out(value, found.map_or(0, |(_, value)| *value)) }
}

/// Posted: whether the program may do this is known here, and so is whether it has done it before.
pub unsafe fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: u32) -> Outcome {
    if Flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (current, peer) = (context::current_state()?, context::resolve(peerContext)?);
    // A device is not a peer of its own.
    if !pair(current.device, peer.device)?.is_some_and(|peer| peer.can_access) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    if !current.peers.lock().insert(peer.handle.value()) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    send::post(&calls::cuCtxEnablePeerAccess { peerContext: peer.handle, Flags })
}

pub unsafe fn cuCtxDisablePeerAccess(peerContext: CUcontext) -> Outcome {
    let (current, peer) = (context::current_state()?, context::resolve(peerContext)?);
    if !current.peers.lock().remove(&peer.handle.value()) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    send::post(&calls::cuCtxDisablePeerAccess { peerContext: peer.handle })
}
