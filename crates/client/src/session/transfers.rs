//! Bytes on their way from a device into the program's memory.
//!
//! A copy is done for the program only when its bytes are in its memory, whichever lane they came on, and they go there in the
//! order that [`host_writes`](crate::host_writes) keeps. So a stream keeps the transfers that its copies began, an event those that lie before it,
//! and whoever says "done" waits for them.

use super::faults::LOST;
use super::uploads;
use crate::host_writes::{self, Bounce, Key, MOST_OVERLAPPING, Store, Writes};
use crate::log::info;
use crate::session;
use crate::stream::{Ahead, StreamState};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_fabric::{Awaited, ChooseMemory, Destination, TransferError, awake, copiers, delays};
use core::ops::Range;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

/// One device-to-host transfer.
pub struct Transfer {
    number: u64,
    context: Handle<Context>,
    start: usize,
    end: usize,
    /// In which flow the server sends it.
    flow: u64,
    /// Whether others had to be in place before it.
    is_held: bool,
    /// Whether something lay before one that is held which the program's own code has to end.
    is_behind_hazard: bool,
    /// The error that the server reported for it, 0 while there is none.
    failure: AtomicU32,
    outcome: Mutex<Outcome>,
    /// Whether there is an outcome.
    over: AtomicBool,
    done: Condvar,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<(), CUresult>>,
    /// What is to be called when there is one.
    then: Vec<Box<dyn FnOnce() + Send>>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);
/// Those that are pending. No other lock is taken while this one is held.
static PENDING: LazyLock<Mutex<Writes<Arc<Transfer>, Store>>> = LazyLock::new(Mutex::default);
/// How many transfers are pending, so that the common case of none costs one load.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Threads that wait for a transfer now.
static AWAITED: AtomicUsize = AtomicUsize::new(0);

/// A number that no transfer of the session has had.
pub fn fresh_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether any transfer is on its way.
#[inline]
pub fn any_pending() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Whether any thread waits for a transfer.
pub fn are_awaited() -> bool {
    AWAITED.load(Ordering::Relaxed) != 0
}

/// Spreads the bytes of a transfer over the program's memory.
pub type Spread = Box<dyn FnOnce(&[u8]) + Send>;

/// Where a transfer's bytes go.
pub enum Landing {
    /// Straight into memory of the program: address and length.
    Direct(*mut u8, usize),
    /// Into a buffer of this many bytes that is then given to the function, which spreads it over the program's
    /// memory from the first address to the second.
    Spread { length: usize, start: usize, end: usize, spread: Spread },
}

impl Landing {
    /// The addresses from its first byte to behind its last.
    fn range(&self) -> Range<usize> {
        match self {
            Self::Direct(address, length) => *address as usize..*address as usize + length,
            Self::Spread { start, end, .. } => *start..*end,
        }
    }
}

/// A transfer that is expected.
pub struct Expected {
    /// The transfer.
    pub transfer: Arc<Transfer>,
    /// In which flow the server had better send it: that of the newest transfer into the same memory before it.
    pub flow: u64,
    /// Whether others have to be in place before it, so that only this process may write its bytes.
    pub is_held: bool,
}

/// Unfinished transfers into a range of memory that lie before a stream's end, and whether the program's own code may have to run
/// before that is reached.
#[derive(Default)]
pub struct Before {
    transfers: Vec<Arc<Transfer>>,
    is_behind_hazard: bool,
}

