//! Copies to a device that the server's network card reads out of this process's memory, straight into the
//! device's: GPUDirect.
//!
//! Pinned memory is exposed where it is. It must not change before its stream has passed the copy, which CUDA
//! demands anyway, and it is not freed before the server has given it back. There are no pieces for staging
//! then, so that a command exposes much.

use super::endpoint::Mode;
use crate::model::region::HostRegion;
use crate::model::stream::StreamState;
use crate::model::transfers::Reading;
use crate::model::{device, memory};
use crate::remote::registered;
use crate::remote::session::faults::LOST;
use crate::remote::session::{self, Session};
use crate::submit::copy::download::pieces;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::sys::CUresult;
use causeway_api::types::{DeviceLocation, Payload, RemoteRegion};

/// Bytes that one command exposes: few enough for the program to see it get on, and for the server to bring
/// them to staging after all.
const MAX_GPUDIRECT_BYTES: usize = 64 << 20;

/// Copies of fewer bytes are not worth it: their stream stops for longer than one more copy of them takes.
const MIN_GPUDIRECT_BYTES: usize = 256 << 10;

/// Whether the server's card reaches this place: memory of a heap, whose blocks the server registers.
fn is_accessible(destination: &DeviceLocation) -> bool {
    let DeviceLocation::Memory(region) = destination else { return false };
    region.is_contiguous() && memory::find(region.address).is_some_and(|piece| piece.heap.is_some())
}

/// Whether a copy of contiguous memory of the program is for the server's card to read. `is_stable` says that
/// the memory stays as it is until the copy is done.
pub(super) fn suits(
    session: &Session,
    destination: &DeviceLocation,
    source: &HostRegion,
    is_stable: bool,
) -> bool {
    if !(is_stable
        && source.bytes() >= MIN_GPUDIRECT_BYTES
        && session.is_direct()
        && is_accessible(destination))
    {
        return false;
    }
    registered::note(session, source);
    session.link().knows(source.address, source.bytes())
}

/// Exposes the source, which [suits](suits), to the server.
///
/// # Safety
/// `source` must be readable, and stay as it is, until the stream has passed the copy.
pub(super) unsafe fn expose(
    destination: DeviceLocation,
    source: HostRegion,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let session = session::of(stream.context)?;
    for (target, part) in pieces(destination, source, MAX_GPUDIRECT_BYTES, None) {
        let (start, end) = part.span();
        // Whoever frees the memory waits for this.
        let exposed = session.link().expose_for_read(part.address, part.bytes(), Reading::of(start, end));
        let memory = exposed.ok_or(LOST)?;
        post(session, target, part.bytes(), memory, stream)?;
    }
    if mode == Mode::Synchronous { stream.synchronize() } else { Ok(()) }
}

fn post(
    session: &Session,
    destination: DeviceLocation,
    length: usize,
    memory: RemoteRegion,
    stream: &StreamState,
) -> Result<(), CUresult> {
    let data = Payload::Region { number: device::fresh(), length: length as u64, memory };
    let request = calls::copy_to_device { destination, stream: stream.handle, publish: false, data };
    send::post_in(stream.context, &request).inspect_err(|_| session.link().recall(memory))
}
