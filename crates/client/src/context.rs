//! Contexts, and which one is current to a thread.
//!
//! The handle of a device's primary context is fixed, so it is known before anyone retains the context; on the
//! server the context exists from the first retain to the last release. The stack of current contexts is the
//! thread's own and never leaves the client: every command names its context.

use crate::address::heap;
use crate::completion::Watermark;
use crate::device::{self, Device};
use crate::session::{self, transfers};
use crate::stream::{self, StreamState};
use crate::{array, event, handles, memory, module, visible};
use causeway_api::calls;
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::{CUdevice, CUresult, CUstream_flags};
use core::cell::{Cell, RefCell};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What the client keeps of a context.
pub struct ContextState {
    /// Its handle.
    pub handle: Handle<Context>,
    /// The program's number of its device.
    pub device: CUdevice,
    /// The legacy default stream of the context.
    pub legacy_stream: Arc<StreamState>,
    /// How far its work is known to be done.
    pub watermark: Watermark,
    /// The newest ticket of streams that were destroyed with work in them that nothing else waits for.
    left_behind: AtomicU64,
    /// Limits and their values, as far as they are known.
    pub limits: Mutex<HashMap<u32, usize>>,
    /// Contexts of other devices whose memory it may use, by their handles.
    pub peers: Mutex<HashSet<u64>>,
    /// The streams of ours for copies that concern several servers.
    couriers: Mutex<Couriers>,
    flags: AtomicU32,
    id: AtomicU64,
    /// How often a primary context is retained; nothing for others.
    retained: Option<Mutex<u32>>,
}

/// So many couriers may a context have before those are looked for whose streams have ended.
const MOST_COURIERS: usize = 32;

/// The streams of ours in a context for copies that concern several servers.
#[derive(Default)]
struct Couriers {
    /// By the number of the stream whose copies each carries.
    of_streams: HashMap<u64, (Whose, Handle<Stream>)>,
    reader: Option<Handle<Stream>>,
}

/// A stream of the program, which may be a legacy default stream.
struct Whose {
    handle: Handle<Stream>,
    context: Handle<Context>,
}

impl Whose {
    fn exists(&self) -> bool {
        handles::is_valid(self.context) && (self.handle.is_null() || handles::is_valid(self.handle))
    }
}

static PRIMARY: OnceLock<Box<[Arc<ContextState>]>> = OnceLock::new();
static OTHERS: handles::Registry<Context, ContextState> = handles::Registry::new();

thread_local! {
    /// The current context, kept where no destructor can take it away before the program's own run.
    static CURRENT: Cell<Handle<Context>> = const { Cell::new(Handle::NULL) };
    /// The contexts below the current one.
    static BELOW: RefCell<Vec<Handle<Context>>> = const { RefCell::new(Vec::new()) };
}

impl ContextState {
    fn new(handle: Handle<Context>, device: CUdevice, flags: u32, primary: bool) -> Arc<Self> {
        Arc::new(Self {
            handle,
            device,
            legacy_stream: StreamState::legacy(handle),
            watermark: Watermark::default(),
            left_behind: AtomicU64::new(0),
            limits: Mutex::default(),
            peers: Mutex::default(),
            couriers: Mutex::default(),
            flags: AtomicU32::new(flags),
            id: AtomicU64::new(next_id()),
            retained: primary.then(Mutex::default),
        })
    }

    /// Its flags.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Replaces its flags.
    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// A number that no other context of the process has.
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Where its commands go that need no context.
    pub fn without_context(&self) -> Handle<Context> {
        Handle::null_of(self.handle.server())
    }

    /// A stream of ours in it, for parts of copies whose own stream, `of`, is another server's. Each such stream has its
    /// own, so that none waits for what another one waits for.
    pub fn courier(&self, of: &StreamState) -> Result<Arc<StreamState>, CUresult> {
        let mut couriers = self.couriers.lock();
        let couriers = &mut couriers.of_streams;
        if couriers.len() >= MOST_COURIERS {
            for (_, (_, courier)) in couriers.extract_if(|_, (of, _)| !of.exists()) {
                stream::destroy(courier)?;
            }
        }
        if let Some((_, known)) = couriers.get(&of.id).filter(|(_, courier)| handles::is_valid(*courier)) {
            return stream::state(*known);
        }
        let made = self.own_stream()?;
        couriers.insert(of.id, (Whose { handle: of.handle, context: of.context }, made));
        stream::state(made)
    }

    /// The stream of ours in which other servers read: it never waits for anything.
    pub fn reader(&self) -> Result<Arc<StreamState>, CUresult> {
        let mut couriers = self.couriers.lock();
        if let Some(known) = couriers.reader.filter(|known| handles::is_valid(*known)) {
            return stream::state(known);
        }
        stream::state(*couriers.reader.insert(self.own_stream()?))
    }

