//! Owning context of the device memory of a copy.

use crate::model::memory;
use crate::model::region::Endpoint;
use crate::model::{array, context};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUdeviceptr;
use causeway_api::types::DeviceLocation;

/// The context that a place on a device belongs to; nothing for the program's memory, and for addresses that
/// only the stream's server can judge.
pub(super) fn owning_context(endpoint: &Endpoint) -> Option<Handle<Context>> {
    match endpoint {
        Endpoint::Host(_) => None,
        Endpoint::Device(DeviceLocation::Array(part)) => array::context_of(part.array),
        Endpoint::Device(DeviceLocation::Memory(region)) => owner_of(region.address),
    }
}

/// The context of the memory at an address; nothing for addresses that only a server can judge.
pub fn owner_of(address: CUdeviceptr) -> Option<Handle<Context>> {
    let piece = memory::find(address)?;
    let known = Some(piece.context).filter(|context| !context.is_null());
    known.or_else(|| context::primary(piece.device).ok().map(|primary| primary.handle))
}
