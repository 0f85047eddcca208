//! Pending writes before a point of a stream to the program's memory.
//!
//! A stream keeps the copies from devices whose bytes are not there yet: those that it began, and those of
//! other streams that lie before what it waits for. The legacy default stream of a context is in order with
//! all blocking ones, and by way of it these are with each other: its newest command comes after what they
//! held when it was posted, and before all that they get afterwards. Sequence numbers say what was before it.
//!
//! A barrier is one entry that stands for all transfers before a stream's next command; a copy to the host
//! begins after the unfinished transfers before it.

use core::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_api::handle::{Handle, Stream};
use causeway_api::sys::CUresult;

use crate::locks::{Mutex, rank};
use crate::model::context::{ContextState, state};
use crate::model::stream::{self, Barrier, Entry, StreamState, Transfers};
use crate::model::transfers::{self, Carrier, Expected, TRANSFERS, Transfer};
use crate::model::{completion, handles};

/// What lies before a point of a stream, as far as the program's memory is concerned.
#[derive(Clone, Default)]
pub struct PendingWrites {
    /// Copies from the device whose bytes are not there yet.
    pub transfers: Vec<Arc<Transfer>>,
    /// Whether the program's own code may run before the point is reached: a host function, or whatever
    /// another thread does before it lets a wait-value end.
    pub hazard: bool,
}

impl PendingWrites {
    fn take_in(&mut self, held: &Mutex<rank::StreamTransfers, Transfers>) {
        self.transfers.extend(held.lock().pending_writes().map(|entry| entry.transfer.clone()));
    }

    /// Waits until the bytes of every copy are there.
    pub fn wait(&self) -> Result<(), CUresult> {
        self.transfers.iter().try_for_each(|transfer| transfer.wait())
    }

    /// The same, even if some fail: the first error.
    pub fn wait_all(&self) -> Result<(), CUresult> {
        let mut outcome = Ok(());
        for transfer in &self.transfers {
            outcome = outcome.and(transfer.wait());
        }
        outcome
    }

    /// Whether the bytes of every copy are there.
    pub fn is_done(&self) -> bool {
        self.transfers.iter().all(|transfer| transfer.is_done())
    }

    /// Whether memory of the program may still change before the point is reached.
    pub fn is_unsettled(&self) -> bool {
        self.hazard || !self.is_done()
    }
}

/// Whether any stream ever had a hazard, so that programs without pay one load.
static ANY_HAZARD: AtomicBool = AtomicBool::new(false);

impl StreamState {
    /// Notes a copy from the device whose command is about to be posted.
    pub fn add_transfer(&self, transfer: Arc<Transfer>) {
        self.transfers.lock().add(Entry { transfer, inherited: None });
    }

    /// Notes that the calling thread's newest command, which is in this stream, lets the program's own code
    /// run before later work.
    pub fn add_hazard(&self) {
        ANY_HAZARD.store(true, Ordering::Release);
        self.hazard.fetch_max(completion::of_thread(), Ordering::AcqRel);
    }

    /// Whether the program's own code may have to run before the stream's end is reached.
    fn has_hazard(&self) -> bool {
        let newest = self.hazard.load(Ordering::Acquire);
        newest != 0 && !self.has_done(newest)
    }

    /// Makes what lies before an event, for which the calling thread's newest command waits, lie before this
    /// stream's later work too.
    pub fn inherit(&self, pending: &PendingWrites) {
        if !pending.is_done() {
            let mut transfers = self.transfers.lock();
            // Read under the lock: a look by `take_over_blocking` that has not found these was for an older
            // sequence number.
            let newest = completion::sequence_numbers(self.context.server()).newest();
            let inherited = Some(newest + 1);
            for transfer in pending.transfers.iter().filter(|transfer| !transfer.is_done()) {
                transfers.add(Entry { transfer: transfer.clone(), inherited });
            }
        }
        if pending.hazard {
            self.add_hazard();
        }
    }

    /// What lies before the stream's end now. For a blocking stream that includes the legacy default stream
    /// and what lay before its newest command, and for that one all blocking streams.
    pub fn pending_writes(&self) -> PendingWrites {
        let mut pending = PendingWrites::default();
        if !transfers::any_pending() && !ANY_HAZARD.load(Ordering::Acquire) {
            return pending;
        }
        if self.is_legacy() {
            // In this order: a stream that is destroyed meanwhile leaves behind what it holds before it is
            // out of sight.
            self.others_in_order().iter().for_each(|(_, stream)| stream.add_own(&mut pending));
            pending.take_in(&self.left_behind.in_order);
        } else if self.is_blocking()
            && let Ok(context) = state(self.context)
        {
            context.legacy_stream.take_over_blocking();
            context.legacy_stream.add_own(&mut pending);
        }
        self.add_own(&mut pending);
        pending
    }

    /// For a legacy default stream: the streams that it is in order with.
    pub(super) fn others_in_order(&self) -> Vec<(Handle<Stream>, Arc<Self>)> {
        stream::select(|stream| stream.context == self.context && stream.is_blocking())
    }