    fn own_stream(&self) -> Result<Handle<Stream>, CUresult> {
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        stream::create_in(self, flags, 0, |stream, priority| {
            session::post_in(self.handle, &calls::stream_create { stream, flags, priority })
        })
    }

    /// Its device.
    pub fn device(&self) -> Result<&'static Device, CUresult> {
        device::device(self.device)
    }

    /// Whether nothing has been put into it since all of its work was last known to be done.
    #[inline]
    pub fn is_idle(&self) -> bool {
        let newest = handles::ticket(self.handle);
        self.watermark.done() >= newest || self.is_done_by_streams(newest)
    }

    /// Whether each of its streams is known to have done what was put into the context up to `newest`. So a program that has
    /// waited for its default stream, as with a copy, need not wait again for the device.
    fn is_done_by_streams(&self, newest: u64) -> bool {
        // The legacy default stream answers for all blocking ones.
        let is_done = self.legacy_stream.has_done(newest)
            && self.left_behind.load(Ordering::Acquire) <= self.watermark.done()
            && stream::non_blocking_are_done(self.handle);
        if is_done {
            self.watermark.reach(newest);
        }
        is_done
    }

    /// A stream that the legacy default stream does not wait for is destroyed; `newest` is its newest ticket.
    pub fn leave_behind(&self, newest: u64) {
        self.left_behind.fetch_max(newest, Ordering::AcqRel);
    }

    /// Waits until everything in it is done and its bytes are in the program's memory.
    pub fn synchronize(&self) -> Result<(), CUresult> {
        let transfers = transfers::of_context(self.handle);
        let newest = handles::ticket(self.handle);
        if self.is_idle() {
            session::of(self.handle)?.faults().take()?;
        } else {
            session::call_in(self.handle, &calls::context_synchronize {})?;
            self.watermark.reach(newest);
        }
        transfers.iter().try_for_each(|transfer| transfer.wait())?;
        self.watermark.fetch(self.handle.server(), newest)
    }

    /// Whether it exists on the server.
    pub fn is_active(&self) -> bool {
        handles::is_valid(self.handle)
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Fixes the handles of the primary contexts of the program's devices. Called once, before any session is open.
pub fn prepare(devices: &[Device]) {
    PRIMARY.get_or_init(|| {
        handles::reserve(devices.len() as u32);
        let state = |(number, device): (u32, &Device)| {
            ContextState::new(Handle::new(number, 0).of(device.server), number as CUdevice, 0, true)
        };
        (0..).zip(devices).map(state).collect()
    });
}

/// The primary context of a device, whether or not it exists on the server.
pub fn primary(device: CUdevice) -> Result<&'static Arc<ContextState>, CUresult> {
    let index = usize::try_from(device).map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    PRIMARY.get().and_then(|all| all.get(index)).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

/// What is kept of a context.
pub fn state(handle: Handle<Context>) -> Result<Arc<ContextState>, CUresult> {
    match PRIMARY.get().and_then(|all| all.get(handle.index() as usize)) {
        Some(primary) if primary.handle == handle => Ok(primary.clone()),
        _ => OTHERS.get(handle),
    }
}

/// The context that the program passed.
pub fn given(raw: causeway_api::sys::CUcontext) -> Result<Arc<ContextState>, CUresult> {
    state(Handle::from_raw(raw))
}

/// The calling thread's current context, or null.
#[inline]
pub fn current_or_none() -> Handle<Context> {
    CURRENT.get()
}

/// Where a command goes that needs no context: in the current one if there is one, else in the first server's null one.
pub fn anywhere() -> Handle<Context> {
    current().unwrap_or(Handle::NULL)
}

/// Where a command goes that needs no context but this server: in the current context if it is there, else in the null
/// one.
pub fn anywhere_on(server: usize) -> Handle<Context> {
    Some(anywhere()).filter(|current| current.server() == server).unwrap_or(Handle::null_of(server))
}

/// The calling thread's current context, which must exist.
#[inline]
pub fn current() -> Result<Handle<Context>, CUresult> {
    let handle = CURRENT.get();
    if handles::is_valid(handle) { Ok(handle) } else { missing(handle) }
}

#[cold]
fn missing(handle: Handle<Context>) -> Result<Handle<Context>, CUresult> {
    if handle.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    // Released, reset or destroyed; a primary context is valid again after the next retain.
    Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
}

/// What is kept of the calling thread's current context, which must exist.
pub fn current_state() -> Result<Arc<ContextState>, CUresult> {
    state(current()?)
}

/// Replaces the calling thread's current context; null takes it away.
pub fn set_current(handle: Handle<Context>) {
    if handle.is_null() {
        CURRENT.set(pop_below());
    } else {
        CURRENT.set(handle);
    }
}

/// Puts a context on top of the calling thread's stack.
pub fn push(handle: Handle<Context>) {
    let below = CURRENT.replace(handle);
    if !below.is_null() {
        // After the thread's destructors there is no stack any more, and nobody left to pop.
        let _ = BELOW.try_with(|stack| stack.borrow_mut().push(below));
    }
}

/// Takes the top of the calling thread's stack.
pub fn pop() -> Result<Handle<Context>, CUresult> {
    let top = CURRENT.get();
    if top.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    CURRENT.set(pop_below());
    Ok(top)
}

fn pop_below() -> Handle<Context> {
    BELOW.try_with(|stack| stack.borrow_mut().pop()).ok().flatten().unwrap_or(Handle::NULL)
}

/// Creates a context of `device` and makes it current.
pub fn create(device: CUdevice, flags: u32) -> Result<Handle<Context>, CUresult> {
    let (ordinal, nowhere) = (device::on_server(device)?, device::without_context(device)?);
    let handle = handles::create_context(nowhere.server());
    // In no context: the one that the command makes cannot be entered before it.
    session::post_in(nowhere, &calls::context_create { context: handle, device: ordinal, flags })?;
    OTHERS.insert(handle, ContextState::new(handle, device, flags, false));
    push(handle);
    Ok(handle)
}

/// Destroys a context that [`create`] made.
pub fn destroy(state: &ContextState) -> Result<(), CUresult> {
    if state.retained.is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    end_of_contents(state);
    // A command that ends a context does not work in it.
    session::call_in(state.without_context(), &calls::context_destroy { context: state.handle })?;
    handles::drop_handle(state.handle);
    OTHERS.remove(state.handle);
    if CURRENT.get() == state.handle {
        CURRENT.set(pop_below());
    }
    Ok(())
}

/// Keeps a context that the server has made in another way.
pub fn adopt(handle: Handle<Context>, device: CUdevice) -> Arc<ContextState> {
    let state = ContextState::new(handle, device, 0, false);
    OTHERS.insert(handle, state.clone());
    state
}

/// Forgets an adopted context, which `end` ends on the server.
pub fn abandon(state: &ContextState, end: impl FnOnce() -> Result<(), CUresult>) -> Result<(), CUresult> {
    end_of_contents(state);
    let ended = end();
    handles::drop_handle(state.handle);
    OTHERS.remove(state.handle);
    if CURRENT.get() == state.handle {
        CURRENT.set(pop_below());
    }
    ended
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
    end_of_contents(state);
    handles::suspend(state.handle);
    let request =
        calls::primary_context_release { context: state.handle, device: device::on_server(device)? };
    session::post_in(state.handle, &request)
}

/// Destroys everything in the primary context of a device.
pub fn reset(device: CUdevice) -> Result<(), CUresult> {
    let state = primary(device)?;
    let Some(retained) = state.retained.as_ref() else { return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) };
    let _retained = retained.lock();
    if !state.is_active() {
        return Ok(());
    }
    let idle = session::call_in(state.handle, &calls::context_synchronize {});
    end_of_contents(state);
    handles::suspend(state.handle);
    state.limits.lock().clear();
    let request = calls::primary_context_reset { context: state.handle, device: device::on_server(device)? };
    // The work before it may have failed, and still the context is to be reset.
    session::call_in(state.without_context(), &request).and(idle)
}

