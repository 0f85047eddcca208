//! Device-to-host copy, and the pieces of a copy, by the plan for its size.

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_api::calls;
use causeway_api::sys::CUresult;
use causeway_api::types::{ArrayBox, DeviceLocation, Region};
use causeway_pipeline::{Direction, INLINE_BYTES, Piece, Plan, Shape, cut, cut_tapered};
use causeway_sync::delays;
use either::Either;

use crate::model::context::PendingWrites;
use crate::model::context::pending_writes::CopyOrder;
use crate::model::region::HostRegion;
use crate::model::stream::StreamState;
use crate::model::transfers::{self, Expected, Transfer};
use crate::model::{array, completion};
use crate::remote::registered;
use crate::remote::session;
use crate::remote::transfers::expect;
use crate::remote::transfers::receive_buffer::ReceiveBuffer;
use crate::statistics::copies::{self, By};
use crate::statistics::{self, Carried};
use crate::submit::copy::endpoint::Mode;
use crate::submit::send;

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
        // SAFETY: the caller has the destination writable until this returns, which is after the reply.
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
    // SAFETY: the caller has the destination writable; `unpack` takes no more than the region has.
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
        // SAFETY: the caller keeps the part's memory writable until the transfer is done.
        let scatter = Box::new(move |packed: &[u8]| unsafe { { part }.unpack(packed, threads) });
        ReceiveBuffer::Scatter { length: part.bytes(), start, end, scatter }
    };
    // Held from the look for what lies before the transfer until its command is queued.
    let posting = session.copies_from_device.lock();
    // SAFETY: the caller keeps the part's memory writable until the transfer is done.
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
    let posted = send::post_with_callback(stream.context, &request, || transfer.posted());
    drop(posting);
    posted.inspect_err(|status| transfers::failed(number, *status))?;
    Ok(transfer)
}

/// A piece of a copy: its place on the device, and in the program's memory.
pub type Part = (DeviceLocation, HostRegion);

/// Cuts a copy between two places of the same size into pieces of at most `max_bytes` bytes. With a direction to
/// `taper` for, as it is for a copy that goes over the wire, one without gaps has [small pieces](cut_tapered)
/// where the device works alone.
pub fn pieces(
    device: DeviceLocation,
    host: HostRegion,
    max_bytes: usize,
    taper: Option<Direction>,
) -> impl Iterator<Item = Part> {
    let is_linear =
        host.is_contiguous() && matches!(device, DeviceLocation::Memory(region) if region.is_contiguous());
    let shape = if is_linear {
        Shape::linear(host.bytes())
    } else {
        let (width, height, depth) = device.size();
        Shape { width: width as usize, height: height as usize, depth: depth as usize }
    };
    // What a row is, where the elements are not known, only the driver can say.
    let (max_bytes, grain) = match device {
        DeviceLocation::Memory(_) => (max_bytes, 1),
        DeviceLocation::Array(part) => match array::element_bytes(part.array) {
            Some(element) => (max_bytes, element as usize),
            None => (usize::MAX, 1),
        },
    };
    let pieces = match taper {
        Some(direction) if is_linear => Either::Left(cut_tapered(host.bytes(), max_bytes, direction)),
        _ => Either::Right(cut(shape, max_bytes, grain)),
    };
    pieces.map(move |piece| {
        if is_linear {
            let host = HostRegion::linear(host.address.wrapping_add(piece.offset), piece.bytes());
            return (in_a_row(device, &piece), host);
        }
        (device_part(device, &piece), host.part(&piece))
    })
}

/// A piece of memory without gaps.
fn in_a_row(device: DeviceLocation, piece: &Piece) -> DeviceLocation {
    match device {
        DeviceLocation::Memory(region) => {
            Region::linear(region.address + piece.offset as u64, piece.bytes() as u64).into()
        }
        DeviceLocation::Array(_) => device_part(device, piece),
    }
}

/// The part of a place that a piece has.
fn device_part(device: DeviceLocation, piece: &Piece) -> DeviceLocation {
    let [x, y, z] = piece.at.map(|at| at as u64);
    let Shape { width, height, depth } = piece.shape;
    let (width, height, depth) = (width as u64, height as u64, depth as u64);
    match device {
        DeviceLocation::Memory(region) => {
            let address = region.address + x + y * region.row_pitch + z * region.slice_pitch;
            DeviceLocation::Memory(Region { address, width, height, depth, ..region })
        }
        DeviceLocation::Array(part) => DeviceLocation::Array(ArrayBox {
            x: part.x + x,
            y: part.y + y,
            z: part.z + z,
            width,
            height,
            depth,
            ..part
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: usize = 1 << 20;

    fn host(width: usize, height: usize, depth: usize, row_pitch: usize) -> HostRegion {
        let slice_pitch = row_pitch * height;
        HostRegion { address: 4096 as *mut u8, row_pitch, slice_pitch, width, height, depth }
    }

    #[test]
    fn a_copy_without_gaps_is_cut_anywhere() {
        let length = 2 * M + 5;
        // Two rows on one side and one on the other are the same bytes.
        let device = Region { width: length as u64, ..Region::linear(1000, length as u64) };
        let parts: Vec<_> = pieces(device.into(), host(length, 1, 1, length), M, None).collect();
        let mut next = 0;
        for (device_part, host) in &parts {
            assert!(host.bytes() <= M);
            assert_eq!(host.address as usize, 4096 + next);
            assert_eq!(*device_part, Region::linear(1000 + next as u64, host.bytes() as u64).into());
            next += host.bytes();
        }
        assert_eq!((parts.len(), next), (3, length));
        assert_eq!(
            pieces(Region::linear(0, 0).into(), HostRegion::linear(4096 as *mut u8, 0), M, None).count(),
            0
        );
    }

    #[test]
    fn strided_regions_are_cut_between_rows_and_slices() {
        let device = Region {
            address: 0,
            row_pitch: 16 << 20,
            slice_pitch: 64 << 20,
            width: 3 << 20,
            height: 4,
            depth: 1,
        };
        let found: Vec<_> = pieces(device.into(), host(3 * M, 4, 1, 5 * M), 8 * M, None)
            .map(|(device_part, host)| match device_part {
                DeviceLocation::Memory(region) => {
                    assert_eq!((region.width, region.height), (host.width as u64, host.height as u64));
                    (region.address >> 20, region.height, (host.address as usize - 4096) >> 20)
                }
                DeviceLocation::Array(_) => panic!("memory became an array"),
            })
            .collect();
        assert_eq!(found, [(0, 2, 0), (32, 2, 10)]);
    }
}