    /// For a legacy default stream: what blocking streams held when its newest command came lies before all
    /// that blocking streams get afterwards.
    pub(super) fn take_over_blocking(&self) {
        let newest = handles::last_legacy_sequence(self.context);
        if newest <= self.transfers.lock().taken_over {
            return;
        }
        for (_, stream) in self.others_in_order() {
            self.take_over(&stream.transfers, newest);
            if stream.has_hazard() {
                self.hazard.fetch_max(stream.hazard.load(Ordering::Acquire), Ordering::AcqRel);
            }
        }
        self.take_over(&self.left_behind.in_order, newest);
        let mut transfers = self.transfers.lock();
        transfers.taken_over = transfers.taken_over.max(newest);
    }

    /// Takes over what a stream holds up to a sequence number, unless that was done before.
    fn take_over(&self, held: &Mutex<rank::StreamTransfers, Transfers>, newest: u64) {
        // One lock at a time: what two threads take over at once is there twice, which does no harm.
        let held: Vec<_> =
            held.lock().pending_writes().filter(|entry| entry.is_before(newest)).cloned().collect();
        let mut transfers = self.transfers.lock();
        for entry in held {
            let sequence = entry.sequence();
            if sequence > transfers.taken_over {
                transfers.add(Entry { inherited: Some(sequence), ..entry });
            }
        }
    }

    /// The stream is about to be destroyed. What it holds stays in order with the legacy default stream, if
    /// it is.
    pub fn leave_behind(&self) -> Result<(), CUresult> {
        let newest = self.newest();
        let is_done = self.has_done(newest);
        if is_done && !transfers::any_pending() {
            return Ok(());
        }
        let context = state(self.context)?;
        let legacy = &context.legacy_stream;
        let left_behind = if self.is_blocking() {
            &legacy.left_behind.in_order
        } else {
            if !is_done {
                context.leave_behind(newest);
            }
            &legacy.left_behind.apart
        };
        let held: Vec<_> = self.transfers.lock().pending_writes().cloned().collect();
        let mut left_behind = left_behind.lock();
        held.into_iter().for_each(|entry| left_behind.add(entry));
        drop(left_behind);
        if self.is_blocking() && self.has_hazard() {
            legacy.hazard.fetch_max(self.hazard.load(Ordering::Acquire), Ordering::AcqRel);
        }
        Ok(())
    }

    fn add_own(&self, pending: &mut PendingWrites) {
        pending.take_in(&self.transfers);
        pending.hazard |= self.has_hazard();
    }
}

/// The copies that lie before the end of any stream of a context and whose bytes are not there yet, those of
/// other contexts among them that its streams wait for.
pub fn pending_writes_of_all(context: &ContextState) -> PendingWrites {
    let mut pending = PendingWrites::default();
    if transfers::any_pending() {
        let streams = stream::select(|stream| stream.context == context.handle);
        streams.iter().for_each(|(_, stream)| pending.take_in(&stream.transfers));
        let legacy = &context.legacy_stream;
        for held in [&legacy.transfers, &legacy.left_behind.in_order, &legacy.left_behind.apart] {
            pending.take_in(held);
        }
    }
    pending
}

/// A barrier that stands for all transfers that lie before the next command of a stream, those of streams
/// that it is in order with among them; nothing if there are none.
pub fn of_stream(stream: &StreamState) -> Option<Barrier> {
    if stream.is_legacy() {
        let streams = stream.others_in_order();
        let others = streams.iter().map(|(_, other)| &other.transfers);
        return behind(stream, others.chain([&stream.left_behind.in_order]));
    }
    if stream.is_blocking()
        && let Ok(context) = state(stream.context)
    {
        context.legacy_stream.take_over_blocking();
        return behind(stream, [&context.legacy_stream.transfers]);
    }
    behind(stream, [])
}

fn behind<'a>(
    stream: &StreamState,
    others: impl IntoIterator<Item = &'a Mutex<rank::StreamTransfers, Transfers>>,
) -> Option<Barrier> {
    let mut table = TRANSFERS.pending.lock();
    let others: Vec<_> = others.into_iter().filter_map(|held| held.lock().barrier(&mut table, &[])).collect();
    stream.transfers.lock().barrier(&mut table, &others)
}

/// Behind what the pieces of one copy come: the first one decides.
#[derive(Default)]
pub struct CopyOrder(Option<Option<Barrier>>);

/// Takes a transfer into `range` into the table, for a piece of a copy at the end of `stream`, behind all
/// that lies before the copy.
pub fn begin(
    stream: &StreamState,
    carrier: &'static dyn Carrier,
    order: &mut CopyOrder,
    range: Range<usize>,
) -> Expected {
    let of_copy = || if transfers::any_pending() { of_stream(stream) } else { None };
    let barrier = *order.0.get_or_insert_with(of_copy);
    let pending = TRANSFERS.pending.lock();
    let barrier = barrier.filter(|barrier| pending.has_barrier(barrier.number));
    let flow = barrier.map_or(stream.handle.value(), |barrier| barrier.flow);
    transfers::enter(pending, carrier, flow, barrier.map(|barrier| barrier.number), range)
}
