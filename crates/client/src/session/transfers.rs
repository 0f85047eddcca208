//! Bytes on their way from a device into the program's memory.
//!
//! A copy is done for the program only when its bytes are in its memory, whichever lane they came on. So a stream
//! keeps the transfers that its copies began, an event those that lie before it, and whoever says "done" waits for them.

use super::faults::LOST;
use super::uploads;
use crate::log::info;
use crate::session;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_fabric::{Awaited, Destination, TransferError, awake};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// One device-to-host transfer.
#[derive(Debug)]
pub struct Transfer {
    number: u64,
    context: Handle<Context>,
    start: usize,
    end: usize,
    /// The error that the server reported for it, 0 while there is none.
    failure: AtomicU32,
    outcome: Mutex<Option<Result<(), CUresult>>>,
    /// Whether there is an outcome.
    over: AtomicBool,
    done: Condvar,
}

static NEXT: AtomicU64 = AtomicU64::new(1);
static PENDING: LazyLock<Mutex<HashMap<u64, Arc<Transfer>>>> = LazyLock::new(Mutex::default);
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
pub type Store = Box<dyn FnOnce(&[u8]) + Send>;

/// Where a transfer's bytes go.
pub enum Landing {
    /// Straight into memory of the program: address and length.
    Direct(*mut u8, usize),
    /// Into a buffer of this many bytes that is then given to the function, which spreads it over the program's
    /// memory from the first address to the second.
    Spread { length: usize, start: usize, end: usize, store: Store },
}

/// Prepares to receive a transfer, which `threads` threads may write; the command that makes the server send it comes after.
///
/// # Safety
/// The memory that `landing` means must be valid for writes until the transfer is done.
pub unsafe fn expect(
    context: Handle<Context>,
    landing: Landing,
    threads: usize,
) -> Result<Arc<Transfer>, CUresult> {
    let number = fresh_number();
    let (start, end) = match &landing {
        Landing::Direct(address, length) => (*address as usize, *address as usize + length),
        Landing::Spread { start, end, .. } => (*start, *end),
    };
    let transfer = Arc::new(Transfer {
        number,
        context,
        start,
        end,
        failure: AtomicU32::new(0),
        outcome: Mutex::new(None),
        over: AtomicBool::new(false),
        done: Condvar::new(),
    });
    PENDING.lock().insert(number, transfer.clone());
    COUNT.fetch_add(1, Ordering::AcqRel);
    let finished = transfer.clone();
    let destination = match landing {
        // SAFETY: valid until the transfer is done, as this function demands; it is done when the callback has run.
        Landing::Direct(address, length) => unsafe {
            Destination::raw(address, length, move |outcome| {
                finished.finish(outcome.map_err(|error| finished.status(&error)));
            })
        },
        Landing::Spread { length, store, .. } => Destination::buffer(vec![0; length], move |outcome| {
            let outcome = outcome.map(|bytes| store(&bytes));
            finished.finish(outcome.map_err(|error| finished.status(&error)));
        }),
    };
    let session = session::of(context)?;
    if session.link().expect_transfer(number, destination.with_threads(threads)).is_err() {
        transfer.finish(Err(LOST));
        return Err(LOST);
    }
    Ok(transfer)
}

/// The server cannot send a transfer.
pub fn failed(number: u64, status: CUresult) {
    let found = PENDING.lock().get(&number).cloned();
    if let Some(transfer) = found
        && let Ok(session) = session::of(transfer.context)
    {
        transfer.failure.store(status.0, Ordering::Release);
        // Runs the callback; only then is it certain that nothing writes to the program's memory any more.
        session.link().cancel_transfer(number);
    }
}

/// Every transfer of a context that is on its way.
pub fn of_context(context: Handle<Context>) -> Vec<Arc<Transfer>> {
    if !any_pending() {
        return Vec::new();
    }
    PENDING.lock().values().filter(|transfer| transfer.context == context).cloned().collect()
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
    let overlapping: Vec<_> =
        PENDING.lock().values().filter(|t| t.start < end && start < t.end).cloned().collect();
    for transfer in overlapping {
        // Its error is reported by the stream that it belongs to.
        let _ = transfer.wait();
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
            match *outcome {
                Some(result) => return result,
                None => self.done.wait(&mut outcome),
            }
        }
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

    fn finish(&self, result: Result<(), CUresult>) {
        {
            let mut outcome = self.outcome.lock();
            if outcome.is_some() {
                return;
            }
            *outcome = Some(result);
            self.over.store(true, Ordering::Release);
        }
        self.done.notify_all();
        PENDING.lock().remove(&self.number);
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}
