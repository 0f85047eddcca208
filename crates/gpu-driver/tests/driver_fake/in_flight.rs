//! Memory that the device may still use is given to nobody else, whatever fails.

use super::{BUSY, Failing, Fake};
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::Region;
use causeway_gpu::calls::*;
use causeway_gpu::in_flight::{HostMemory, InFlight};
use causeway_gpu::{CuResult, Gpu, NativeLocation, Staging};
use std::ffi::c_int;
use std::sync::mpsc;

/// Blocks of this many bytes are used again at once.
const BYTES: usize = 64 << 10;
const REFUSED: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
const FAULT: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

fn stream() -> Native<Stream> {
    Native::from_value(0x55)
}

fn place() -> NativeLocation {
    Region::linear(0x100, BYTES as u64).into()
}

impl Fake {
    /// A copy that the device is busy with, and the address of its memory.
    fn start(&self, to_device: bool) -> CuResult<(InFlight<Staging>, usize)> {
        let staging = self.driver.staging(BYTES)?;
        let address = staging.as_ptr() as usize;
        let copy = if to_device { InFlight::copy_to_device } else { InFlight::copy_from_device };
        copy(&self.driver, &place(), staging, stream()).map(|busy| (busy, address))
    }

    fn set_aside(&self) -> usize {
        self.driver.set_aside().bytes()
    }

    /// Whether the memory at `address` is among what the next copies would get.
    fn is_free(&self, address: usize) -> bool {
        // Several at once: what was released while this looked at another piece lies beneath that one.
        let pieces = [(); 4].map(|()| self.driver.staging(BYTES).unwrap()).into_iter().rev();
        // Those taken last go back first, so that the next copy gets what it would have got.
        pieces.fold(false, |found, piece| found | (piece.as_ptr() as usize == address))
    }
}

#[test]
fn a_completion_gives_memory_back_and_nothing_before_it() {
    for to_device in [true, false] {
        let fake = Fake::new();
        fake.set_busy(BUSY);
        let (sender, results) = mpsc::channel();
        let (busy, address) = fake.start(to_device).unwrap();
        let then = move |outcome: CuResult<Staging>| sender.send(outcome.map(drop)).unwrap();
        busy.after(&fake.driver, then).unwrap();
        assert!(!fake.is_free(address));
        fake.set_busy(0);
        assert_eq!(results.recv().unwrap(), Ok(()));
        assert!(fake.is_free(address));
        assert_eq!(fake.set_aside(), 0);
    }
}

#[test]
fn memory_is_set_aside_where_no_event_can_guard_it() {
    for what in [Failing::MakeEvent, Failing::RecordEvent] {
        for urgent in [true, false] {
            let fake = Fake::new();
            fake.set_busy(BUSY);
            let (busy, address) = fake.start(true).unwrap();
            let (sender, results) = mpsc::channel();
            fake.fail(what, Some(REFUSED));
            let asked = if urgent {
                busy.after(&fake.driver, move |outcome| sender.send(outcome.map(drop)).unwrap())
            } else {
                busy.drop_after_a_while(&fake.driver)
            };
            assert_eq!(asked, Err(REFUSED));
            assert!(results.try_recv().is_err(), "a refusal is not a completion");
            fake.set_busy(0);
            assert!(!fake.is_free(address));
            assert_eq!(fake.set_aside(), BYTES);
            // What is healthy goes on.
            fake.fail(what, None);
            let (busy, other) = fake.start(true).unwrap();
            busy.after(&fake.driver, drop).unwrap();
            assert!(other != address && fake.is_free(other));
        }
    }
}

#[test]
fn what_is_dropped_while_it_is_busy_is_set_aside() {
    let fake = Fake::new();
    let (one, first) = fake.start(true).unwrap();
    let (other, second) = fake.start(false).unwrap();
    drop(one.and(other));
    let mut several = InFlight::in_stream(&fake.driver, Vec::new(), 0, stream());
    several.push(fake.start(true).unwrap().0);
    several.push(fake.start(true).unwrap().0);
    assert_eq!((several.count(), several.bytes()), (2, 2 * BYTES));
    drop(several);
    assert_eq!(fake.set_aside(), 4 * BYTES);
    assert!(!fake.is_free(first) && !fake.is_free(second));
}

