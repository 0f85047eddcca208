//! Green contexts.
//!
//! What a resource is, only the server's driver knows: the program's structure holds the public numbers, and
//! in its private part the number under which the server keeps the resource.

use crate::abi::entry::Outcome;
use crate::arguments::{list, write_optional, write_out};
use crate::model::context::{self, ContextState};
use crate::model::device::{device, on_server, without_context};
use crate::model::handles;
use crate::model::handles::RawHandle as _;
use crate::submit::context::lifetime;
use crate::submit::streams::DefaultStream;
use crate::submit::{send, streams};
use causeway_api::calls;
use causeway_api::handle::{Context, GreenContext, Handle, ResourceDescription};
use causeway_api::sys::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUgreenCtx, CUresult, CUstream,
};
use causeway_api::types::DeviceResource;
use std::sync::Arc;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// What the client keeps of a green context.
struct Green {
    handle: Handle<GreenContext>,
    /// The context that `cuCtxFromGreenCtx` gives.
    context: Arc<ContextState>,
}

impl handles::Object for Green {
    type Kind = GreenContext;
}

fn resolve(raw: CUgreenCtx) -> Result<Arc<Green>, CUresult> {
    handles::get::<Green>(Handle::from_raw(raw))
}

/// The green context that a context belongs to, if it does.
pub fn of_context(context: Handle<Context>) -> Option<CUgreenCtx> {
    let found = handles::select::<Green>(|green| green.context.handle == context);
    found.first().map(|(handle, _)| handle.as_raw())
}

/// The program's structure for a resource of a server.
fn structure(server: usize, resource: &DeviceResource) -> CUdevResource {
    let mut structure = CUdevResource { type_: CUdevResourceType(resource.kind), ..Default::default() };
    structure._internal_padding[..8].copy_from_slice(&resource.id.to_ne_bytes());
    structure._internal_padding[8] = server as u8;
    structure.__bindgen_anon_1._oversize = resource.value;
    structure
}

/// The server that keeps a resource, as its null context, and the number under which it does.
fn number(structure: &CUdevResource) -> Result<(Handle<Context>, u64), CUresult> {
    if structure.type_ == CUdevResourceType::CU_DEV_RESOURCE_TYPE_INVALID {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    let bytes = structure._internal_padding.first_chunk::<8>().ok_or(INVALID)?;
    Ok((Handle::null_of(structure._internal_padding[8].into()), u64::from_ne_bytes(*bytes)))
}

pub unsafe fn cuDeviceGetDevResource(
    dev: CUdevice,
    resource: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Outcome {
    let found = send::call_in(
        without_context(dev)?,
        &calls::resource_of_device { device: on_server(dev)?, kind: kind.0 },
    )?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(resource, structure(device(dev)?.server, &found)) }
}

pub unsafe fn cuCtxGetDevResource(
    hCtx: CUcontext,
    resource: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Outcome {
    let context = context::resolve(hCtx)?.handle;
    let found = send::call_in(context, &calls::resource_of_context { context, kind: kind.0 })?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(resource, structure(context.server(), &found)) }
}

pub unsafe fn cuGreenCtxGetDevResource(
    hCtx: CUgreenCtx,
    resource: *mut CUdevResource,
    kind: CUdevResourceType,
) -> Outcome {
    let green = resolve(hCtx)?;
    let request = calls::resource_of_green_context { green: green.handle, kind: kind.0 };
    let found = send::call_in(green.context.handle, &request)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(resource, structure(green.context.handle.server(), &found)) }
}

pub unsafe fn cuDevSmResourceSplitByCount(
    result: *mut CUdevResource,
    nbGroups: *mut u32,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    flags: u32,
    minCount: u32,
) -> Outcome {
    // SAFETY: a number and a resource, or null.
    let (groups, input) = unsafe { (nbGroups.as_mut().ok_or(INVALID)?, input.as_ref().ok_or(INVALID)?) };
    let wanted = if result.is_null() { 0 } else { *groups };
    let (nowhere, input) = number(input)?;
    let request = calls::resource_split { input, wanted, flags, minimum: minCount };
    let (made, parts, rest) = send::call_in(nowhere, &request)?;
    *groups = made;
    let structure = |resource: &DeviceResource| structure(nowhere.server(), resource);
    let parts: Vec<_> = parts.iter().take(wanted as usize).map(structure).collect();
    // SAFETY: room for as many parts as the program wanted, and for what remains unless it is null.
    unsafe {
        crate::arguments::store(result, wanted as usize, &parts)?;
        write_optional(remaining, structure(&rest));
    }
    Ok(())
}

