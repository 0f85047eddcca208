//! Copies that concern several servers, and the server that carries each out.
//!
//! A copy between the program's memory and a device is that device's server's, whichever stream it is for. A
//! copy between devices of two servers is the destination's: its device reads the source's memory itself
//! where it reaches it, else its worker reads from the source's server; no byte of it comes here, unless the
//! servers do not reach each other. Where the copy's stream is another server's, a stream of ours carries the
//! copy, and the two wait for each other. Synchronous copies wait here instead, as they are in order with the
//! work of both devices.
//!
//! Where the servers have no path to each other, the copy goes through the client.
//! It goes piece by piece. An asynchronous copy stops its stream and is carried out when the
//! stream gets there, so that it is in the order of streams and events like any other; by the thread for
//! copies, which no function of the program holds up.

use super::device_copy;
use super::endpoint::{Mode, owning_context};
use crate::log::{error, refuse_use};
use crate::model::context::{self, ContextState};
use crate::model::memory::{self, Origin};
use crate::model::region::{Endpoint, HostRegion};
use crate::model::stream::StreamState;
use crate::remote::peers::{self, PeerPath};
use crate::remote::session;
use crate::statistics::copies::{self, InterServerPath};
use crate::submit::callbacks::{self, Task};
use crate::submit::ipc_imports::{self, Source, Whole};
use crate::submit::{capture, event, send, virtual_memory};
use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_api::types::{DeviceLocation, PeerTicket, Region};
use causeway_link::inter_server::BetweenServers;
use causeway_pipeline::{Shape, cut};
use std::sync::Arc;

/// Carries a copy out that its stream's server alone cannot; nothing when it can.
///
/// # Safety
/// As for [`copy`](super::copy).
pub(super) unsafe fn route(
    destination: Endpoint,
    source: Endpoint,
    stream: &StreamState,
    mode: Mode,
) -> Option<Result<(), CUresult>> {
    let here = stream.context.server();
    let (to, from) = (owning_context(&destination), owning_context(&source));
    match (to, from) {
        (Some(to), Some(from)) if to.server() != from.server() => {
            let (Endpoint::Device(destination), Endpoint::Device(source)) = (destination, source) else {
                return None;
            };
            Some(
                outside_graphs(stream, mode)
                    .and_then(|()| between_servers((destination, to), (source, from), stream, mode)),
            )
        }
        (Some(owning_context), _) | (_, Some(owning_context)) if owning_context.server() != here => {
            // SAFETY: the caller keeps the endpoints' host memory valid until the copy is done.
            Some(
                outside_graphs(stream, mode)
                    .and_then(|()| unsafe { elsewhere(owning_context, destination, source, stream, mode) }),
            )
        }
        _ => None,
    }
}

/// Puts work for a stream of one server into another one's context, by a stream of ours that `put` gets.
pub fn by_proxy_stream(
    owning_context: Handle<Context>,
    stream: &StreamState,
    put: impl FnOnce(&StreamState) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let proxy = context::state(owning_context)?.proxy(stream)?;
    event::join(&proxy, stream)?;
    put(&proxy)?;
    event::join(stream, &proxy)
}

fn outside_graphs(stream: &StreamState, mode: Mode) -> Result<(), CUresult> {
    if capture::of(stream) == 0 && mode != Mode::InGraph {
        return Ok(());
    }
    capture::invalidate(capture::of(stream));
    Err(refuse_use!("graphs with work for devices of several servers"))
}

/// A copy between the program's memory, or a device, and a device of a server that is not the stream's.
///
/// # Safety
/// As for [`copy`](super::copy).
unsafe fn elsewhere(
    owning_context: Handle<Context>,
    destination: Endpoint,
    source: Endpoint,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    if mode == Mode::Synchronous {
        stream.synchronize()?;
        // SAFETY: the caller keeps the endpoints' host memory valid until the copy is done.
        return unsafe {
            device_copy::copy(destination, source, &context::state(owning_context)?.legacy_stream, mode)
        };
    }
    // SAFETY: the caller keeps the endpoints' host memory valid until the copy is done.
    by_proxy_stream(owning_context, stream, |proxy| unsafe {
        device_copy::copy(destination, source, proxy, mode)
    })
}

/// A copy between devices of two servers, each place with its context.
fn between_servers(
    (destination, to): (DeviceLocation, Handle<Context>),
    (source, from): (DeviceLocation, Handle<Context>),
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let (to, from) = (context::state(to)?, context::state(from)?);
    let (destination, source) = in_one_row(destination, source);
    let bytes = source.bytes().unwrap_or(0);
    let link = match peers::path(to.handle.server(), from.handle.server())? {
        PeerPath::Link(link) => link,
        PeerPath::Client => {
            copies::count_inter_server(InterServerPath::Client, bytes);
            return via_client((destination, &to), (source, &from), stream, mode);
        }
    };
    let is_here = mode != Mode::Synchronous && stream.context.server() == to.handle.server();
    // The device that carries the copy out is that of the stream it is put into.
    let carrier = if is_here { stream.context } else { to.handle };
    let imported = if link.via.is_within_host() && peers::choice() == BetweenServers::Auto {
        imported(&source, carrier, (link.peer, link.ticket))?
    } else {
        None
    };
    copies::count_inter_server(
        if imported.is_some() { InterServerPath::Device } else { InterServerPath::Link(link.via) },
        bytes,
    );
    let put = |writing: &StreamState| {
        if let Some(Source { import, location }) = imported {
            let request =
                calls::peer_copy_imported { import, destination, source: location, stream: writing.handle };
            return send::post_in(writing.context, &request);
        }
        let (offer, reading) = (peers::offer_number(), from.reader()?);
        send::post_in(from.handle, &calls::peer_offer { offer, source, stream: reading.handle })?;
        session::of(from.handle)?.flush()?;
        let request = calls::peer_copy { peer: link.peer, offer, destination, stream: writing.handle };
        send::post_in(to.handle, &request)
    };
    if mode == Mode::Synchronous {
        stream.synchronize()?;
        from.legacy_stream.synchronize()?;
        put(&to.legacy_stream)?;
        return to.legacy_stream.synchronize();
    }
    if is_here { put(stream) } else { by_proxy_stream(to.handle, stream, put) }
}

