//! Which mailboxes have two ranks of one host for the words of their collective calls?

use std::sync::Arc;

use super::state::{World, lock};
use crate::transfer::mailbox::{MAILBOXES, MAX_BYTES, Side, Taken};
use crate::transfer::words::Words;

/// The mailboxes between this rank and a peer.
#[derive(Debug)]
pub struct Mailboxes {
    own: Arc<Words>,
    theirs: Arc<Words>,
}

impl Mailboxes {
    /// How many there are.
    pub const COUNT: u16 = MAILBOXES;

    /// The most bytes of one exchange.
    pub const MAX_BYTES: usize = MAX_BYTES;

    /// Gives the peer at most [`MAX_BYTES`](Self::MOST_BYTES) for an exchange.
    pub fn post(&self, mailbox: u16, exchange: u64, words: &[u8]) {
        Side::of(self.own.mailboxes(), mailbox, exchange).post(exchange, words);
    }

    /// Whether the peer has given something for an exchange.
    pub fn has(&self, mailbox: u16, exchange: u64) -> bool {
        Side::of(self.theirs.mailboxes(), mailbox, exchange).has(exchange)
    }

    /// Takes what the peer gives for an exchange: whether it is there, or how many bytes it has given instead.
    ///
    /// # Errors
    /// The length that the peer gave, where it is another one.
    pub fn take(&self, mailbox: u16, exchange: u64, words: &mut [u8]) -> Result<bool, u64> {
        match Side::of(self.theirs.mailboxes(), mailbox, exchange).take(exchange, words) {
            Taken::NotYet => Ok(false),
            Taken::Here => Ok(true),
            Taken::OtherLength(bytes) => Err(bytes),
        }
    }
}

impl World {
    /// The mailboxes of a peer of this host; none where the two share no memory. To be asked when the peer has
    /// reached this rank, too: its connection may come in a moment.
    pub fn mailboxes(&self, peer: u32) -> Option<Mailboxes> {
        if !self.is_near(peer) {
            return None;
        }
        let own = self.shared.offers.words(peer)?;
        let fetcher = self.fetcher(peer).ok()?;
        let theirs = lock(&fetcher).words().ok()??;
        Some(Mailboxes { own, theirs })
    }
}
