//! Bytes on their way from a device into the program's memory.
//!
//! A copy is done for the program only when its bytes are in its memory, whichever lane they came on, and
//! they go there in the order that [`host_writes`](crate::model::host_writes) keeps. So a stream keeps the
//! transfers that its copies began, an event those that lie before it, and whoever says "done" waits for
//! them.
//!
//! Uploads that are queued: memory of the program that the link's threads still read.

use core::fmt::Display;
use core::ops::Range;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use causeway_api::sys::CUresult;
use causeway_sync::fork::in_background;
use causeway_sync::spin;

use crate::locks::{Monitor, Mutex, MutexGuard, rank, waits_for_server};
use crate::log::info;
use crate::model::completion::{self, LOST};
use crate::model::device;
use crate::model::host_writes::{self, Key, Store, Writes};

/// What brings transfers; it stays for as long as the process.
pub trait Carrier: Sync {
    /// A thread begins to wait for a transfer.
    fn wake_receiver(&self);
    /// The transfer with this number will not come: has it ended as one that failed, once nothing writes to
    /// its memory.
    fn cancel(&self, number: u64);
}

/// One device-to-host transfer.
pub struct Transfer {
    pub(crate) number: u64,
    carrier: &'static dyn Carrier,
    start: usize,
    end: usize,
    /// In which flow the server sends it.
    flow: u64,
    /// The sequence number of its command, [`UNPOSTED`] until it has its place among the session's commands.
    /// Until then it lies before nothing: what another thread posts meanwhile is before it, and may be what
    /// it waits for.
    sequence: AtomicU64,
    /// The error that the server reported for it, 0 while there is none.
    failure: AtomicU32,
    outcome: Monitor<rank::TransferOutcome, Outcome>,
    /// Whether there is an outcome.
    over: AtomicBool,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<(), CUresult>>,
    /// What is to be called when there is one.
    then: Vec<Box<dyn FnOnce() + Send>>,
}

/// Transfers by what they write to.
pub type Table = Writes<Arc<Transfer>, Store>;

/// Stands for the sequence number of a command that is not posted yet.
const UNPOSTED: u64 = u64::MAX;

/// The transfers that are expected.
pub(crate) struct Transfers {
    /// Those that are pending. No lock but those of streams' transfers is taken while this one is held.
    pub pending: LazyLock<Mutex<rank::PendingWrites, Table>>,
    /// How many transfers are pending, so that the common case of none costs one load.
    count: AtomicUsize,
    /// Threads that wait for a transfer now.
    awaited: AtomicUsize,
}

pub(crate) static TRANSFERS: Transfers = Transfers {
    pending: LazyLock::new(Mutex::default),
    count: AtomicUsize::new(0),
    awaited: AtomicUsize::new(0),
};

/// Whether any transfer is on its way.
#[inline]
pub fn any_pending() -> bool {
    TRANSFERS.count.load(Ordering::Acquire) != 0
}

/// Whether any bytes are on their way into or from the program's memory, as far as this end knows.
pub fn are_pending() -> bool {
    any_pending() || bytes() != 0
}

/// Whether any thread waits for a transfer.
pub fn are_awaited() -> bool {
    TRANSFERS.awaited.load(Ordering::Relaxed) != 0
}

/// A transfer that is expected.
pub struct Expected {
    /// The transfer.
    pub transfer: Arc<Transfer>,
    /// In which flow the server had better send it: that of the newest transfer before it.
    pub flow: u64,
    /// Whether others have to be in place before it, so that only this process may write its bytes.
    pub is_blocked: bool,
}

/// Takes a transfer into the table that goes into memory of this library, which no copy of the program is in
/// order with.
pub fn begin_apart(carrier: &'static dyn Carrier, flow: u64, range: Range<usize>) -> Expected {
    enter(TRANSFERS.pending.lock(), carrier, flow, None, range)
}

