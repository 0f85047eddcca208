//! Transfers of a stream whose bytes have not arrived yet.

use crate::locks::{Mutex, rank};
use crate::model::numbers;
use crate::model::transfers::{Table, Transfer};
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
    /// Those for which the newest barrier does not stand.
    newest: Vec<Arc<Transfer>>,
    /// The newest barrier.
    barrier: Option<Barrier>,
    /// For a legacy default stream: up to which sequence number it has taken over those of blocking streams.
    pub taken_over: u64,
}

/// What stands for all transfers that lie before a copy.
#[derive(Clone, Copy, Debug)]
pub struct Barrier {
    /// Its number in the table.
    pub number: u64,
    /// The flow of the newest of them.
    pub flow: u64,
    /// The number of that one.
    newest: u64,
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
        // Looked through each time that a list has no room, and so not for every transfer.
        if self.newest.len() == self.newest.capacity() {
            self.newest.retain(|transfer| !transfer.is_done());
        }
        self.newest.push(entry.transfer.clone());
        if self.entries.len() == self.entries.capacity() {
            self.entries.retain(|entry| !entry.transfer.is_done());
        }
        self.entries.push(entry);
    }

    /// Those that lie before what is posted from now on.
    pub fn pending_writes(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.transfer.is_ahead())
    }

    /// A barrier that stands for all that lie before what is posted from now on, and for what `others` stand
    /// for; nothing if that has finished.
    pub fn barrier(&mut self, table: &mut Table, others: &[Barrier]) -> Option<Barrier> {
        let before = self.barrier.filter(|barrier| table.has_barrier(barrier.number));
        let mut behind = Vec::new();
        self.newest.retain(|transfer| {
            if transfer.is_ahead() {
                behind.push(transfer.clone());
                return false;
            }
            // One that is not posted yet lies before what is posted behind it.
            !transfer.is_done()
        });
        let newest = behind.iter().map(|transfer| (transfer.number(), transfer.flow()));
        let barriers = before.iter().chain(others);
        let newest = newest.chain(barriers.clone().map(|barrier| (barrier.newest, barrier.flow))).max();
        self.barrier = match newest {
            Some((newest, flow)) if !(behind.is_empty() && others.is_empty()) => {
                let number = numbers::fresh();
                let writes = behind.iter().map(|transfer| transfer.key());
                let is_needed = table.add_barrier(number, writes, barriers.map(|barrier| barrier.number));
                is_needed.then_some(Barrier { number, flow, newest })
            }
            _ => before,
        };
        self.barrier
    }
}
