//! Command submission: capture, order, and the session.
//!
//! A captured stream's commands become nodes or are refused. Before all others goes what the program has
//! written to memory that they may use, and then they are sent.
//!
//! What lies below this module sends through the session itself, which takes only commands that concern
//! neither.
//!
//! Results that hold for ever are cached: those of calls whose results depend on their arguments alone.
//! Programs ask some of these before every launch (Triton has its tensor maps encoded anew each time).

use std::collections::HashMap;
use std::sync::LazyLock;

use causeway_api::calls::{self, Call, Opcode};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_wire::codec::{DecodeError, Decoder, Encode};

use crate::locks::{Mutex, rank};
use crate::model::address::window::{self, Window};
use crate::model::context;
use crate::remote::mirrored;
use crate::remote::session::{self, Session};
use crate::submit::{capture, device_times};

/// Sends a command of the calling thread's current context, without waiting for its outcome.
#[inline]
pub fn post<C: Call<Reply = ()>>(request: &C) -> Result<(), CUresult> {
    post_in(context::current()?, request)
}

/// Sends a command of `context`, without waiting for its outcome.
#[inline]
pub fn post_in<C: Call<Reply = ()>>(context: Handle<Context>, request: &C) -> Result<(), CUresult> {
    post_with_callback(context, request, || ())
}

/// As [`post_in`]. `on_queued` is called when the command is in the queue, before any later command; it may not use the
/// link.
#[inline]
pub fn post_with_callback<C: Call<Reply = ()>>(
    context: Handle<Context>,
    request: &C,
    on_queued: impl FnOnce(),
) -> Result<(), CUresult> {
    if capture::take(context, request)? {
        return Ok(());
    }
    let session = session::of(context)?;
    if session.is_synchronous() {
        let outcome = call_uncaptured(session, context, request, |input| input.value());
        on_queued();
        return outcome;
    }
    session.faults().check()?;
    mirrored::before(session.server(), request)?;
    let queued = device_times::around(context, request, || session.append(context, request, on_queued));
    mirrored::after(session.server(), C::OPCODE);
    queued
}

/// Sends a command of the calling thread's current context and waits for its reply.
pub fn call<C: Call>(request: &C) -> Result<C::Reply, CUresult> {
    call_in(context::current()?, request)
}

/// Sends a command of `context` and waits for its reply.
pub fn call_in<C: Call>(context: Handle<Context>, request: &C) -> Result<C::Reply, CUresult> {
    call_reading(context, request, |input| input.value())
}

/// Sends a command of `context`, waits for its reply and lets `read` take the results from it.
pub fn call_reading<C: Call, R>(
    context: Handle<Context>,
    request: &C,
    read: impl FnOnce(&mut Decoder<'_>) -> Result<R, DecodeError>,
) -> Result<R, CUresult> {
    capture::refuse_called(request)?;
    call_uncaptured(session::of(context)?, context, request, read)
}

fn call_uncaptured<C: Call, R>(
    session: &Session,
    context: Handle<Context>,
    request: &C,
    read: impl FnOnce(&mut Decoder<'_>) -> Result<R, DecodeError>,
) -> Result<R, CUresult> {
    session.faults().take()?;
    mirrored::before(session.server(), request)?;
    let result = session.call(context, request, read);
    mirrored::after(session.server(), C::OPCODE);
    result
}

/// Answers that are cached; one more, and they are collected anew. A tensor map with its question takes 300
/// bytes.
const MAX_CACHED_RESULTS: usize = 8192;

/// A call, the context it was made in, and its arguments as they travel.
type CallKey = (Opcode, u64, Vec<u8>);

static RESULTS: LazyLock<Mutex<rank::CachedResults, HashMap<CallKey, Vec<u8>>>> =
    LazyLock::new(Mutex::default);

/// Answers a call in a context, which may be a null one, from what was answered before, or asks the server.
/// Refusals are not kept.
pub fn call_cached<C: Call>(context: Handle<Context>, request: &C) -> Result<C::Reply, CUresult> {
    let mut arguments = Vec::with_capacity(256);
    request.encode(&mut arguments);
    let key = (C::OPCODE, context.value(), arguments);
    if let Some(result) = RESULTS.lock().get(&key)
        && let Ok(result) = Decoder::new(result).value()
    {
        return Ok(result);
    }
    let result = call_in(context, request)?;
    let mut bytes = Vec::new();
    result.encode(&mut bytes);
    let mut results = RESULTS.lock();
    if results.len() >= MAX_CACHED_RESULTS {
        results.clear();
    }
    results.insert(key, bytes);
    Ok(result)
}

/// The window of the session with a server, which the server has reserved as well from here on.
pub fn opened(server: usize) -> Result<&'static Window, CUresult> {
    window::opened(server, || call_in(Handle::null_of(server), &calls::address_window_open {}))
}