/// Takes a transfer into the table, behind a barrier if one is named.
pub fn enter(
    mut pending: MutexGuard<'_, rank::PendingWrites, Table>,
    carrier: &'static dyn Carrier,
    flow: u64,
    barrier: Option<u64>,
    range: Range<usize>,
) -> Expected {
    let transfer = Arc::new(Transfer {
        number: device::fresh(),
        carrier,
        start: range.start,
        end: range.end,
        flow,
        sequence: AtomicU64::new(UNPOSTED),
        failure: AtomicU32::new(0),
        outcome: Monitor::default(),
        over: AtomicBool::new(false),
    });
    let is_blocked = pending.begin(range, transfer.number, transfer.clone(), barrier);
    drop(pending);
    TRANSFERS.count.fetch_add(1, Ordering::AcqRel);
    Expected { transfer, flow, is_blocked }
}

/// The server cannot send a transfer.
pub fn failed(number: u64, status: CUresult) {
    let found = TRANSFERS.pending.lock().owners().find(|transfer| transfer.number == number).cloned();
    if let Some(transfer) = found {
        transfer.failure.store(status.0, Ordering::Release);
        // Runs the callback; only then is it certain that nothing writes to the program's memory any more.
        transfer.carrier.cancel(number);
    }
}

/// Waits for every transfer into or from this range of the program's memory, which is about to be freed.
pub fn wait_for_range(start: usize, end: usize) {
    wait_for_uploads(start, end);
    wait_for_writes(start, end);
}

/// Waits for every transfer into this range of the program's memory.
pub fn wait_for_writes(start: usize, end: usize) {
    if !any_pending() {
        return;
    }
    let overlapping: Vec<_> = TRANSFERS.pending.lock().overlapping(start..end).cloned().collect();
    for transfer in overlapping {
        // Its error is reported by the stream that it belongs to.
        let _ = transfer.wait();
    }
}

/// Calls `call` when all these transfers are done, on a thread that must not be held up.
pub fn when_done(transfers: &[Arc<Transfer>], call: impl FnOnce() + Send + Sync + 'static) {
    /// Calls when the last one that holds it lets go.
    struct Last(Option<Box<dyn FnOnce() + Send + Sync>>);

    impl Drop for Last {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(|call| call());
        }
    }

    let last = Arc::new(Last(Some(Box::new(call))));
    for transfer in transfers {
        let last = last.clone();
        transfer.then(move || drop(last));
    }
}

impl Transfer {
    /// In which flow the server sends it.
    pub fn flow(&self) -> u64 {
        self.flow
    }

    /// Its number on the wire.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its command, the calling thread's newest, has its place among the session's commands.
    pub fn posted(&self) {
        self.sequence.store(completion::of_thread(), Ordering::Release);
    }

    /// The sequence number of its command, larger than any other while it has none.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Whether the transfer lies before what is posted from now on, and its bytes are not there yet.
    pub fn is_ahead(&self) -> bool {
        self.sequence() != UNPOSTED && !self.is_done()
    }