/// Sets the flags with which the primary context of a device is created.
pub fn set_primary_flags(device: CUdevice, flags: u32) -> Result<(), CUresult> {
    primary(device)?.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

/// Creates a primary context on the server.
fn activate(state: &ContextState) -> Result<(), CUresult> {
    session::of(state.handle)?.faults().check()?;
    state.id.store(next_id(), Ordering::Relaxed);
    handles::revive(state.handle);
    let request = calls::primary_context_retain {
        context: state.handle,
        device: device::on_server(state.device)?,
        flags: state.flags(),
    };
    // In no context: the one that the command makes cannot be entered before it.
    session::post_in(state.without_context(), &request)
}

/// Forgets everything that ends with a context.
fn end_of_contents(state: &ContextState) {
    state.peers.lock().clear();
    crate::private::context_ends(state.handle);
    crate::capture::context_ends(state.handle);
    stream::context_ends(state.handle);
    event::context_ends(state.handle);
    module::context_ends(state.handle);
    array::context_ends(state.handle);
    memory::context_ends(state.handle);
    visible::context_ends(state.handle);
    heap::context_ends(state.handle);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_of_a_thread_pushes_pops_and_replaces() {
        std::thread::spawn(|| {
            let (a, b) = (Handle::new(1, 0), Handle::new(2, 0));
            assert_eq!(pop(), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
            push(a);
            push(b);
            assert_eq!(current_or_none(), b);
            set_current(a);
            assert_eq!(pop(), Ok(a));
            assert_eq!(current_or_none(), a);
            set_current(Handle::NULL);
            assert!(current_or_none().is_null());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_without_context_is_told_so() {
        std::thread::spawn(|| assert_eq!(current(), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT)))
            .join()
            .unwrap();
    }
}
