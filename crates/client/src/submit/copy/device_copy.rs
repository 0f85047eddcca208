//! Copies on one server: dispatch by endpoints, and copies within and between its devices, in order with the work of
//! both.

use super::download::from_device;
use super::endpoint::{Mode, owning_context};
use super::upload::to_device;
use crate::model::context::ContextState;
use crate::model::region::{Endpoint, HostRegion};
use crate::model::stream::StreamState;
use crate::model::{context, device};
use crate::remote::{mirrored, session};
use crate::statistics::copies::{self, By};
use crate::submit::callbacks::{self, Task};
use crate::submit::{capture, event, send};
use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_api::types::DeviceLocation;
use causeway_pipeline::Direction;
use std::sync::Arc;

/// The longest copy, in bytes, whose source is better read here than by the device where both can: about 1 us
/// of copying.
const SHORT: usize = 4096;

/// Copies in the order of `stream`.
///
/// # Safety
/// As for [`copy`](super::copy).
pub(super) unsafe fn copy(
    destination: Endpoint,
    source: Endpoint,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    session::of(stream.context)?.faults().check()?;
    if capture::of(stream) != 0 {
        if mode == Mode::Synchronous {
            return capture::refuse_wait(stream);
        }
        return capture::add_copy(&destination, &source, stream);
    }
    let requested = (destination, source);
    let server = stream.context.server();
    let destination = mirrored::resolve_endpoint(server, destination);
    let source = if mode == Mode::Synchronous && is_short_and_idle(&source, stream) {
        source
    } else {
        mirrored::resolve_endpoint(server, source)
    };
    let uses_source = match (requested.1, source) {
        (Endpoint::Host(host), Endpoint::Device(mirror)) => {
            copies::count(Direction::ToDevice, By::Common, &host);
            mirrored::is_read(&host, &mirror);
            true
        }
        _ => false,
    };
    if let (Endpoint::Host(host), Endpoint::Device(_)) = (requested.0, destination) {
        copies::count(Direction::FromDevice, By::Common, &host);
        if mirrored::is_same_memory(host.address as usize) {
            callbacks::hold_for_writes(stream)?;
        }
    }
    if mode == Mode::Synchronous && uses_source && !is_idle(stream) {
        // The driver reads so short a source as soon as its own stream is idle, even if others that it is in
        // order with write to it.
        stream.synchronize()?;
    }
    // SAFETY: the caller keeps the endpoints' host memory valid until the copy is done.
    unsafe {
        match (destination, source) {
            (Endpoint::Device(destination), Endpoint::Device(source)) => {
                within_device(destination, source, stream, mode)
            }
            (Endpoint::Device(destination), Endpoint::Host(source)) => {
                to_device(destination, source, stream, mode)
            }
            (Endpoint::Host(destination), Endpoint::Device(source)) => {
                from_device(destination, source, stream, mode)
            }
            (Endpoint::Host(destination), Endpoint::Host(source)) => {
                within_host(destination, source, stream, mode)
            }
        }?;
    }
    // The program reads what was copied, or changes what is being copied, with no call in between.
    let in_use = || match destination {
        Endpoint::Device(DeviceLocation::Memory(written)) if mirrored::contains(written.address) => true,
        _ => uses_source,
    };
    if mode == Mode::Synchronous && in_use() { stream.synchronize() } else { Ok(()) }
}

/// Whether a synchronous copy may read its source at once, though the device reads the same bytes: it is
/// short, and nothing is under way that could still write to it. Then the call need not wait for the device
/// to read it.
fn is_short_and_idle(source: &Endpoint, stream: &StreamState) -> bool {
    let Endpoint::Host(source) = source else { return false };
    source.bytes() <= SHORT
        && mirrored::is_in_common(source.address as usize)
        && context::state(stream.context).is_ok_and(|context| context.is_idle())
}

/// A copy within the program's memory. It has its place in the stream like any other, and outside of graphs
/// the call waits for it, as CUDA's does.
///
/// # Safety
/// `destination` must be writable and `source` readable, in a graph until the stream has passed the copy.
unsafe fn within_host(
    destination: HostRegion,
    source: HostRegion,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let run = Box::new(move |outcome: Result<(), CUresult>| {
        let (destination, source) = (destination, source);
        if outcome.is_ok() {
            // SAFETY: the stream has come to the copy and not passed it, or the caller's own stack holds this;
            // the regions may overlap, so the bytes go through a buffer.
            unsafe { destination.unpack(&source.pack(), 1) };
        }
    });
    if mode != Mode::InGraph && is_idle(stream) {
        run(Ok(()));
        return Ok(());
    }
    callbacks::post(stream, Task::Access { run, after: stream.pending_writes() })?;
    if mode == Mode::InGraph { Ok(()) } else { stream.synchronize() }
}

/// Whether nothing is under way that the next command of a stream could have to come behind, as far as is
/// known.
fn is_idle(stream: &StreamState) -> bool {
    !session::are_several()
        && !stream.pending_writes().is_unsettled()
        && context::state(stream.context).is_ok_and(|context| context.is_idle())
}

/// The contexts of both places of a copy.
#[derive(Clone, Copy)]
pub struct Contexts {
    /// Where the bytes go.
    pub destination: Handle<Context>,
    /// Where they come from.
    pub source: Handle<Context>,
}

/// Puts a copy between places that say themselves on which device they are into a stream.
pub(super) fn within_device(
    destination: DeviceLocation,
    source: DeviceLocation,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    put(destination, source, None, stream, mode)
}

/// Puts a copy between two contexts into a stream; with arrays the driver needs both.
pub fn between_contexts(
    destination: DeviceLocation,
    source: DeviceLocation,
    contexts: Contexts,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    put(destination, source, Some(contexts), stream, mode)
}

/// Every copy between places of one server goes this way, so that none misses its order.
fn put(
    destination: DeviceLocation,
    source: DeviceLocation,
    contexts: Option<Contexts>,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let post = || match contexts {
        None => {
            let request = calls::copy_within_device { destination, source, stream: stream.handle };
            send::post_in(stream.context, &request)
        }
        Some(contexts) => {
            let request = calls::copy_between_contexts {
                destination,
                destination_context: contexts.destination,
                source,
                source_context: contexts.source,
                stream: stream.handle,
            };
            send::post_in(stream.context, &request)
        }
    };
    let is_of_one_device = contexts.is_none() && device::all().len() == 1;
    if mode == Mode::Synchronous && !is_of_one_device {
        // What either device gets afterwards finds the bytes.
        in_order_with_both([destination, source], stream, post)
    } else {
        post()
    }
}

/// Puts work into a stream, in order with what the default streams of both places' contexts hold and get.
fn in_order_with_both(
    locations: [DeviceLocation; 2],
    stream: &StreamState,
    post: impl FnOnce() -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let mut others = Vec::new();
    for owning_context in
        locations.into_iter().filter_map(|location| owning_context(&Endpoint::Device(location)))
    {
        let state = context::state(owning_context)?;
        if owning_context != stream.context
            && state.is_active()
            && others.iter().all(|other: &Arc<ContextState>| other.handle != owning_context)
        {
            others.push(state);
        }
    }
    others.iter().try_for_each(|other| event::join(stream, &other.legacy_stream))?;
    post()?;
    others.iter().try_for_each(|other| event::join(&other.legacy_stream, stream))
}
