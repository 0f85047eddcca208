//! Barrier: one entry that stands for all transfers before a stream's next command.

use super::state;
use crate::locks::{Mutex, rank};
use crate::model::stream::StreamState;
use crate::model::stream::held::{Barrier, Transfers};
use crate::model::transfers::TRANSFERS;

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
