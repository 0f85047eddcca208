//! Copies between the program's memory and a device, and within devices.
//!
//! *To the device*: the source is read before the call returns, with one exception. An asynchronous copy from pinned
//! memory is read when its stream reaches it, and what lies ahead there may still change the memory: a host function,
//! a wait-value that another thread ends, a copy from a device. Then the stream tells us when it gets there, and the
//! bytes are read and sent at that moment.
//!
//! *From the device*: into pinned memory the bytes come when they come, and whoever says that the stream is done
//! waits for them; into pageable memory, and for synchronous copies, the call waits.

use crate::array;
use crate::capture;
use crate::completion;
use crate::dedup;
use crate::host_memory;
use crate::memory;
use crate::session::callbacks::{self, Task};
use crate::session::transfers::{self, Landing, Transfer};
use crate::session::{self, INLINE_BYTES, session};
use crate::statistics;
use crate::stream::StreamState;
use crate::visible;
use causeway_api::calls;
use causeway_api::sys::CUresult;
use causeway_api::types::{ArrayBox, DevicePlace, Payload, Region};
use core::slice;
use std::sync::Arc;
use std::time::Instant;

/// Memory of the program of up to three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRegion {
    /// Its first byte.
    pub address: *mut u8,
    /// Bytes from a row to the next.
    pub row_pitch: usize,
    /// Bytes from a slice to the next.
    pub slice_pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

// SAFETY: an address of the program, used only by code that says why it may.
unsafe impl Send for HostRegion {}

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Device memory, or a part of an array.
    Device(DevicePlace),
    /// The program's memory.
    Host(HostRegion),
}

impl Place {
    /// Whether it is the same kind of memory.
    pub fn is_like(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

/// When a copying call returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When CUDA's synchronous copies do.
    Synchronous,
    /// When the copy has been put into its stream.
    Asynchronous,
    /// As [`Asynchronous`](Self::Asynchronous), but the source need not wait for its turn in the stream.
    SourceAtOnce,
    /// As an asynchronous one; memory that is not pinned stays valid and as it is until the stream has passed the copy,
    /// too, since a launch of a graph copies and not the call that made the copy's node.
    InGraph,
}

impl HostRegion {
    /// `length` bytes in a row.
    pub fn linear(address: *mut u8, length: usize) -> Self {
        Self { address, row_pitch: length, slice_pitch: length, width: length, height: 1, depth: 1 }
    }

    fn bytes(&self) -> usize {
        self.width * self.height * self.depth
    }

    fn is_contiguous(&self) -> bool {
        (self.height <= 1 || self.row_pitch == self.width)
            && (self.depth <= 1 || self.slice_pitch == self.width * self.height)
    }

    /// The addresses from its first byte to behind its last.
    pub fn span(&self) -> (usize, usize) {
        let start = self.address as usize;
        let length = (self.depth - 1) * self.slice_pitch + (self.height - 1) * self.row_pitch + self.width;
        (start, start.saturating_add(length))
    }

    fn is_pinned(&self) -> bool {
        let (start, end) = self.span();
        host_memory::is_pinned(start, end)
    }

    fn rows(self) -> impl Iterator<Item = *mut u8> {
        (0..self.depth).flat_map(move |slice| {
            (0..self.height)
                .map(move |row| self.address.wrapping_add(slice * self.slice_pitch + row * self.row_pitch))
        })
    }

    /// Its bytes one after the other.
    ///
    /// # Safety
    /// The region must be readable.
    unsafe fn pack(self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(self.bytes());
        for row in self.rows() {
            // SAFETY: each row lies in the region.
            packed.extend_from_slice(unsafe { slice::from_raw_parts(row, self.width) });
        }
        packed
    }

