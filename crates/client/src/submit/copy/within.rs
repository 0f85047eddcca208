//! Copies between places of one server: which command carries them, and in which order are they with the work
//! of both devices?

use super::mode::Mode;
use super::owning_context::owning_context;
use crate::model::context::ContextState;
use crate::model::region::Endpoint;
use crate::model::stream::StreamState;
use crate::model::{context, device};
use crate::submit::event;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_api::types::DeviceLocation;
use std::sync::Arc;

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

/// Puts a copy between two contexts into a stream; with arrays the driver wants to be told both.
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
