//! Calls that a capture forbids, by capture mode and thread.

use super::table::{CAPTURES, Capture, INVALIDATED, any, invalidate, of};
use crate::model::context;
use crate::model::stream::StreamState;
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::{CUresult, CUstreamCaptureMode};
use causeway_sync::threads;
use core::cell::Cell;

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Replaces the calling thread's mode and gives the old one.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

/// Refuses to wait for a stream that is being captured; the attempt spoils the capture, as CUDA has it.
pub fn refuse_wait(state: &StreamState) -> Result<(), CUresult> {
    let id = of(state);
    if id == 0 {
        return Ok(());
    }
    invalidate(id);
    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses whatever is put into a stream whose capture cannot end with a graph any more.
pub fn refuse_invalid(state: &StreamState) -> Result<(), CUresult> {
    match of(state) {
        0 => Ok(()),
        id if CAPTURES.by_id.lock().get(&id).is_some_and(|capture| capture.is_invalid) => Err(INVALIDATED),
        _ => Ok(()),
    }
}

/// Passes on the error of a command that was refused before it came to its stream; it spoils a capture of the
/// stream, and what spoiled that before counts more.
pub fn invalidate_if_error(stream: Handle<Stream>, outcome: Result<(), CUresult>) -> Result<(), CUresult> {
    if outcome.is_err() && any() && !stream.is_null() {
        let state = context::stream(stream)?;
        refuse_invalid(&state)?;
        invalidate(of(&state));
    }
    outcome
}

/// Refuses to wait for a context of which a stream is being captured, whatever the modes of the capture and
/// of the thread, and whichever thread captures (580, H100).
pub fn refuse_context_wait(context: Handle<Context>) -> Result<(), CUresult> {
    if !any() {
        return Ok(());
    }
    let is_in_it =
        |stream: &Handle<Stream>| context::stream(*stream).is_ok_and(|state| state.context == context);
    let mut refused = false;
    for capture in CAPTURES.by_id.lock().values_mut() {
        let forbids = capture.tips.keys().any(is_in_it);
        capture.is_invalid |= forbids;
        refused |= forbids;
    }
    if refused { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses a call that may wait for the device while a capture forbids that to the calling thread.
pub fn refuse_unsafe() -> Result<(), CUresult> {
    if !any() {
        return Ok(());
    }
    let own = MODE.get();
    if own == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let thread = threads::number();
    let mut captures = CAPTURES.by_id.lock();
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

fn is_blocked_by(context: Handle<Context>, capture: &Capture) -> bool {
    let is_blocking = |stream: &Handle<Stream>| {
        context::stream(*stream).is_ok_and(|state| state.context == context && state.is_blocking())
    };
    capture.tips.keys().any(is_blocking)
}

/// Whether a stream is being captured for which the legacy default stream of a context would have to wait.
pub(super) fn blocks_legacy(context: Handle<Context>) -> bool {
    any() && CAPTURES.by_id.lock().values().any(|capture| is_blocked_by(context, capture))
}

/// Refuses work in the legacy default stream that would have to wait for a stream that is being captured.
pub fn refuse_implicit() -> Result<(), CUresult> {
    if !any() {
        return Ok(());
    }
    let context = context::current()?;
    let blocked = CAPTURES.by_id.lock().values_mut().fold(false, |blocked, capture| {
        let blocks = is_blocked_by(context, capture);
        capture.is_invalid |= blocks;
        blocked | blocks
    });
    if blocked { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) } else { Ok(()) }
}
