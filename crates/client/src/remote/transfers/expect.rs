//! Registration of expected transfers with the link, and waking of the receiver.

use super::receive_buffer::{self, ReceiveBuffer};
use crate::model::completion::LOST;
use crate::model::context::pending_writes::{self, CopyOrder};
use crate::model::stream::StreamState;
use crate::model::transfers::{self, Carrier, Expected, Transfer};
use crate::remote::session::{self, Session};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_link::Awaited;
use std::sync::Arc;

impl Carrier for Session {
    fn wake_receiver(&self) {
        Self::wake_receiver(self, Awaited::Transfer);
    }

    fn cancel(&self, number: u64) {
        self.link().cancel_transfer(number);
    }
}

/// Prepares to receive a transfer for a piece of a copy at the end of `stream`, whose pieces share `order`
/// and which `threads` threads may write; the command that makes the server send it comes after, and nothing
/// else of the session's copies may come between.
///
/// # Safety
/// The memory that `buffer` means must be valid for writes until the transfer is done.
pub unsafe fn expect(
    stream: &StreamState,
    order: &mut CopyOrder,
    buffer: ReceiveBuffer,
    threads: usize,
) -> Result<Expected, CUresult> {
    let session = session::of(stream.context)?;
    let expected = pending_writes::begin(stream, session, order, buffer.range());
    // SAFETY: the caller keeps the buffer's memory writable until the transfer is done.
    unsafe { register(session, &expected, buffer, threads) }?;
    Ok(expected)
}

/// Prepares to receive a transfer into memory of this library, which no copy of the program is in order with.
///
/// # Safety
/// The memory that `buffer` means must be valid for writes until the transfer is done.
pub unsafe fn expect_apart(
    context: Handle<Context>,
    flow: u64,
    buffer: ReceiveBuffer,
    threads: usize,
) -> Result<Arc<Transfer>, CUresult> {
    let session = session::of(context)?;
    let expected = transfers::begin_apart(session, flow, buffer.range());
    // SAFETY: the caller keeps the buffer's memory writable until the transfer is done.
    unsafe { register(session, &expected, buffer, threads) }?;
    Ok(expected.transfer)
}

/// Tells the link about a transfer.
///
/// # Safety
/// As for [`expect`].
unsafe fn register(
    session: &Session,
    expected: &Expected,
    buffer: ReceiveBuffer,
    threads: usize,
) -> Result<(), CUresult> {
    let Expected { transfer, is_blocked, .. } = expected;
    // SAFETY: the caller keeps the buffer's memory writable until the transfer is done.
    let destination = unsafe { receive_buffer::destination(transfer, buffer, *is_blocked, threads) };
    let registered = session.link().expect_transfer(transfer.number(), destination.with_threads(threads));
    registered.map_err(|cause| {
        transfer.ended(Err(cause));
        LOST
    })
}