    /// Whether its bytes are there, or will never be.
    pub fn is_done(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits for its bytes.
    pub fn wait(&self) -> Result<(), CUresult> {
        if !self.is_done() {
            waits_for_server();
            TRANSFERS.awaited.fetch_add(1, Ordering::Relaxed);
            self.carrier.wake_receiver();
            spin::until(spin::while_waited_for(), || self.is_done());
            TRANSFERS.awaited.fetch_sub(1, Ordering::Relaxed);
        }
        self.outcome.wait(|outcome| outcome.result)
    }

    /// Calls `call` when it is done, on a thread that must not be held up.
    fn then(&self, call: impl FnOnce() + Send + 'static) {
        let mut outcome = self.outcome.lock();
        if outcome.result.is_none() {
            outcome.then.push(Box::new(call));
            return;
        }
        drop(outcome);
        call();
    }

    /// Its place in the table, and how many bytes it has there.
    pub fn key(&self) -> (Key, usize) {
        (Key { start: self.start, number: self.number }, self.end - self.start)
    }

    /// What the program gets for `error`.
    fn status(&self, error: &impl Display) -> CUresult {
        match self.failure.load(Ordering::Acquire) {
            0 => {
                info!("a copy from the device failed: {error}");
                LOST
            }
            failure => CUresult(failure),
        }
    }

    /// Whether its bytes may go in place.
    pub(crate) fn is_next(&self) -> bool {
        TRANSFERS.pending.lock().is_next(self.number)
    }

    /// Its bytes have arrived, `bytes` of them elsewhere than where they belong: has them put in place when
    /// all that lies before it is.
    pub(crate) fn store(self: Arc<Self>, bytes: usize, store: impl FnOnce() + Send + 'static) {
        let number = self.number;
        let run = Box::new(move || {
            store();
            self.finish(Ok(()))
        });
        let now = TRANSFERS.pending.lock().arrived(number, Store { bytes, run });
        host_writes::carry_out(now);
    }

    /// Its carrier is done with it: its bytes are in place, or will never be.
    pub(crate) fn ended<E: Display>(&self, outcome: Result<(), E>) {
        host_writes::carry_out(self.finish(outcome.map_err(|error| self.status(&error))));
    }

    /// Records its outcome, and returns what is to be stored now.
    fn finish(&self, result: Result<(), CUresult>) -> Vec<Store> {
        let then = self.outcome.change(|outcome| {
            if outcome.result.is_some() {
                return None;
            }
            outcome.result = Some(result);
            self.over.store(true, Ordering::Release);
            Some(core::mem::take(&mut outcome.then))
        });
        let Some(then) = then else { return Vec::new() };
        let (key, length) = self.key();
        let next = TRANSFERS.pending.lock().finish(key, length);
        TRANSFERS.count.fetch_sub(1, Ordering::AcqRel);
        then.into_iter().for_each(|call| call());
        next
    }
}

/// First address and size of what is read, by number.
type Ranges = HashMap<u64, (usize, usize)>;

/// Memory that is being read for copies.
struct Uploads {
    /// By number; their ends are waited for.
    ranges: LazyLock<Monitor<rank::Uploads, Ranges>>,
    /// The next number.
    next: AtomicU64,
    /// The bytes of all, so that the common case of none costs one load.
    bytes: AtomicUsize,
}

static UPLOADS: Uploads =
    Uploads { ranges: LazyLock::new(Monitor::default), next: AtomicU64::new(0), bytes: AtomicUsize::new(0) };

/// A range that is being read, as long as this lives.
pub struct Reading(u64);

impl Reading {
    /// The addresses from `start` to before `end`.
    pub fn of(start: usize, end: usize) -> Self {
        let number = UPLOADS.next.fetch_add(1, Ordering::Relaxed);
        UPLOADS.ranges.lock().insert(number, (start, end));
        UPLOADS.bytes.fetch_add(end - start, Ordering::AcqRel);
        Self(number)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _work = in_background();
        if let Some((start, end)) = UPLOADS.ranges.change(|ranges| ranges.remove(&self.0)) {
            UPLOADS.bytes.fetch_sub(end - start, Ordering::AcqRel);
        }
    }
}

/// How many bytes are being read.
pub fn bytes() -> usize {
    UPLOADS.bytes.load(Ordering::Acquire)
}

/// Waits until nothing reads in this range, which is about to be freed.
pub fn wait_for_uploads(start: usize, end: usize) {
    if bytes() == 0 {
        return;
    }
    UPLOADS.ranges.wait(|ranges| {
        let is_read = ranges.values().any(|range| range.0 < end && start < range.1);
        (!is_read).then_some(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_frees_memory_waits_for_its_readers_alone() {
        let reading = Reading::of(0x1000, 0x2000);
        assert_eq!(bytes(), 0x1000);
        wait_for_uploads(0x2000, 0x3000);
        wait_for_uploads(0, 0x1000);
        let waiting = std::thread::spawn(|| wait_for_uploads(0x1fff, 0x3000));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished());
        drop(reading);
        waiting.join().unwrap();
        assert_eq!(bytes(), 0);
    }
}
