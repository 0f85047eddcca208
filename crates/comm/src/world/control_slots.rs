//! Control slots of this rank and a peer.

use std::sync::Arc;

use super::state::{World, lock};
use crate::transfer::control_slot::{CONTROL_SLOTS, MAX_BYTES, Side, Taken};
use crate::transfer::state_words::StateWords;

/// The mailboxes between this rank and a peer.
#[derive(Debug)]
pub struct ControlSlots {
    own: Arc<StateWords>,
    theirs: Arc<StateWords>,
}

impl ControlSlots {
    /// How many there are.
    pub const COUNT: u16 = CONTROL_SLOTS;

    /// The most bytes of one exchange.
    pub const MAX_BYTES: usize = MAX_BYTES;

    /// Gives the peer at most [`MAX_BYTES`](Self::MAX_BYTES) for an exchange.
    pub fn post(&self, control_slot: u16, exchange: u64, message: &[u8]) {
        Side::of(self.own.control_slots(), control_slot, exchange).post(exchange, message);
    }

    /// Whether the peer has given something for an exchange.
    pub fn has(&self, control_slot: u16, exchange: u64) -> bool {
        Side::of(self.theirs.control_slots(), control_slot, exchange).has(exchange)
    }

    /// Takes what the peer gives for an exchange: whether it is there, or how many bytes it has given instead.
    ///
    /// # Errors
    /// The length that the peer gave, where it is another one.
    pub fn take(&self, control_slot: u16, exchange: u64, message: &mut [u8]) -> Result<bool, u64> {
        match Side::of(self.theirs.control_slots(), control_slot, exchange).take(exchange, message) {
            Taken::NotYet => Ok(false),
            Taken::Here => Ok(true),
            Taken::OtherLength(bytes) => Err(bytes),
        }
    }
}

impl World {
    /// The mailboxes of a peer of this host; none where the two share no memory. To be asked when the peer has
    /// reached this rank, too: its connection may come in a moment.
    pub fn control_slots(&self, peer: u32) -> Option<ControlSlots> {
        if !self.is_local(peer) {
            return None;
        }
        let own = self.shared.offers.state_words(peer)?;
        let fetcher = self.fetcher(peer).ok()?;
        let theirs = lock(&fetcher).state_words().ok()??;
        Some(ControlSlots { own, theirs })
    }
}
