//! Which copies whose bytes are not there yet does a stream hold?

use crate::locks::{Mutex, rank};
use crate::model::transfers::Transfer;
use std::sync::Arc;

/// What streams of a context held when they were destroyed.
#[derive(Default)]
pub struct OrphanedWrites {
    /// Blocking ones, which the legacy default stream is in order with.
    pub in_order: Mutex<rank::StreamTransfers, Transfers>,
    /// Non-blocking ones.
    pub apart: Mutex<rank::StreamTransfers, Transfers>,
}

/// Unfinished transfers of a stream.
#[derive(Default)]
pub struct Transfers {
    entries: Vec<Entry>,
    /// For a legacy default stream: up to which sequence number it has taken over those of blocking streams.
    pub taken_over: u64,
}

/// A transfer, as a stream holds it.
#[derive(Clone)]
pub struct Entry {
    /// The transfer.
    pub transfer: Arc<Transfer>,
    /// For a transfer of another stream: a sequence number that is newer than what makes it lie before this
    /// one's work.
    pub inherited: Option<u64>,
}

impl Entry {
    /// Whether the command lies before the command with this sequence number.
    pub fn is_before(&self, sequence: u64) -> bool {
        self.sequence() <= sequence
    }

    /// The newest sequence number of what makes it lie before the stream's work.
    pub fn sequence(&self) -> u64 {
        self.inherited.unwrap_or_else(|| self.transfer.sequence())
    }
}

impl Transfers {
    /// Notes one.
    pub fn add(&mut self, entry: Entry) {
        // Looked through each time that the list has no room, and so not for every transfer.
        if self.entries.len() == self.entries.capacity() {
            self.entries.retain(|entry| !entry.transfer.is_done());
        }
        self.entries.push(entry);
    }

    /// Those that lie before what is posted from now on.
    pub fn pending_writes(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.transfer.is_ahead())
    }
}
