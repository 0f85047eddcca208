//! What writes to a range of the program's memory before a stream's end?

use super::pending_writes::PendingWrites;
use crate::model::stream::StreamState;
use crate::model::transfers::{self, Carrier, Expected, Transfer};
use core::ops::Range;
use std::sync::Arc;

/// Unfinished transfers into a range of memory that lie before a stream's end, and whether the program's own
/// code may have to run before that is reached.
#[derive(Default)]
pub struct Before {
    transfers: Vec<Arc<Transfer>>,
    is_behind_hazard: bool,
}

impl Before {
    /// What lies before the next command of `stream` and writes to `range`.
    pub fn of(stream: &StreamState, range: &Range<usize>) -> Self {
        if transfers::any_into(range) { Self::among(stream, range) } else { Self::default() }
    }

    /// The same, where there is something that writes to `range`.
    fn among(stream: &StreamState, range: &Range<usize>) -> Self {
        let PendingWrites { mut transfers, hazard } = stream.pending_writes();
        transfers.retain(|transfer| transfer.overlaps(range));
        Self { transfers, is_behind_hazard: hazard }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// Waits until the bytes of all are in place. The error of one is reported by the stream that it belongs
    /// to.
    pub fn wait(&self) {
        for transfer in &self.transfers {
            let _ = transfer.wait();
        }
    }
}

/// Takes a transfer into `range` into the table, for a copy at the end of `stream`, behind those that lie
/// before it.
pub fn begin(stream: &StreamState, carrier: &'static dyn Carrier, range: Range<usize>) -> Expected {
    let mut pending = transfers::TRANSFERS.pending.lock();
    let mut before = Before::default();
    if pending.overlapping(range.clone()).next().is_some() {
        drop(pending);
        before = Before::among(stream, &range);
        pending = transfers::TRANSFERS.pending.lock();
    }
    let newest = before.transfers.iter().max_by_key(|transfer| transfer.number());
    let flow = newest.map_or(stream.handle.value(), |newest| newest.flow());
    transfers::enter(pending, carrier, flow, &before.transfers, before.is_behind_hazard, range)
}
