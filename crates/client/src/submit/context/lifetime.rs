//! Creation, reset and destruction of contexts.

use crate::model::context::current::{leave, push};
use crate::model::context::{ContextKind, ContextState, primary};
use crate::model::host_window::Reserved;
use crate::model::{array, device, handles, host_memory, memory, stream};
use crate::remote::session::faults;
use crate::remote::{mirrored, session};
use crate::submit::pool::host_ranges;
use crate::submit::{capture, device_memory, event, ipc, managed, module, pinned, send};
use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUdevice, CUresult};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Creates a context of `device` and makes it current.
pub fn create(device: CUdevice, flags: u32) -> Result<Handle<Context>, CUresult> {
    let (ordinal, nowhere) = (device::on_server(device)?, device::without_context(device)?);
    let handle = handles::create_context(nowhere.server());
    // In no context: the one that the command makes cannot be entered before it.
    send::post_in(nowhere, &calls::context_create { context: handle, device: ordinal, flags })?;
    handles::insert(handle, ContextState::new(handle, device, flags, ContextKind::Created));
    push(handle);
    Ok(handle)
}

/// Destroys a context that [`create`] made.
pub fn destroy(state: &ContextState) -> Result<(), CUresult> {
    if state.retained.is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let owned = end_of_contents(state);
    // A command that ends a context does not work in it.
    let ended = send::call_in(state.without_context(), &calls::context_destroy { context: state.handle });
    forget(state.handle);
    owned.release();
    match ended {
        // As the driver says (580, H100): after a fault a context is of no more use, but can be destroyed.
        Err(status) if faults::is_sticky(status) => Ok(()),
        ended => ended,
    }
}

/// Holds a context once more.
pub fn attach(state: &ContextState) {
    state.attached.fetch_add(1, Ordering::AcqRel);
}

/// Undoes one [`attach`], or its creation; nobody holding it any more, a context that [`create`] made ends.
pub fn detach(state: &ContextState) -> Result<(), CUresult> {
    if state.kind == ContextKind::Created && state.attached.fetch_sub(1, Ordering::AcqRel) == 1 {
        destroy(state)
    } else {
        Ok(())
    }
}

/// Keeps the context of a green context that the server has made.
pub fn adopt(handle: Handle<Context>, device: CUdevice) -> Arc<ContextState> {
    let state = ContextState::new(handle, device, 0, ContextKind::Green);
    handles::insert(handle, state.clone());
    state
}

/// Forgets an adopted context, which `end` ends on the server.
pub fn abandon(state: &ContextState, end: impl FnOnce() -> Result<(), CUresult>) -> Result<(), CUresult> {
    let owned = end_of_contents(state);
    let ended = end();
    forget(state.handle);
    owned.release();
    ended
}

/// A context that is no primary one is known no more.
fn forget(handle: Handle<Context>) {
    handles::drop_handle(handle);
    handles::remove::<ContextState>(handle);
    leave(handle);
}

/// Retains the primary context of a device; the first retain creates it on the server.
pub fn retain(device: CUdevice) -> Result<Handle<Context>, CUresult> {
    let state = primary(device)?;
    let retained = state.retained.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    let mut retained = retained.lock();
    if !state.is_active() {
        activate(state)?;
    }
    *retained += 1;
    Ok(state.handle)
}

/// Undoes one retain; the last one takes the context from the server.
pub fn release(device: CUdevice) -> Result<(), CUresult> {
    let state = primary(device)?;
    let retained = state.retained.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    let mut retained = retained.lock();
    if *retained == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    *retained -= 1;
    if *retained > 0 || !state.is_active() {
        return Ok(());
    }
    let owned = end_of_contents(state);
    handles::suspend(state.handle);
    let request =
        calls::primary_context_release { context: state.handle, device: device::on_server(device)? };
    let released = send::post_in(state.handle, &request);
    owned.release();
    released
}

/// Destroys everything in the primary context of a device.
pub fn reset(device: CUdevice) -> Result<(), CUresult> {
    let state = primary(device)?;
    let Some(retained) = state.retained.as_ref() else { return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) };
    let _retained = retained.lock();
    if !state.is_active() {
        return Ok(());
    }
    let idle = send::call_in(state.handle, &calls::context_synchronize {});
    let owned = end_of_contents(state);
    handles::suspend(state.handle);
    state.limits.lock().clear();
    state.cache_config.store(0, Ordering::Relaxed);
    let request = calls::primary_context_reset { context: state.handle, device: device::on_server(device)? };
    // The work before it may have failed, and still the context is to be reset.
    let reset = send::call_in(state.without_context(), &request);
    owned.release();
    reset.and(idle)
}

/// Sets the flags with which the primary context of a device is created.
pub fn set_primary_flags(device: CUdevice, flags: u32) -> Result<(), CUresult> {
    primary(device)?.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

/// Creates a primary context on the server.
fn activate(state: &ContextState) -> Result<(), CUresult> {
    session::of(state.handle)?.faults().check()?;
    state.id.store(device::of_context(), Ordering::Relaxed);
    handles::revive(state.handle);
    let request = calls::primary_context_retain {
        context: state.handle,
        device: device::on_server(state.device)?,
        flags: state.flags(),
    };
    // In no context: the one that the command makes cannot be entered before it.
    send::post_in(state.without_context(), &request)
}

/// Who above this room keeps something with contexts.
static LISTENER: OnceLock<fn(Handle<Context>)> = OnceLock::new();

/// Has `listener` called with each context that ends, before anything in it does; the first one stays.
pub fn set_end_listener(listener: fn(Handle<Context>)) {
    LISTENER.get_or_init(|| listener);
}

/// Memory of this process that a context owned, and pieces of other processes' memory that were open in it. Everything
/// else that a context owns is the server's, and ends there.
#[must_use = "what the context owned must be released"]
struct Owned {
    host: Vec<host_memory::Range>,
    managed: Vec<memory::Piece>,
    imported: Vec<memory::Piece>,
    /// What devices had for memory of the program.
    addresses: Vec<Reserved>,
}

impl Owned {
    /// Gives it back, once the server knows that the context ends: its addresses may be used again at once.
    fn release(self) {
        self.host.iter().for_each(pinned::end);
        self.managed.iter().for_each(|piece| managed::release(piece.base, piece.size));
        self.imported.iter().for_each(|piece| ipc::context_ends(piece.base));
        drop(self.addresses);
    }
}

/// Forgets everything that ends with a context; returns what must be released afterwards.
fn end_of_contents(state: &ContextState) -> Owned {
    if host_memory::is_any_of(state.handle) || mirrored::is_any() {
        // What is in its streams may still be copied from and to its memory here. Its error ends with the context.
        let _ = state.synchronize();
    }
    state.peers.lock().clear();
    if let Some(listener) = LISTENER.get() {
        listener(state.handle);
    }
    capture::context_ends(state.handle);
    stream::context_ends(state.handle);
    event::context_ends(state.handle);
    module::context_ends(state.handle);
    array::context_ends(state.handle);
    array::unbind_textures(state.handle);
    let (managed, imported) = device_memory::end_pieces(state.handle)
        .into_iter()
        .partition(|piece| piece.origin == memory::Origin::Managed);
    let (host, addresses) = mirrored::context_ends(state.handle);
    host_ranges::context_ends(state.handle);
    device_memory::context_ends(state.handle);
    // Pools belong to devices, and give their memory back themselves.
    let managed: Vec<memory::Piece> = managed;
    let managed = managed.into_iter().filter(|piece| host_ranges::pool_of(piece.base).is_none()).collect();
    Owned { host, managed, imported, addresses }
}
