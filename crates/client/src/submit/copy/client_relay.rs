//! Copy between devices of two servers through the client, for servers that have no path to each other.
//!
//! By way of this process, piece by piece. An asynchronous copy stops its stream and is carried out when the
//! stream gets there, so that it is in the order of streams and events like any other; by the thread for
//! copies, which no function of the program holds up.

use super::mode::Mode;
use super::one_server;
use crate::log::error;
use crate::model::context::ContextState;
use crate::model::region::{Endpoint, HostRegion};
use crate::model::stream::StreamState;
use crate::remote::session;
use crate::submit::callbacks::{self, Task};
use causeway_api::sys::CUresult;
use causeway_api::types::DeviceLocation;
use causeway_pipeline::{Shape, cut};
use std::sync::Arc;

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
                "a copy between devices of two servers failed on its way through this machine ({})",
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
            one_server::copy(Endpoint::Host(here), Endpoint::Device(source), reading, Mode::Synchronous)?;
            one_server::copy(
                Endpoint::Device(destination),
                Endpoint::Host(here),
                writing,
                Mode::Synchronous,
            )?;
        }
    }
    writing.synchronize()
}
