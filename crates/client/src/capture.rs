//! Stream capture, as far as the client must know of it: which streams take part, and what is refused meanwhile.

use crate::entry::refuse_use;
use crate::session;
use crate::stream::{self, StreamState};
use crate::{context, handles};
use causeway_api::calls;
use causeway_api::handle::{Graph, Handle, Stream};
use causeway_api::sys::{CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use core::cell::Cell;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;

struct Capture {
    origin: Handle<Stream>,
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    /// An operation that a capture cannot hold was tried.
    is_invalid: bool,
}

static CAPTURES: LazyLock<Mutex<HashMap<u64, Capture>>> = LazyLock::new(Mutex::default);
/// How many captures there are, so that the common case of none costs one load.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Replaces the calling thread's mode and gives the old one.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

/// Starts capturing a stream.
pub fn begin(state: &StreamState, mode: CUstreamCaptureMode) -> Result<(), CUresult> {
    if state.is_legacy() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if mode.0 > CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    if state.capture.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let thread = std::thread::current().id();
    CAPTURES.lock().insert(id, Capture { origin: state.handle, mode, thread, is_invalid: false });
    COUNT.fetch_add(1, Ordering::AcqRel);
    session::post_in(state.context, &calls::capture_begin { stream: state.handle, mode })
        .inspect_err(|_| forget(id))
}

/// Ends the capture that began with a stream and gives the graph.
pub fn end(state: &StreamState) -> Result<Handle<Graph>, CUresult> {
    let id = state.capture.load(Ordering::Acquire);
    let is_invalid = {
        let captures = CAPTURES.lock();
        let capture = captures.get(&id).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != state.handle {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let is_relaxed = capture.mode == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        if !is_relaxed && capture.thread != std::thread::current().id() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        capture.is_invalid
    };
    forget(id);
    let graph = handles::create::<Graph>();
    let ended = session::call_in(state.context, &calls::capture_end { stream: state.handle, graph });
    if let Err(status) = ended {
        handles::drop_handle(graph);
        return Err(status);
    }
    if is_invalid {
        handles::drop_handle(graph);
        session::post_in(state.context, &calls::cuGraphDestroy { hGraph: graph })?;
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    Ok(graph)
}

fn forget(id: u64) {
    if CAPTURES.lock().remove(&id).is_some() {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
    for stream in stream::in_capture(id) {
        stream.capture.store(0, Ordering::Release);
    }
}

/// The capture that a stream takes part in, 0 when there is none.
pub fn of(state: &StreamState) -> u64 {
    state.capture.load(Ordering::Acquire)
}

/// Lets a stream take part in the capture to which an event belongs that it waits for.
pub fn join(state: &StreamState, id: u64) -> Result<(), CUresult> {
    if !CAPTURES.lock().contains_key(&id) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    match state.capture.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(()),
        Err(own) if own == id => Ok(()),
        Err(_) => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE),
    }
}

/// Status and number of the capture that a stream takes part in.
pub fn status(state: &StreamState) -> (CUstreamCaptureStatus, u64) {
    let id = of(state);
    let status = match CAPTURES.lock().get(&id) {
        None => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
        Some(capture) if capture.is_invalid => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        Some(_) => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE,
    };
    (status, id)
}

/// Refuses to wait for a stream that is being captured; the attempt spoils the capture, as CUDA has it.
pub fn refuse_wait(state: &StreamState) -> Result<(), CUresult> {
    let id = of(state);
    if id == 0 {
        return Ok(());
    }
    spoil(id);
    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// Makes a capture end without a graph.
pub fn spoil(id: u64) {
    if let Some(capture) = CAPTURES.lock().get_mut(&id) {
        capture.is_invalid = true;
    }
}

/// Refuses a copy to or from the program's memory, or a host function, in a stream that is being captured.
pub fn refuse_host_work(state: &StreamState) -> Result<(), CUresult> {
    if of(state) == 0 {
        return Ok(());
    }
    Err(refuse_use!("copies to or from host memory and host functions inside a captured graph"))
}

/// Refuses a call that may wait for the device while a capture forbids that to the calling thread.
pub fn refuse_unsafe() -> Result<(), CUresult> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let own = MODE.get();
    if own == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let thread = std::thread::current().id();
    let mut captures = CAPTURES.lock();
    let mut refused = false;
    for capture in captures.values_mut() {
        let forbids = match capture.mode {
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED => false,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => capture.thread == thread,
            _ => capture.thread == thread || own == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        };
        capture.is_invalid |= forbids;
        refused |= forbids;
    }
    if refused { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses work in the legacy default stream that would have to wait for a stream that is being captured.
pub fn refuse_implicit() -> Result<(), CUresult> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let context = context::current()?;
    let blocked = CAPTURES.lock().iter_mut().fold(false, |blocked, (_, capture)| {
        let blocks = stream::state(capture.origin)
            .is_ok_and(|origin| origin.context == context && origin.is_blocking());
        capture.is_invalid |= blocks;
        blocked | blocks
    });
    if blocked { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}
