//! Device-to-host copy.

use super::endpoint::Mode;
use crate::model::completion;
use crate::model::context::PendingWrites;
use crate::model::context::before::CopyOrder;
use crate::model::region::HostRegion;
use crate::model::stream::StreamState;
use crate::model::transfers::{self, Expected, Transfer};
use crate::remote::registered;
use crate::remote::session::{self, INLINE_BYTES};
use crate::remote::transfers::expect;
use crate::remote::transfers::receive_buffer::ReceiveBuffer;
use crate::statistics::copies::By;
use crate::statistics::{self, Carried, copies};
use crate::submit::copy::pieces::pieces;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::sys::CUresult;
use causeway_api::types::DeviceLocation;
use causeway_pipeline::{Direction, Plan};
use causeway_sync::delays;
use std::collections::VecDeque;
use std::sync::Arc;

/// # Safety
/// `destination` must be writable, for an asynchronous copy into pinned memory until the copy is done.
pub(super) unsafe fn from_device(
    destination: HostRegion,
    source: DeviceLocation,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let bytes = destination.bytes();
    let waits = mode == Mode::Synchronous || mode == Mode::Asynchronous && !destination.is_pinned();
    let by = if waits && bytes <= INLINE_BYTES { By::Command } else { By::Transfers };
    copies::count(Direction::FromDevice, by, &destination);
    let pending = if waits { stream.pending_writes() } else { Default::default() };
    if waits && bytes <= INLINE_BYTES {
        // SAFETY: writable as this function demands.
        let outcome = unsafe { copy_with_reply(destination, source, stream, &pending) }?;
        let newest = completion::of_thread();
        stream.advance(newest);
        outcome?;
        return stream.fetch(newest);
    }
    let session = session::of(stream.context)?;
    registered::note(session, &destination);
    let plan = session.plans.plan(Direction::FromDevice, bytes);
    let parts = pieces(source, destination, plan.buffer_bytes, Some(Direction::FromDevice));
    let mut order = CopyOrder::default();
    if !waits {
        for (source, part) in parts {
            // SAFETY: a part of the destination, writable until the transfer is done.
            unsafe { expect_piece(source, part, stream, &mut order, &plan) }?;
        }
        return Ok(());
    }
    let wait = statistics::begin_wait("copy_from_device");
    statistics::mark(Carried::Called);
    let mut in_flight: VecDeque<Arc<Transfer>> = VecDeque::new();
    let mut outcome = Ok(());
    for (source, part) in parts {
        if in_flight.len() >= plan.buffers
            && let Some(oldest) = in_flight.pop_front()
        {
            session.flush()?;
            outcome = outcome.and(oldest.wait());
        }
        // SAFETY: a part of the destination, writable until the transfer is done, which is waited for.
        match unsafe { expect_piece(source, part, stream, &mut order, &plan) } {
            Ok(transfer) => in_flight.push_back(transfer),
            Err(status) => outcome = outcome.and(Err(status)),
        }
        if outcome.is_err() {
            break;
        }
    }
    let newest = completion::of_thread();
    session.flush()?;
    // Each is waited for, whatever became of the one before: the memory is the program's again afterwards.
    for transfer in in_flight {
        outcome = outcome.and(transfer.wait());
    }
    drop(wait);
    session.faults().take()?;
    outcome?;
    stream.advance(newest);
    pending.wait()?;
    stream.fetch(newest)
}

/// Asks for few bytes to come with the reply, and waits for them, and for `pending` before they are stored:
/// what became of that is the result within.
///
/// # Safety
/// `destination` must be writable.
unsafe fn copy_with_reply(
    destination: HostRegion,
    source: DeviceLocation,
    stream: &StreamState,
    pending: &PendingWrites,
) -> Result<Result<(), CUresult>, CUresult> {
    let request = calls::copy_from_device_now { source, stream: stream.handle };
    // SAFETY: writable as this function demands; `unpack` takes no more than the region has.
    let store = |bytes: &[u8]| unsafe { destination.unpack(bytes, 1) };
    let late = send::call_reading(stream.context, &request, |reply| {
        let length = reply.count(1)?;
        let bytes = reply.take(length)?;
        if pending.is_done() {
            store(bytes);
            return Ok(None);
        }
        Ok(Some(bytes.to_vec()))
    })?;
    // The stream has passed these; their bytes may still be on their way.
    let outcome = pending.wait_all();
    if let Some(bytes) = late {
        store(&bytes);
    }
    Ok(outcome)
}

/// Asks for a copy of `source` to come as a transfer into `part`.
///
/// # Safety
/// The memory must be valid for writes until the transfer is done.
unsafe fn expect_piece(
    source: DeviceLocation,
    part: HostRegion,
    stream: &StreamState,
    order: &mut CopyOrder,
    plan: &Plan,
) -> Result<Arc<Transfer>, CUresult> {
    let session = session::of(stream.context)?;
    let is_direct = part.is_contiguous();
    let buffer = if is_direct {
        ReceiveBuffer::Direct(part.address, part.bytes())
    } else {
        let (start, end) = part.span();
        let threads = plan.threads;
        // SAFETY: writable until the transfer is done, as this function demands.
        let scatter = Box::new(move |packed: &[u8]| unsafe { { part }.unpack(packed, threads) });
        ReceiveBuffer::Scatter { length: part.bytes(), start, end, scatter }
    };
    // Held from the look for what lies before the transfer until its command is queued.
    let posting = session.copies_from_device.lock();
    // SAFETY: as this function demands.
    let expected = unsafe { expect::expect(stream, order, buffer, plan.threads) }?;
    let Expected { transfer, flow, is_blocked } = expected;
    // Before the command is queued: whoever posts one behind it finds the transfer, as soon as it is posted.
    stream.add_transfer(transfer.clone());
    delays::inject();
    // A network card would not wait for others.
    let into = if is_direct && !is_blocked {
        session.link().expose_for_write(part.address, part.bytes())
    } else {
        None
    };
    let (number, lanes) = (transfer.number(), plan.lanes as u32);
    let request =
        calls::copy_from_device { source, stream: stream.handle, transfer: number, flow, lanes, into };
    // A posted copy that is waited for may stand behind what another thread's copy ends.
    let posting = (!session.is_synchronous()).then_some(posting);
    let posted = send::post_and(stream.context, &request, || transfer.posted());
    drop(posting);
    posted.inspect_err(|status| transfers::failed(number, *status))?;
    Ok(transfer)
}