pub unsafe fn cuDevResourceGenerateDesc(
    phDesc: *mut CUdevResourceDesc,
    resources: *const CUdevResource,
    nbResources: u32,
) -> Outcome {
    if phDesc.is_null() || nbResources == 0 {
        return Err(INVALID);
    }
    // SAFETY: a list of `nbResources` resources.
    let resources = unsafe { list(resources, nbResources as usize) }?;
    let numbers = resources.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let nowhere = numbers.first().ok_or(INVALID)?.0;
    if numbers.iter().any(|(other, _)| *other != nowhere) {
        return Err(INVALID);
    }
    let resources = numbers.into_iter().map(|(_, number)| number).collect();
    let description = handles::create::<ResourceDescription>();
    let made = send::call_in(nowhere, &calls::resource_description { description, resources });
    handles::or_drop(description, made)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phDesc, description.as_raw()) }
}

pub unsafe fn cuGreenCtxCreate(
    phCtx: *mut CUgreenCtx,
    desc: CUdevResourceDesc,
    dev: CUdevice,
    flags: u32,
) -> Outcome {
    let description = handles::resolve::<ResourceDescription>(desc)?;
    device(dev)?;
    if phCtx.is_null() {
        return Err(INVALID);
    }
    // A green context lies in the primary context, which it keeps alive.
    let primary = lifetime::retain(dev)?;
    let (green, context) = (handles::create::<GreenContext>(), handles::create_context(device(dev)?.server));
    let request = calls::green_context_create { green, context, description, device: on_server(dev)?, flags };
    let made = handles::or_drop(context, handles::or_drop(green, send::call_in(primary, &request)));
    if let Err(error) = made {
        lifetime::release(dev)?;
        return Err(error);
    }
    let context = lifetime::adopt(context, dev);
    handles::insert(green, Arc::new(Green { handle: green, context }));
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phCtx, green.as_raw()) }
}

pub unsafe fn cuGreenCtxDestroy(hCtx: CUgreenCtx) -> Outcome {
    let green =
        handles::remove::<Green>(Handle::from_raw(hCtx)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(green.handle);
    let request = calls::green_context_destroy { green: green.handle, context: green.context.handle };
    let destroyed =
        lifetime::abandon(&green.context, || send::call_in(green.context.without_context(), &request));
    lifetime::release(green.context.device).and(destroyed)
}

pub unsafe fn cuCtxFromGreenCtx(pContext: *mut CUcontext, hCtx: CUgreenCtx) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(pContext, resolve(hCtx)?.context.handle.as_raw()) }
}

pub unsafe fn cuStreamGetGreenCtx(hStream: CUstream, phCtx: *mut CUgreenCtx) -> Outcome {
    let stream = context::stream(streams::named(hStream, DefaultStream::Legacy)?)?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(phCtx, of_context(stream.context).unwrap_or(core::ptr::null_mut())) }
}

pub unsafe fn cuGreenCtxStreamCreate(
    phStream: *mut CUstream,
    greenCtx: CUgreenCtx,
    flags: u32,
    priority: i32,
) -> Outcome {
    /// Streams of green contexts take no part in the order of the legacy default stream.
    const NON_BLOCKING: u32 = 1;
    let green = resolve(greenCtx)?;
    if phStream.is_null() || flags != NON_BLOCKING {
        return Err(INVALID);
    }
    let made = streams::create_in(&green.context, flags, priority, |stream, priority| {
        let request = calls::green_stream_create { stream, green: green.handle, flags, priority };
        send::post_in(green.context.handle, &request)
    })?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(phStream, made.as_raw()) }
}

pub unsafe fn cuGreenCtxGetId(greenCtx: CUgreenCtx, greenCtxId: *mut u64) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(greenCtxId, resolve(greenCtx)?.context.id()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_keeps_its_number_in_the_private_part() {
        let mut value = [0; 48];
        value[0] = 16;
        let resource = structure(5, &DeviceResource { id: 77, kind: 1, value });
        assert_eq!(number(&resource), Ok((Handle::null_of(5), 77)));
        // SAFETY: the resource is one of multiprocessors.
        assert_eq!(unsafe { resource.__bindgen_anon_1.sm.smCount }, 16);
        assert!(number(&CUdevResource::default()).is_err());
    }
}