impl Before {
    /// What lies before the next command of `stream` and writes to `range`.
    pub fn of(stream: &StreamState, range: Range<usize>) -> Self {
        // With nothing on its way the look costs one load, and with nothing that overlaps one lock.
        if !any_pending() || PENDING.lock().overlapping(range.clone()).next().is_none() {
            return Self::default();
        }
        let Ahead { mut transfers, hazard } = stream.ahead();
        transfers.retain(|transfer| transfer.overlaps(&range));
        Self { transfers, is_behind_hazard: hazard }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// Waits until the bytes of all are in place. The error of one is reported by the stream that it belongs to.
    pub fn wait(&self) {
        for transfer in &self.transfers {
            let _ = transfer.wait();
        }
    }
}

/// Prepares to receive a transfer for a copy at the end of `stream`, which `threads` threads may write; the command that makes the server send it
/// comes after, and nothing else of the session's copies may come between.
///
/// # Safety
/// The memory that `landing` means must be valid for writes until the transfer is done.
pub unsafe fn expect(stream: &StreamState, landing: Landing, threads: usize) -> Result<Expected, CUresult> {
    let session = session::of(stream.context)?;
    let range = landing.range();
    let before = Before::of(stream, range.clone());
    let newest = before.transfers.iter().max_by_key(|transfer| transfer.number);
    let flow = newest.map_or(stream.handle.value(), |newest| newest.flow);
    let transfer = Arc::new(Transfer {
        number: fresh_number(),
        context: stream.context,
        start: range.start,
        end: range.end,
        flow,
        is_held: !before.is_empty(),
        is_behind_hazard: before.is_behind_hazard,
        failure: AtomicU32::new(0),
        outcome: Mutex::default(),
        over: AtomicBool::new(false),
        done: Condvar::new(),
    });
    let number = transfer.number;
    let keys = before.transfers.iter().map(|before| before.key());
    let is_held = PENDING.lock().begin(range, number, transfer.clone(), keys);
    COUNT.fetch_add(1, Ordering::AcqRel);
    // SAFETY: valid until the transfer is done, as this function demands.
    let destination = unsafe { destination(&transfer, landing, is_held, threads) };
    if session.link().expect_transfer(number, destination.with_threads(threads)).is_err() {
        transfer.finish(Err(LOST));
        return Err(LOST);
    }
    Ok(Expected { transfer, flow, is_held })
}

/// Where the bytes of a transfer are received, and how they get to where they belong.
///
/// # Safety
/// The memory that `landing` means must be valid for writes until the transfer is done.
unsafe fn destination(
    transfer: &Arc<Transfer>,
    landing: Landing,
    is_held: bool,
    threads: usize,
) -> Destination {
    let transfer = transfer.clone();
    match landing {
        // SAFETY: valid until the transfer is done, as this function demands; it is done when the callback has run.
        Landing::Direct(address, length) if !is_held => unsafe {
            Destination::raw(address, length, move |outcome| transfer.ended(outcome))
        },
        Landing::Direct(address, length) => {
            let place =
                Arc::new(InTurn { number: transfer.number, address, length, bounce: OnceLock::new() });
            let on_end = {
                let place = place.clone();
                move |outcome: Result<(), TransferError>| match (outcome, place.is_bounced()) {
                    (Ok(()), true) => transfer.clone().store(move || {
                        // SAFETY: the transfer is not done yet, and all its bytes have arrived.
                        unsafe { place.store(threads) };
                    }),
                    (outcome, _) => transfer.ended(outcome),
                }
            };
            // SAFETY: the program's memory is valid until the transfer is done, as this function demands, and the bounce buffer as long
            // as `place`, which the callback holds.
            unsafe { Destination::chosen(place, length, on_end) }
        }
        Landing::Spread { length, spread, .. } => {
            Destination::buffer(vec![0; length], move |outcome| match outcome {
                Ok(bytes) if is_held => transfer.clone().store(move || spread(&bytes)),
                outcome => transfer.ended(outcome.map(|bytes| spread(&bytes))),
            })
        }
    }
}

/// Memory of the program, or a bounce buffer if the transfer's turn has not come when its first bytes do.
struct InTurn {
    number: u64,
    address: *mut u8,
    length: usize,
    /// Decided once, when the first bytes come: chunks come on several threads at a time, and all go the same way. Nothing in it is in place.
    bounce: OnceLock<Option<Bounce>>,
}

// SAFETY: an address of the program, which whoever expects the transfer allows any thread to write behind.
unsafe impl Send for InTurn {}
// SAFETY: as above.
unsafe impl Sync for InTurn {}

impl InTurn {
    fn is_bounced(&self) -> bool {
        matches!(self.bounce.get(), Some(Some(_)))
    }

