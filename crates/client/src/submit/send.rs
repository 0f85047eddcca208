//! Command submission: capture, order, and the session.
//!
//! A captured stream's commands become nodes or are refused. Before all others goes what the program has written
//! to memory that they may use, and then they are sent.
//!
//! What lies below this room sends through the session itself, which takes only commands that concern
//! neither.

use super::{capture, device_times};
use crate::model::context;
use crate::remote::mirrored;
use crate::remote::session::{self, Session};
use causeway_api::calls::Call;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_wire::codec::{DecodeError, Decoder};

/// Sends a command of the calling thread's current context, without waiting for its outcome.
#[inline]
pub fn post<C: Call<Reply = ()>>(request: &C) -> Result<(), CUresult> {
    post_in(context::current()?, request)
}

/// Sends a command of `context`, without waiting for its outcome.
#[inline]
pub fn post_in<C: Call<Reply = ()>>(context: Handle<Context>, request: &C) -> Result<(), CUresult> {
    post_and(context, request, || ())
}

/// The same. `in_line` is called when the command has its place, before any later command gets its own; it
/// may not use the link.
#[inline]
pub fn post_and<C: Call<Reply = ()>>(
    context: Handle<Context>,
    request: &C,
    in_line: impl FnOnce(),
) -> Result<(), CUresult> {
    if capture::take(context, request)? {
        return Ok(());
    }
    let session = session::of(context)?;
    if session.is_synchronous() {
        let outcome = call_uncaptured(session, context, request, |input| input.value());
        in_line();
        return outcome;
    }
    session.faults().check()?;
    mirrored::before(session.server(), C::OPCODE)?;
    let queued = device_times::around(context, request, || session.append(context, request, in_line));
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
    mirrored::before(session.server(), C::OPCODE)?;
    let result = session.call(context, request, read);
    mirrored::after(session.server(), C::OPCODE);
    result
}