    /// Takes as many bytes from `packed` as it has, row by row.
    ///
    /// # Safety
    /// The region must be writable.
    unsafe fn unpack(self, packed: &[u8]) {
        for (row, bytes) in self.rows().zip(packed.chunks(self.width.max(1))) {
            // SAFETY: each row lies in the region, and `bytes` is not longer than a row.
            unsafe { row.copy_from(bytes.as_ptr(), bytes.len()) };
        }
    }
}

/// Copies in the order of `stream`.
///
/// # Safety
/// The program's memory must be valid as `cuMemcpy` and its like demand it.
pub unsafe fn copy(
    destination: Place,
    source: Place,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    session()?.faults().check()?;
    if capture::of(stream) != 0 {
        if mode == Mode::Synchronous {
            return capture::refuse_wait(stream);
        }
        return capture::add_copy(&destination, &source, stream);
    }
    let (destination, source) = (visible::place(destination), visible::place(source));
    // SAFETY: as this function demands, for all of these.
    unsafe {
        match (destination, source) {
            (Place::Device(destination), Place::Device(source)) => within_device(destination, source, stream),
            (Place::Device(destination), Place::Host(source)) => to_device(destination, source, stream, mode),
            (Place::Host(destination), Place::Device(source)) => {
                from_device(destination, source, stream, mode)
            }
            (Place::Host(destination), Place::Host(source)) => within_host(destination, source, stream, mode),
        }?;
    }
    match (destination, mode) {
        // The program reads there next, with no call in between.
        (Place::Device(DevicePlace::Memory(written)), Mode::Synchronous)
            if visible::reaches(written.address) =>
        {
            stream.synchronize()
        }
        _ => Ok(()),
    }
}

fn within_device(
    destination: DevicePlace,
    source: DevicePlace,
    stream: &StreamState,
) -> Result<(), CUresult> {
    let request = calls::copy_within_device { destination, source, stream: stream.handle };
    session::post_in(stream.context, &request)
}

/// # Safety
/// `source` must be readable, for an asynchronous copy from pinned memory until the stream has passed it.
unsafe fn to_device(
    destination: DevicePlace,
    source: HostRegion,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let is_deferred = stream.ahead().is_unsettled();
    if is_deferred && mode == Mode::Synchronous {
        stream.synchronize()?;
    }
    statistics::count_to_device(source.bytes());
    if is_deferred && (mode == Mode::InGraph || mode == Mode::Asynchronous && source.is_pinned()) {
        // SAFETY: readable until the stream has passed the copy.
        return unsafe { read_later(destination, source, stream) };
    }
    // Work that another stream gets right after this call finds the bytes on the device, as it does with a GPU
    // that is near. Small ones travel with the commands and are published, so that the server keeps that order. An
    // address that we do not know is judged by the server, and the caller of a synchronous copy must hear of it.
    let is_known = match destination {
        DevicePlace::Memory(region) => memory::is_writable(region.address),
        DevicePlace::Array(part) => array::element_bytes(part.array).is_some(),
    };
    let publish = mode == Mode::Synchronous && source.bytes() <= INLINE_BYTES && is_known;
    if publish && stream.unfinished() > MOST_BEFORE_PUBLISHED {
        stream.synchronize()?;
    }
    // SAFETY: readable now, and CUDA forbids the program to change it before the copy is done.
    unsafe {
        if let DevicePlace::Memory(region) = destination
            && region.is_contiguous()
            && source.is_contiguous()
            && dedup::suits(source.bytes())
        {
            dedup::copy(region.address, source.address, source.bytes(), stream)?;
        } else if source.is_contiguous() {
            send_now(destination, slice::from_raw_parts(source.address, source.bytes()), stream, publish)?;
        } else {
            send_now(destination, &source.pack(), stream, publish)?;
        }
    }
    if mode == Mode::Synchronous && !publish { stream.synchronize() } else { Ok(()) }
}

/// How many commands a synchronous copy may find unfinished without waiting for them. The server holds a copy back, and
/// publishes it later, when its stream has more commands than the driver takes.
const MOST_BEFORE_PUBLISHED: u64 = 400;

/// A long copy goes in pieces of this many bytes, so that reading the source, the wire and the GPU's own copy
/// overlap, and so that neither end holds more than a few pieces of it.
const PIECE_BYTES: usize = 8 << 20;

/// The pieces of a copy between a place of the device and contiguous memory of `length` bytes: where each lies on the
/// device, where it begins in the memory, and how long it is.
fn pieces(place: DevicePlace, length: usize) -> Vec<(DevicePlace, usize, usize)> {
    let (width, height, depth) = place.size();
    match place {
        _ if length == 0 => Vec::new(),
        _ if length <= PIECE_BYTES => vec![(place, 0, length)],
        DevicePlace::Memory(region) if region.is_contiguous() => (0..length)
            .step_by(PIECE_BYTES)
            .map(|offset| {
                let part = PIECE_BYTES.min(length - offset);
                let lies_at = Region::linear(region.address + offset as u64, part as u64);
                (lies_at.into(), offset, part)
            })
            .collect(),
        // What a row is, where the elements are not known, only the driver can say.
        DevicePlace::Array(part) if array::element_bytes(part.array).is_none() => vec![(place, 0, length)],
        _ => {
            let rows = (PIECE_BYTES as u64 / width).clamp(1, height);
            let slices = if rows < height { 1 } else { (PIECE_BYTES as u64 / (width * height)).max(1) };
            let mut offset = 0;
            let mut pieces = Vec::new();
            for z in (0..depth).step_by(slices as usize) {
                for y in (0..height).step_by(rows as usize) {
                    let (rows, slices) = (rows.min(height - y), slices.min(depth - z));
                    let bytes = (width * rows * slices) as usize;
                    pieces.push((cut(place, (y, rows), (z, slices)), offset, bytes));
                    offset += bytes;
                }
            }
            pieces
        }
    }
}

/// The part of a place that has these rows and these slices, each given as first one and number.
fn cut(place: DevicePlace, (y, height): (u64, u64), (z, depth): (u64, u64)) -> DevicePlace {
    match place {
        DevicePlace::Memory(region) => {
            let address = region.address + y * region.row_pitch + z * region.slice_pitch;
            DevicePlace::Memory(Region { address, height, depth, ..region })
        }
        DevicePlace::Array(part) => {
            DevicePlace::Array(ArrayBox { y: part.y + y, z: part.z + z, height, depth, ..part })
        }
    }
}

/// Sends bytes that may change when this returns; `publish` is for those that travel with the commands.
fn send_now(
    destination: DevicePlace,
    bytes: &[u8],
    stream: &StreamState,
    publish: bool,
) -> Result<(), CUresult> {
    if bytes.len() <= INLINE_BYTES {
        let request = calls::copy_to_device {
            destination,
            stream: stream.handle,
            publish,
            data: Payload::Inline(bytes),
        };
        return session::post_in(stream.context, &request);
    }
    let _bar = session()?.watch_upload(bytes.len());
    for (destination, offset, length) in pieces(destination, bytes.len()) {
        send_piece(destination, &bytes[offset..offset + length], stream)?;
    }
    Ok(())
}

fn post_to_device(destination: DevicePlace, data: Payload<'_>, stream: &StreamState) -> Result<(), CUresult> {
    let request = calls::copy_to_device { destination, stream: stream.handle, publish: false, data };
    session::post_in(stream.context, &request)
}

fn send_piece(destination: DevicePlace, bytes: &[u8], stream: &StreamState) -> Result<(), CUresult> {
    let number = transfers::fresh_number();
    let data = Payload::Transfer { number, length: bytes.len() as u64 };
    let session = session()?;
    // A posted copy that is waited for must have its bytes on their way before it is.
    if !session.is_synchronous() {
        post_to_device(destination, data, stream)?;
    }
    // SAFETY: borrowed for the duration of the call.
    unsafe { session.send_transfer(number, bytes.as_ptr(), bytes.len()) }?;
    if session.is_synchronous() {
        post_to_device(destination, data, stream)?;
    }
    Ok(())
}

/// Lets the stream tell us when it reaches the copy, and reads the source then.
///
/// # Safety
/// `source` must be readable until the stream has passed the copy.
unsafe fn read_later(
    destination: DevicePlace,
    source: HostRegion,
    stream: &StreamState,
) -> Result<(), CUresult> {
    let number = transfers::fresh_number();
    let send = Box::new(move || {
        let Ok(session) = session() else { return };
        // SAFETY: the stream has not passed the copy yet, so the source is readable. An error means that the link
        // is lost, which every call reports.
        let _ = unsafe {
            if source.is_contiguous() {
                session.send_transfer(number, source.address, source.bytes())
            } else {
                let packed = source.pack();
                session.send_transfer(number, packed.as_ptr(), packed.len())
            }
        };
    });
    let token = callbacks::register(Task::Read { send, after: stream.ahead() });
    let reached = calls::host_function { stream: stream.handle, token };
    session::post_in(stream.context, &reached).inspect_err(|_| callbacks::forget(token))?;
    post_to_device(destination, Payload::Transfer { number, length: source.bytes() as u64 }, stream)
}

/// # Safety
/// `destination` must be writable, for an asynchronous copy into pinned memory until the copy is done.
unsafe fn from_device(
    destination: HostRegion,
    source: DevicePlace,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let bytes = destination.bytes();
    statistics::count_from_device(bytes);
    let waits = mode == Mode::Synchronous || mode == Mode::Asynchronous && !destination.is_pinned();
    let ahead = if waits { stream.ahead() } else { Default::default() };
    if waits && bytes <= INLINE_BYTES {
        let request = calls::copy_from_device_now { source, stream: stream.handle };
        session::call_reading(stream.context, &request, |reply| {
            let length = reply.count(1)?;
            // SAFETY: writable as this function demands; `unpack` takes no more than the region has.
            unsafe { destination.unpack(reply.take(length)?) };
            Ok(())
        })?;
        let newest = completion::of_thread();
        stream.reach(newest);
        ahead.wait()?;
        return stream.fetch(newest);
    }
    let mut expected = Vec::new();
    if destination.is_contiguous() {
        for (source, offset, length) in pieces(source, bytes) {
            let landing = Landing::Direct(destination.address.wrapping_add(offset), length);
            // SAFETY: a part of the destination, writable until the transfer is done.
            expected.push(unsafe { expect_piece(source, landing, stream) }?);
        }
    } else {
        let (start, end) = destination.span();
        // SAFETY: writable until the transfer is done, as this function demands.
        let store = Box::new(move |packed: &[u8]| unsafe { { destination }.unpack(packed) });
        let landing = Landing::Spread { length: bytes, start, end, store };
        // SAFETY: writable until the transfer is done, as this function demands.
        expected.push(unsafe { expect_piece(source, landing, stream) }?);
    }
    if !waits {
        expected.into_iter().for_each(|transfer| stream.add_transfer(transfer));
        return Ok(());
    }
    let begun = Instant::now();
    crate::entry::mark(crate::entry::Carried::Called);
    let newest = completion::of_thread();
    session()?.flush()?;
    // Each is waited for, whatever became of the one before: the memory is the program's again afterwards.
    let outcomes: Vec<_> = expected.iter().map(|transfer| transfer.wait()).collect();
    statistics::count_wait("copy_from_device", begun.elapsed());
    session()?.faults().take()?;
    outcomes.into_iter().collect::<Result<(), _>>()?;
    stream.reach(newest);
    ahead.wait()?;
    stream.fetch(newest)
}

/// Asks for a copy of `source` to come as a transfer into `landing`.
///
/// # Safety
/// The memory that `landing` means must be valid for writes until the transfer is done.
unsafe fn expect_piece(
    source: DevicePlace,
    landing: Landing,
    stream: &StreamState,
) -> Result<Arc<Transfer>, CUresult> {
    // SAFETY: as this function demands.
    let transfer = unsafe { transfers::expect(stream.context, landing) }?;
    let request = calls::copy_from_device { source, stream: stream.handle, transfer: transfer.number() };
    session::post_in(stream.context, &request)
        .inspect_err(|status| transfers::failed(transfer.number(), *status))?;
    Ok(transfer)
}

/// # Safety
/// `destination` must be writable and `source` readable, in a graph until the stream has passed the copy.
unsafe fn within_host(
    destination: HostRegion,
    source: HostRegion,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    if mode == Mode::InGraph {
        let run = Box::new(move || {
            let (destination, source) = (destination, source);
            // SAFETY: the stream has come to the copy and not passed it.
            unsafe { destination.unpack(&source.pack()) };
        });
        return callbacks::post(stream, Task::Then { run, after: stream.ahead() });
    }
    stream.synchronize()?;
    // SAFETY: as this function demands; the regions may overlap, so the bytes go through a buffer.
    unsafe { destination.unpack(&source.pack()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_copies_go_in_pieces() {
        let length = 2 * PIECE_BYTES + 5;
        let parts = pieces(Region::linear(1000, length as u64).into(), length);
        let starts: Vec<_> = parts.iter().map(|(_, offset, _)| *offset).collect();
        assert_eq!(starts, [0, PIECE_BYTES, 2 * PIECE_BYTES]);
        assert_eq!(parts[1].0, Region::linear(1000 + PIECE_BYTES as u64, PIECE_BYTES as u64).into());
        assert_eq!(parts.iter().map(|(_, _, part)| part).sum::<usize>(), length);
        assert_eq!(parts[2].0.bytes(), Some(5));
        assert!(pieces(Region::linear(0, 0).into(), 0).is_empty());
    }

    #[test]
    fn regions_with_gaps_are_cut_between_rows_and_slices() {
        let rows = |width: u64, height, depth| Region {
            address: 0,
            row_pitch: 16 << 20,
            slice_pitch: 64 << 20,
            width,
            height,
            depth,
        };
        let starts = |region: Region| -> Vec<_> {
            let length = region.bytes().unwrap() as usize;
            let parts = pieces(region.into(), length);
            assert_eq!(parts.iter().map(|(_, _, part)| part).sum::<usize>(), length);
            parts
                .iter()
                .map(|(place, offset, _)| match place {
                    DevicePlace::Memory(region) => {
                        (region.address >> 20, region.height, region.depth, *offset >> 20)
                    }
                    DevicePlace::Array(_) => panic!("memory became an array"),
                })
                .collect()
        };
        assert_eq!(starts(rows(3 << 20, 4, 1)), [(0, 2, 1, 0), (32, 2, 1, 6)]);
        assert_eq!(starts(rows(1 << 20, 3, 3)), [(0, 3, 2, 0), (128, 3, 1, 6)]);
        assert_eq!(starts(rows(9 << 20, 1, 2)), [(0, 1, 1, 0), (64, 1, 1, 9)]);
    }

    #[test]
    fn rows_and_slices_are_packed_and_unpacked() {
        let mut memory: Vec<u8> = (0..48).collect();
        let region = HostRegion {
            address: memory.as_mut_ptr(),
            row_pitch: 6,
            slice_pitch: 24,
            width: 2,
            height: 3,
            depth: 2,
        };
        assert!(!region.is_contiguous() && HostRegion::linear(region.address, 48).is_contiguous());
        assert_eq!(region.span().1 - region.span().0, 24 + 12 + 2);
        // SAFETY: the region lies within `memory`.
        let packed = unsafe { region.pack() };
        assert_eq!(packed, [0, 1, 6, 7, 12, 13, 24, 25, 30, 31, 36, 37]);
        // SAFETY: as above.
        unsafe { region.unpack(&[99; 4]) };
        assert_eq!((memory[0], memory[1], memory[6], memory[7], memory[12]), (99, 99, 99, 99, 12));
    }
}