#[test]
fn a_copy_that_fails_at_its_start_keeps_its_memory_until_the_stream_is_done() {
    let fake = Fake::new();
    fake.set_busy(BUSY);
    let next = || fake.driver.staging(BYTES).unwrap().as_ptr() as usize;
    let address = next();
    fake.fail(Failing::HostCopy, Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(fake.start(true).err(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert!(!fake.is_free(address));
    // Asked for later in the same stream, so told after it. Looking until the memory is free would not do: memory
    // that comes back while all pieces of a look are taken lies beneath those in every later look.
    let (sender, told) = mpsc::channel();
    fake.driver.after(stream(), Box::new(move |outcome| sender.send(outcome).unwrap())).unwrap();
    fake.set_busy(0);
    assert_eq!(told.recv(), Ok(Ok(())));
    assert!(fake.is_free(address));
    assert_eq!(fake.set_aside(), 0);
    // Where the stream does not tell either, it is kept for good.
    let address = next();
    fake.fail(Failing::RecordEvent, Some(REFUSED));
    assert!(fake.start(false).is_err());
    assert_eq!(fake.set_aside(), BYTES);
    assert!(!fake.is_free(address));
}

#[test]
fn a_failed_context_costs_what_was_under_way_and_no_more() {
    let fake = Fake::new();
    fake.set_busy(BUSY);
    let (sender, results) = mpsc::channel();
    let (busy, address) = fake.start(false).unwrap();
    busy.after(&fake.driver, move |outcome| sender.send(outcome.map(drop)).unwrap()).unwrap();
    fake.set_busy(FAULT.0 as c_int);
    assert_eq!(results.recv().unwrap(), Err(FAULT));
    assert!(!fake.is_free(address), "a copy engine may still write to it");
    for _ in 0..100 {
        assert_eq!(fake.start(false).err(), Some(FAULT));
    }
    assert_eq!(fake.set_aside(), BYTES);
}

/// Memory that says that it is more than it is.
struct Huge;

// SAFETY: nothing reads it: the fake copies nothing to a device.
unsafe impl HostMemory for Huge {
    fn address(&self) -> *const u8 {
        core::ptr::NonNull::dangling().as_ptr()
    }

    fn bytes(&self) -> usize {
        1 << 29
    }
}

#[test]
fn no_copy_is_started_once_too_much_is_set_aside() {
    let fake = Fake::new();
    let start = || {
        let place = Region::linear(0x100, Huge.bytes() as u64).into();
        InFlight::copy_to_device(&fake.driver, &place, Huge, Native::NULL)
    };
    for _ in 0..2 {
        drop(start().unwrap());
    }
    assert_eq!(start().err(), Some(REFUSED));
    assert_eq!(fake.set_aside(), 2 * Huge.bytes());
}

/// Tells when it is freed.
struct Watched(mpsc::Sender<String>, &'static str);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.send(format!("{} freed", self.1)).unwrap();
    }
}

#[test]
fn work_that_ends_with_its_context_keeps_its_memory_until_that_has_ended() {
    let fake = Fake::new();
    fake.set_busy(BUSY);
    let (busy, _) = fake.start(false).unwrap();
    let (sender, results) = mpsc::channel();
    let watched = InFlight::in_stream(&fake.driver, Watched(sender.clone(), "memory"), 1, stream());
    busy.and(watched)
        .after(&fake.driver, move |outcome| sender.send(format!("{:?}", outcome.map(drop))).unwrap())
        .unwrap();
    fake.log();
    fake.driver.primary_context_release(fake.context, 1).unwrap();
    let told: Vec<_> = results.try_iter().collect();
    let destroyed = format!("{:?}", Err::<(), _>(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED));
    assert_eq!(told, [destroyed, "memory freed".to_owned()]);
    // The thread that waits for the work may enter the context before or after that.
    let log = fake.log();
    let calls: Vec<_> = log.lines().filter(|line| !line.starts_with("set current")).collect();
    assert_eq!(calls, ["release 1"], "memory that is in use is not unregistered before");
    assert_eq!(fake.set_aside(), 0);
}

#[test]
fn a_context_that_cannot_be_marked_is_not_told_to_be_idle() {
    let fake = Fake::new();
    fake.set_busy(BUSY);
    let (sender, results) = mpsc::channel();
    let busy = InFlight::in_context(&fake.driver, Watched(sender, "memory"), 7);
    fake.fail(Failing::MarkContext, Some(REFUSED));
    assert_eq!(busy.after(&fake.driver, drop), Err(REFUSED));
    // The sender is kept by what is set aside.
    assert_eq!(results.try_recv(), Err(mpsc::TryRecvError::Empty));
    assert_eq!(fake.set_aside(), 7);
    // A driver that cannot mark a context as a whole is asked for its streams, all of them or none.
    let stream = fake.driver.stream_create(1, 0).unwrap();
    fake.fail(Failing::MarkContext, Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    fake.fail(Failing::RecordEvent, Some(REFUSED));
    assert_eq!(fake.driver.after_context(Box::new(|_| unreachable!("nobody knows"))), Err(REFUSED));
    fake.fail(Failing::RecordEvent, None);
    let (sender, results) = mpsc::channel();
    fake.driver.after_context(Box::new(move |outcome| sender.send(outcome).unwrap())).unwrap();
    assert!(results.try_recv().is_err());
    fake.set_busy(0);
    assert_eq!(results.recv().unwrap(), Ok(()));
    fake.driver.stream_destroy(stream).unwrap();
}
