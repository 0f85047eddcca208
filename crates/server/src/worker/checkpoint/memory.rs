//! Device memory of a session at rest: read and written piece by piece, by several threads.
//!
//! A GPU copies faster than one thread compresses, hashes and looks for zeros.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use causeway_api::handle::{Context, Handle, Native};
use causeway_api::sys::CUresult;
use causeway_api::types::Region;
use causeway_gpu::in_flight::InFlight;
use causeway_gpu::{CuResult, NativeLocation, Staging, idle_poller};
use crossbeam_channel::{Receiver, SendError, bounded};

use crate::locks::{Mutex, rank};
use crate::state_file::{Checksum, MAX_PIECE, PackedRecord, RawRecord};
use crate::worker::session::{Session, describe};

/// How long a device may take for one piece.
const COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// Threads that deal with pieces at most.
const MAX_THREADS: usize = 8;

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Memory as a context reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// The client's handle of the context.
    pub context: u64,
    /// The first address.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Whether it is all zeros when it is made anew.
    pub is_zero_before: bool,
}

impl MemoryRange {
    /// In pieces that a record takes.
    fn pieces(self) -> impl Iterator<Item = Self> {
        (0..self.bytes).step_by(MAX_PIECE).map(move |done| Self {
            address: self.address + done,
            bytes: (self.bytes - done).min(MAX_PIECE as u64),
            ..self
        })
    }
}

/// Passes what the ranges hold to `write`, in any order. Zeros that are there anyway are left out.
///
/// # Errors
/// Those of `write`, and memory that cannot be read.
pub fn read_all<E: Send + From<Unreadable>>(
    session: &Session,
    ranges: &[MemoryRange],
    mut write: impl FnMut(&PackedRecord) -> Result<(), E>,
) -> Result<(), E> {
    let pieces: Vec<MemoryRange> = ranges.iter().flat_map(|range| range.pieces()).collect();
    let next = AtomicUsize::new(0);
    let claim = || pieces.get(next.fetch_add(1, Ordering::Relaxed));
    thread::scope(|scope| {
        let (sender, packed) = bounded(2 * threads());
        for _ in 0..threads().min(pieces.len()) {
            let sender = sender.clone();
            let work = move || {
                while let Some(piece) = claim() {
                    let packed = read_packed(session, piece).transpose();
                    // Nobody takes any more after a failure.
                    if packed.is_some_and(|packed| sender.send(packed).is_err()) {
                        return;
                    }
                }
            };
            if !start(scope, work) {
                break;
            }
        }
        drop(sender);
        packed.into_iter().try_for_each(|packed| write(&packed?))?;
        // Where no thread could be started.
        while let Some(piece) = claim() {
            read_packed(session, piece)?.map_or(Ok(()), |packed| write(&packed))?;
        }
        Ok(())
    })
}

/// Starts one of several threads; with fewer it takes longer.
fn start<'scope>(scope: &'scope thread::Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) -> bool {
    thread::Builder::new().name("causeway-state".to_owned()).spawn_scoped(scope, work).is_ok()
}

/// Memory that a device does not give.
#[derive(Debug)]
pub struct Unreadable {
    /// The address.
    pub address: u64,
    /// Why, for people.
    pub why: String,
}

/// A piece as it is written; nothing of zeros that need not be.
fn read_packed(session: &Session, piece: &MemoryRange) -> Result<Option<PackedRecord>, Unreadable> {
    let MemoryRange { context, address, bytes, is_zero_before } = *piece;
    let read = read_staged(session, Handle::from_value(context), address, bytes as usize);
    let read = read.map_err(|error| Unreadable { address, why: describe(error) })?;
    let bytes = read.as_slice();
    Ok((!is_zero_before || !is_zero(bytes)).then(|| PackedRecord::memory(context, address, bytes)))
}

