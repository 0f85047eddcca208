//! Order of device-to-host copies: the unfinished transfers before a copy.

use super::barrier;
use crate::model::stream::StreamState;
use crate::model::stream::held::Barrier;
use crate::model::transfers::{self, Carrier, Expected};
use core::ops::Range;

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
    let of_copy = || if transfers::any_pending() { barrier::of_stream(stream) } else { None };
    let barrier = *order.0.get_or_insert_with(of_copy);
    let pending = transfers::TRANSFERS.pending.lock();
    let barrier = barrier.filter(|barrier| pending.has_barrier(barrier.number));
    let flow = barrier.map_or(stream.handle.value(), |barrier| barrier.flow);
    transfers::enter(pending, carrier, flow, barrier.map(|barrier| barrier.number), range)
}
