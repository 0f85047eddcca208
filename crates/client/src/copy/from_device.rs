//! Where do the bytes of a copy from a device go, and who waits for them?

use super::pieces::pieces;
use super::{HostRegion, Mode};
use crate::completion;
use crate::entry::{self, Carried};
use crate::registered;
use crate::session::transfers::{self, Landing, Transfer};
use crate::session::{self, INLINE_BYTES};
use crate::statistics::copies::By;
use crate::statistics::{self, copies};
use crate::stream::StreamState;
use causeway_api::calls;
use causeway_api::sys::CUresult;
use causeway_api::types::DevicePlace;
use causeway_fabric::pipeline::{Direction, Plan};
use std::collections::VecDeque;
use std::sync::Arc;

/// # Safety
/// `destination` must be writable, for an asynchronous copy into pinned memory until the copy is done.
pub(super) unsafe fn from_device(
    destination: HostRegion,
    source: DevicePlace,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let bytes = destination.bytes();
    let waits = mode == Mode::Synchronous || mode == Mode::Asynchronous && !destination.is_pinned();
    let by = if waits && bytes <= INLINE_BYTES { By::Command } else { By::Transfers };
    copies::count(Direction::FromDevice, by, &destination);
    let ahead = if waits { stream.ahead() } else { Default::default() };
    if waits && bytes <= INLINE_BYTES {
        let request = calls::copy_from_device_now { source, stream: stream.handle };
        session::call_reading(stream.context, &request, |reply| {
            let length = reply.count(1)?;
            // SAFETY: writable as this function demands; `unpack` takes no more than the region has.
            unsafe { destination.unpack(reply.take(length)?, 1) };
            Ok(())
        })?;
        let newest = completion::of_thread();
        stream.reach(newest);
        ahead.wait()?;
        return stream.fetch(newest);
    }
    let session = session::of(stream.context)?;
    registered::note(session, &destination);
    let plan = session.plans.plan(Direction::FromDevice, bytes);
    let parts = pieces(source, destination, plan.buffer_bytes, Some(Direction::FromDevice));
    if !waits {
        for (source, part) in parts {
            // SAFETY: a part of the destination, writable until the transfer is done.
            stream.add_transfer(unsafe { expect_piece(source, part, stream, &plan) }?);
        }
        return Ok(());
    }
    let wait = statistics::begin_wait("copy_from_device");
    entry::mark(Carried::Called);
    let mut under_way: VecDeque<Arc<Transfer>> = VecDeque::new();
    let mut outcome = Ok(());
    for (source, part) in parts {
        if under_way.len() >= plan.buffers
            && let Some(oldest) = under_way.pop_front()
        {
            session.flush()?;
            outcome = outcome.and(oldest.wait());
        }
        // SAFETY: a part of the destination, writable until the transfer is done, which is waited for.
        match unsafe { expect_piece(source, part, stream, &plan) } {
            Ok(transfer) => under_way.push_back(transfer),
            Err(status) => outcome = outcome.and(Err(status)),
        }
        if outcome.is_err() {
            break;
        }
    }
    let newest = completion::of_thread();
    session.flush()?;
    // Each is waited for, whatever became of the one before: the memory is the program's again afterwards.
    for transfer in under_way {
        outcome = outcome.and(transfer.wait());
    }
    drop(wait);
    session.faults().take()?;
    outcome?;
    stream.reach(newest);
    ahead.wait()?;
    stream.fetch(newest)
}

/// Asks for a copy of `source` to come as a transfer into `part`.
///
/// # Safety
/// The memory must be valid for writes until the transfer is done.
unsafe fn expect_piece(
    source: DevicePlace,
    part: HostRegion,
    stream: &StreamState,
    plan: &Plan,
) -> Result<Arc<Transfer>, CUresult> {
    let mut into = None;
    let landing = if part.is_contiguous() {
        into = session::of(stream.context)?.link().lend(part.address, part.bytes());
        Landing::Direct(part.address, part.bytes())
    } else {
        let (start, end) = part.span();
        let threads = plan.threads;
        // SAFETY: writable until the transfer is done, as this function demands.
        let store = Box::new(move |packed: &[u8]| unsafe { { part }.unpack(packed, threads) });
        Landing::Spread { length: part.bytes(), start, end, store }
    };
    // SAFETY: as this function demands.
    let transfer = unsafe { transfers::expect(stream.context, landing, plan.threads) }?;
    let (transfer_number, lanes) = (transfer.number(), plan.lanes as u32);
    let request =
        calls::copy_from_device { source, stream: stream.handle, transfer: transfer_number, lanes, into };
    session::post_in(stream.context, &request)
        .inspect_err(|status| transfers::failed(transfer_number, *status))?;
    Ok(transfer)
}
