//! Handling of polled completions.

use std::sync::Arc;

use causeway_sync::delays;
use causeway_transport::slots::SLOT;
use causeway_transport::staging::Lease;
use causeway_transport::{LinkError, OnComplete, Shared, count};
use causeway_wire::chunk::ChunkHeader;

use crate::carry::slice_of;
use crate::message::{Announcement, Offer, Released};
use crate::path::Work;
use crate::receive_completion::Found;
use crate::state::State;

impl State {
    /// Deals with what a poll has found.
    pub fn follow(&self, found: Found) {
        delays::inject();
        drop(found.guards);
        found.operations.iter().for_each(|operation| operation.done());
        for (chunk, lease) in found.pieces {
            if let Err(error) = self.hand_over(chunk, lease) {
                self.fail(error);
            }
        }
        found.offers.into_iter().for_each(|(offer, lease)| self.fetch(&offer, lease));
        if found.placed.is_empty() && found.direct_bytes == 0 {
            return;
        }
        let Some(link) = self.link() else { return };
        count(&link.counters().direct_bytes_sent, found.direct_bytes as usize);
        for (chunk, is_direct) in found.placed {
            if let Err(error) = placed(&link, &chunk, is_direct) {
                self.fail(error);
            }
        }
    }

    /// Reads an offer of the peer into the slots that it names.
    fn fetch(&self, offer: &Offer, lease: Lease) {
        let Offer { announcement: Announcement { chunk, first, .. }, from } = *offer;
        let region = self.arena.region();
        let address = region.address() + first as u64 * SLOT as u64;
        let into = slice_of(region, address, chunk.length as usize);
        let state = self.myself();
        let then: OnComplete = Box::new(move |outcome| {
            if outcome.is_err() {
                return;
            }
            state.send_released(Released::Region { number: first, is_direct: false });
            if let Err(error) = state.hand_over(chunk, lease) {
                state.fail(error);
            }
        });
        self.carry(into, Work::Read(from), |_| None, Some(then));
    }
}

/// A transfer lies where it belongs. One that nobody waits for any more is of no interest.
fn placed(link: &Arc<Shared>, chunk: &ChunkHeader, is_direct: bool) -> Result<(), LinkError> {
    if !link.transfers().knows(chunk.transfer) {
        return Ok(());
    }
    link.transfers().claim(chunk, None)?;
    let length = chunk.length as usize;
    count(&link.counters().transfer_bytes_received, length);
    let counters = link.counters();
    count(
        if is_direct { &counters.direct_bytes_received } else { &counters.registered_bytes_received },
        length,
    );
    link.transfers().landed(chunk, None);
    Ok(())
}