    /// Copies what lies in the bounce buffer to where it belongs.
    ///
    /// # Safety
    /// The program's memory must be writable, and nobody may write to the bounce buffer any more.
    unsafe fn store(&self, threads: usize) {
        if let Some(Some(bounce)) = self.bounce.get() {
            // SAFETY: the buffer has as many bytes; for the rest as this function demands.
            unsafe { copiers::copy(self.address, bounce.memory(), self.length, threads) };
        }
    }
}

impl ChooseMemory for InTurn {
    fn memory(&self) -> *mut u8 {
        let bounce = self.bounce.get_or_init(|| {
            let is_next = PENDING.lock().is_next(self.number);
            delays::inject();
            (!is_next).then(|| Bounce::of(self.length))
        });
        bounce.as_ref().map_or(self.address, Bounce::memory)
    }
}

/// Waits while a program has posted so many overlapping copies that their bytes would take too much memory here, unless its own code has to
/// run before they can come.
pub fn make_room() -> Result<(), CUresult> {
    loop {
        let oldest = {
            let pending = PENDING.lock();
            if pending.held_bytes() < MOST_OVERLAPPING {
                return Ok(());
            }
            let held = || pending.owners().filter(|transfer| transfer.is_held);
            let ends_by_itself = held().all(|transfer| !transfer.is_behind_hazard);
            held().min_by_key(|transfer| transfer.number).filter(|_| ends_by_itself).cloned()
        };
        let Some(oldest) = oldest else { return Ok(()) };
        session::of(oldest.context)?.flush()?;
        // Its error is reported by the stream that it belongs to.
        let _ = oldest.wait();
    }
}

/// The server cannot send a transfer.
pub fn failed(number: u64, status: CUresult) {
    let found = PENDING.lock().owners().find(|transfer| transfer.number == number).cloned();
    if let Some(transfer) = found
        && let Ok(session) = session::of(transfer.context)
    {
        transfer.failure.store(status.0, Ordering::Release);
        // Runs the callback; only then is it certain that nothing writes to the program's memory any more.
        session.link().cancel_transfer(number);
    }
}

/// Waits for every transfer into or from this range of the program's memory, which is about to be freed.
pub fn wait_for_range(start: usize, end: usize) {
    uploads::wait_for_range(start, end);
    wait_for_writes(start, end);
}

/// Waits for every transfer into this range of the program's memory.
pub fn wait_for_writes(start: usize, end: usize) {
    if !any_pending() {
        return;
    }
    let overlapping: Vec<_> = PENDING.lock().overlapping(start..end).cloned().collect();
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
    /// Its number on the wire.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether its bytes are there, or will never be.
    pub fn is_done(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits for its bytes.
    pub fn wait(&self) -> Result<(), CUresult> {
        if !self.is_done() {
            AWAITED.fetch_add(1, Ordering::Relaxed);
            if let Ok(session) = session::of(self.context) {
                session.rouse(Awaited::Transfer);
            }
            awake::look(awake::while_waited_for(), || self.is_done());
            AWAITED.fetch_sub(1, Ordering::Relaxed);
        }
        let mut outcome = self.outcome.lock();
        loop {
            match outcome.result {
                Some(result) => return result,
                None => self.done.wait(&mut outcome),
            }
        }
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

    fn key(&self) -> (Key, usize) {
        (Key { start: self.start, number: self.number }, self.end - self.start)
    }

    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.start < range.end && range.start < self.end
    }

    /// What the program gets for `error`.
    fn status(&self, error: &TransferError) -> CUresult {
        match self.failure.load(Ordering::Acquire) {
            0 => {
                info!("a copy from the device failed: {error}");
                LOST
            }
            failure => CUresult(failure),
        }
    }

    /// Its bytes have arrived behind those of others, or instead: has them put in place in their turn.
    fn store(self: Arc<Self>, store: impl FnOnce() + Send + 'static) {
        let number = self.number;
        let store: Store = Box::new(move || {
            store();
            self.finish(Ok(()));
        });
        let now = PENDING.lock().arrived(number, store);
        now.into_iter().for_each(host_writes::later);
    }

    /// The link is done with it: its bytes are in place, or will never be.
    fn ended(&self, outcome: Result<(), TransferError>) {
        self.finish(outcome.map_err(|error| self.status(&error)));
    }

    fn finish(&self, result: Result<(), CUresult>) {
        let then = {
            let mut outcome = self.outcome.lock();
            if outcome.result.is_some() {
                return;
            }
            outcome.result = Some(result);
            self.over.store(true, Ordering::Release);
            core::mem::take(&mut outcome.then)
        };
        self.done.notify_all();
        let (key, length) = self.key();
        let next = PENDING.lock().finish(key, length);
        COUNT.fetch_sub(1, Ordering::AcqRel);
        next.into_iter().for_each(host_writes::later);
        then.into_iter().for_each(|call| call());
    }
}