/// Whether all bytes are zero.
fn is_zero(bytes: &[u8]) -> bool {
    // Bytes one by one take longer than all else.
    let (lines, rest) = bytes.as_chunks::<64>();
    lines.iter().all(|line| *line == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

/// Reads memory into `into`, by the default stream of a context.
///
/// # Errors
/// When the device refuses or does not answer.
pub fn read(session: &Session, context: Handle<Context>, address: u64, into: &mut [u8]) -> CuResult<()> {
    into.copy_from_slice(read_staged(session, context, address, into.len())?.as_slice());
    Ok(())
}

fn read_staged(session: &Session, context: Handle<Context>, address: u64, bytes: usize) -> CuResult<Staging> {
    session.enter_context(context)?;
    let gpu = session.gpu();
    let location = NativeLocation::from(Region::linear(address, bytes as u64));
    let staging = gpu.staging(bytes)?;
    let (sender, done) = bounded(1);
    let copy = InFlight::copy_from_device(gpu, &location, staging, Native::NULL)?;
    // The receiver may have timed out.
    copy.after(gpu, move |read| drop(sender.send(read)))?;
    wait_for(&done)
}

/// Takes records of device memory up by `take`: `first`, and those that `next` gives, up to one that is of something else. Gives
/// the checksum of those, and this one.
///
/// # Errors
/// The first one of either.
pub fn write_all<E: Send>(
    first: RawRecord,
    mut next: impl FnMut() -> Result<RawRecord, E>,
    take: impl Fn(&RawRecord) -> Result<(), E> + Sync,
) -> Result<(Checksum, RawRecord), E> {
    let outcome = Mutex::<rank::Leaf, _>::new(Ok(Checksum::default()));
    let take_one = |record: &RawRecord| {
        let checksum = record.checksum();
        let taken = take(record);
        let mut outcome = outcome.lock();
        match (taken, &mut *outcome) {
            (Ok(()), Ok(sum)) => sum.add(&checksum),
            (Err(error), Ok(_)) => *outcome = Err(error),
            (_, Err(_)) => {}
        }
        outcome.is_ok()
    };
    let end = thread::scope(|scope| {
        let (sender, records) = bounded::<RawRecord>(2 * threads());
        for _ in 0..threads() {
            let (records, take_one) = (records.clone(), &take_one);
            // All of them stop when one has failed, and the sender then finds nobody.
            if !start(scope, move || while records.recv().is_ok_and(|record| take_one(&record)) {}) {
                break;
            }
        }
        drop(records);
        let mut record = first;
        while record.is_memory() {
            // Where no thread could be started, or one has failed.
            let is_taken = match sender.send(record) {
                Ok(()) => true,
                Err(SendError(record)) => take_one(&record),
            };
            if !is_taken {
                return Ok(None);
            }
            record = next()?;
        }
        Ok(Some(record))
    })?;
    let checksum = outcome.into_inner()?;
    Ok((checksum, end.unwrap_or_else(|| unreachable!("something has failed then"))))
}

/// Writes `bytes` to memory, by the default stream of a context.
///
/// # Errors
/// When the device refuses or does not answer.
pub fn write(session: &Session, context: Handle<Context>, address: u64, bytes: &[u8]) -> CuResult<()> {
    session.enter_context(context)?;
    let gpu = session.gpu();
    let location = NativeLocation::from(Region::linear(address, bytes.len() as u64));
    let mut staging = gpu.staging(bytes.len())?;
    staging.as_mut_slice().copy_from_slice(bytes);
    let (sender, done) = bounded(1);
    let copy = InFlight::copy_to_device(gpu, &location, staging, Native::NULL)?;
    // The receiver may have timed out.
    copy.after(gpu, move |written| {
        let _ = sender.send(written.map(drop));
    })?;
    wait_for(&done)
}

/// Waits for the end of a copy that the calling thread has asked for.
fn wait_for<T>(done: &Receiver<CuResult<T>>) -> CuResult<T> {
    debug_assert!(!idle_poller::is_awake(), "nobody else tells of the end of what this thread asks for");
    done.recv_timeout(COPY_TIMEOUT).map_err(|_| CUresult::CUDA_ERROR_LAUNCH_TIMEOUT)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_file::{Record, StateFileError, records_of};
    use std::collections::BTreeSet;

    const COUNT: u64 = 200;

    /// Records of memory, and one of something else.
    fn records() -> impl Iterator<Item = RawRecord> {
        let memory = (0..COUNT).map(|address| Record::Memory { context: 1, address, bytes: vec![7; 100] });
        records_of(memory.chain([Record::Taken(vec![1])])).into_iter()
    }

    fn address(record: &RawRecord) -> u64 {
        let Ok(Record::Memory { address, .. }) = record.decode() else { panic!("only memory is taken up") };
        address
    }

    #[test]
    fn every_record_of_memory_is_taken_up_once_before_what_follows() {
        let mut records = records();
        let taken = Mutex::<rank::Leaf, _>::new(BTreeSet::new());
        let (first, mut next) = (records.next().unwrap(), || Ok(records.next().unwrap()));
        let take = |record: &RawRecord| {
            assert!(taken.lock().insert(address(record)), "twice");
            Ok::<(), StateFileError>(())
        };
        let (checksum, end) = write_all(first, &mut next, take).unwrap();
        assert_eq!(taken.into_inner(), (0..COUNT).collect());
        assert!(!end.is_memory() && !end.is_end());
        let mut expected = Checksum::default();
        self::records().take(COUNT as usize).for_each(|record| expected.add(&record.checksum()));
        assert_eq!(checksum, expected);
    }

    #[test]
    fn a_record_that_cannot_be_taken_up_ends_it() {
        for bad in [0, 100, COUNT - 1] {
            let mut records = records();
            let (first, next) = (records.next().unwrap(), || Ok(records.next().unwrap()));
            let take = |record: &RawRecord| if address(record) == bad { Err(bad) } else { Ok(()) };
            assert!(matches!(write_all(first, next, take), Err(found) if found == bad));
        }
        let (first, mut left) = (records().next().unwrap(), 3);
        let cut_short = || {
            left -= 1;
            if left == 0 { Err(9) } else { Ok(records().next().unwrap()) }
        };
        assert!(matches!(write_all(first, cut_short, |_| Ok(())), Err(9)));
    }

    #[test]
    fn ranges_are_cut_into_pieces_without_gaps() {
        let bytes = 3 * MAX_PIECE as u64 - 5;
        let range = MemoryRange { context: 1, address: 4096, bytes, is_zero_before: true };
        let pieces: Vec<_> = range.pieces().collect();
        assert_eq!(pieces.len(), 3);
        for (before, after) in pieces.iter().zip(&pieces[1..]) {
            assert_eq!(before.address + before.bytes, after.address);
        }
        assert_eq!(pieces.iter().map(|piece| piece.bytes).sum::<u64>(), bytes);
    }

    #[test]
    fn one_byte_is_no_zero() {
        for (length, at) in [(64, 63), (130, 0), (130, 129), (5, 4)] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at} of {length}");
        }
    }
}