/// Both places as one row where neither has gaps, so that pieces can begin anywhere.
fn in_one_row(destination: DeviceLocation, source: DeviceLocation) -> (DeviceLocation, DeviceLocation) {
    let row = |location: &DeviceLocation| match location {
        DeviceLocation::Memory(region) if region.is_contiguous() => {
            region.bytes().map(|bytes| DeviceLocation::from(Region::linear(region.address, bytes)))
        }
        _ => None,
    };
    row(&destination).zip(row(&source)).unwrap_or((destination, source))
}

/// What has been imported of a place to the device of a context; nothing where it cannot be.
fn imported(
    location: &DeviceLocation,
    carrier: Handle<Context>,
    peer: (u64, PeerTicket),
) -> Result<Option<Source>, CUresult> {
    let DeviceLocation::Memory(region) = location else { return Ok(None) };
    let Some(whole) = whole(region) else { return Ok(None) };
    ipc_imports::source(region, &whole, carrier, peer)
}

/// The allocation around a region; nothing where the client does not know it.
fn whole(region: &Region) -> Option<Whole> {
    let piece = memory::find(region.address)?;
    let (handle, base, size) = match (&piece.heap, piece.origin) {
        (Some(heap), _) => {
            let (base, block) = heap.block_of(region.address)?;
            (block.handle, base, block.size)
        }
        (None, Origin::Mapping) => {
            let allocation = virtual_memory::allocation_at(region.address)?;
            (allocation.handle, piece.base, allocation.size)
        }
        (None, _) => return None,
    };
    Some(Whole { handle, base, size, device: piece.device })
}

/// Bytes that are here at a time, except where a row of an array is longer.
const PIECE: usize = 16 << 20;

/// Carries a copy out in the order of `stream`, each place with its context.
pub(super) fn via_client(
    (destination, to): (DeviceLocation, &ContextState),
    (source, from): (DeviceLocation, &ContextState),
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    // Streams of ours that wait for nothing.
    let (writing, reading) = (to.reader()?, from.reader()?);
    if mode == Mode::Synchronous {
        stream.synchronize()?;
        from.legacy_stream.synchronize()?;
        to.legacy_stream.synchronize()?;
        return carry(destination, &writing, source, &reading);
    }
    let run = Box::new(move |outcome: Result<(), CUresult>| {
        // A stream that has failed before copies nothing.
        if outcome.is_ok()
            && let Err(status) = carry(destination, &writing, source, &reading)
        {
            error!(
                "a copy between devices of two servers failed on the way through this machine ({})",
                status.0
            );
            if let Ok(session) = session::of(writing.context) {
                session.faults().record(status);
            }
        }
    });
    callbacks::post(stream, Task::Access { run, after: stream.pending_writes() })
}

fn carry(
    destination: DeviceLocation,
    writing: &Arc<StreamState>,
    source: DeviceLocation,
    reading: &Arc<StreamState>,
) -> Result<(), CUresult> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    if destination.size() != source.size() {
        return Err(invalid);
    }
    let (width, height, depth) = source.size();
    let shape = Shape { width: width as usize, height: height as usize, depth: depth as usize };
    // Rows of arrays stay whole: what their elements are only the device knows.
    let is_array = |location: &DeviceLocation| matches!(location, DeviceLocation::Array(_));
    let max_bytes = if is_array(&destination) || is_array(&source) { PIECE.max(shape.width) } else { PIECE };
    let mut bytes = Vec::new();
    for piece in cut(shape, max_bytes, 1) {
        let Shape { width, height, depth } = piece.shape;
        let (at, size) = (piece.at.map(|at| at as u64), [width, height, depth].map(|size| size as u64));
        let (destination, source) = destination.part(at, size).zip(source.part(at, size)).ok_or(invalid)?;
        bytes.resize(piece.bytes(), 0_u8);
        let here = HostRegion {
            address: bytes.as_mut_ptr(),
            row_pitch: width,
            slice_pitch: width * height,
            width,
            height,
            depth,
        };
        // SAFETY: the vector has the piece's bytes, and is not touched before both calls have returned,
        // which, being synchronous, are done with it then.
        unsafe {
            device_copy::copy(Endpoint::Host(here), Endpoint::Device(source), reading, Mode::Synchronous)?;
            device_copy::copy(
                Endpoint::Device(destination),
                Endpoint::Host(here),
                writing,
                Mode::Synchronous,
            )?;
        }
    }
    writing.synchronize()
}
