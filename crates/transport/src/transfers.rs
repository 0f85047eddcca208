//! Incoming transfers: expected and in flight, and their completion callbacks.

use std::collections::HashMap;

use causeway_sync::Monitor;
use causeway_sync::fork::in_background;
use causeway_wire::chunk::{ChunkError, ChunkHeader, Spans};

use crate::destination::{ChunkAddress, Destination, OnEnd};
use crate::error::{LinkError, TransferError};
use crate::events::LinkEvents;

/// The most transfers of a peer that are kept account of.
const MAX_TRANSFERS: usize = 1 << 16;

/// What a transfer's chunks do.
enum ChunkAction {
    /// The owner is being asked.
    AwaitingOwner,
    /// They are written.
    Written(Destination),
    /// They are read and dropped.
    Dropped,
}

struct Entry {
    fate: ChunkAction,
    total: u64,
    spans: Spans,
    /// Chunks being received right now.
    in_flight: u32,
    /// Why no more chunks are to be written.
    ended: Option<TransferError>,
}

/// Where the bytes of a chunk go.
pub enum ChunkDestination {
    /// To this address.
    Memory {
        /// Where.
        to: ChunkAddress,
        /// How many threads may copy them there, where they are copied.
        threads: usize,
        /// Whether they are to lie in memory, and not in the caches of a core.
        nontemporal: bool,
    },
    /// Nowhere.
    Nowhere,
}

/// The transfers of the peer that are expected or under way, by their numbers.
#[derive(Default)]
pub struct Transfers {
    /// Waited for by lanes whose transfer's owner is being asked, and by who gives one up that is being
    /// received.
    entries: Monitor<HashMap<u64, Entry>>,
}

/// What remains to be done for a transfer once the lock is released.
struct Ending(OnEnd, Result<(), TransferError>);

impl Ending {
    fn notify(self) {
        let _work = in_background();
        (self.0)(self.1);
    }
}

/// A chunk that is in its place.
#[must_use = "somebody waits for the end of its transfer"]
pub struct ReceivedChunk {
    is_complete: bool,
    is_alone: bool,
    ending: Option<Ending>,
}

impl ReceivedChunk {
    /// Whether its transfer has ended with it and its owner must still be notified.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether no transfer is expected or under way any more.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Tells whoever waits for the transfer, if it has ended. Whether it is complete.
    pub fn notify(self) -> bool {
        if let Some(ending) = self.ending {
            ending.notify();
        }
        self.is_complete
    }
}

impl Entry {
    fn new(fate: ChunkAction, total: u64) -> Self {
        Self { fate, total, spans: Spans::default(), in_flight: 0, ended: None }
    }

    /// Takes in what the owner has answered for a transfer of so many bytes.
    fn answered(&mut self, destination: Option<Destination>, total: u64) {
        let Some(destination) = destination else {
            self.fate = ChunkAction::Dropped;
            return;
        };
        let expected = destination.length as u64;
        if expected != total {
            self.ended = Some(TransferError::WrongSize { expected, found: total });
        }
        self.fate = ChunkAction::Written(destination);
    }

    /// Claims the place of a chunk, once it is known where the transfer goes.
    fn claim(&mut self, chunk: &ChunkHeader) -> Result<ChunkDestination, LinkError> {
        if self.total != chunk.total {
            let (expected, found) = (self.total, chunk.total);
            if !matches!(self.fate, ChunkAction::Written(_)) || !self.spans.is_empty() {
                return Err(ChunkError::TotalChanged { expected, found }.into());
            }
            self.ended = Some(TransferError::WrongSize { expected, found });
            self.total = found;
        }
        self.spans.claim(chunk)?;
        self.in_flight += 1;
        Ok(match &self.fate {
            // The chunk lies inside the transfer, and the transfer is as long as the destination.
            ChunkAction::Written(Destination { start, threads, nontemporal, .. }) if self.ended.is_none() => {
                let first = chunk.offset as usize;
                let to = ChunkAddress::new(start.clone(), first..first + chunk.length as usize);
                ChunkDestination::Memory { to, threads: *threads, nontemporal: *nontemporal }
            }
            _ => ChunkDestination::Nowhere,
        })
    }

    /// Takes the destination out of an entry that has ended.
    fn end(&mut self, ended: bool) -> Option<Ending> {
        if !ended {
            return None;
        }
        match core::mem::replace(&mut self.fate, ChunkAction::Dropped) {
            ChunkAction::Written(destination) => {
                let outcome = self.ended.clone().map_or(Ok(()), Err);
                Some(Ending(destination.on_end, outcome))
            }
            ChunkAction::AwaitingOwner | ChunkAction::Dropped => None,
        }
    }
}

impl Transfers {
    /// Says where a transfer goes, before anything of it has come.
    pub fn expect(&self, transfer: u64, destination: Destination) -> Result<(), TransferError> {
        let mut entries = self.entries.lock();
        if entries.contains_key(&transfer) {
            return Err(TransferError::AlreadyInFlight(transfer));
        }
        let total = destination.length as u64;
        entries.insert(transfer, Entry::new(ChunkAction::Written(destination), total));
        Ok(())
    }

    /// Whether somebody expects the transfer, or some of it has come.
    pub fn knows(&self, transfer: u64) -> bool {
        self.entries.lock().contains_key(&transfer)
    }

    /// Claims the place of a chunk that is about to be received; [`landed`](Self::landed) must follow.
    pub fn claim(
        &self,
        chunk: &ChunkHeader,
        events: Option<&dyn LinkEvents>,
    ) -> Result<ChunkDestination, LinkError> {
        let claimed = self.entries.wait(|entries| {
            let is_full = entries.len() >= MAX_TRANSFERS;
            match entries.get_mut(&chunk.transfer) {
                Some(entry) if matches!(entry.fate, ChunkAction::AwaitingOwner) => None,
                Some(entry) => Some(Some(entry.claim(chunk))),
                None if is_full => Some(Some(Err(LinkError::TooManyTransfers(MAX_TRANSFERS)))),
                None => {
                    entries.insert(chunk.transfer, Entry::new(ChunkAction::AwaitingOwner, chunk.total));
                    Some(None)
                }
            }
        });
        if let Some(claimed) = claimed {
            return claimed;
        }
        // The owner is asked without the lock; other lanes wait above for its answer.
        let destination = events.and_then(|events| events.open_transfer(chunk.transfer, chunk.total));
        self.entries.change(|entries| {
            let Some(entry) = entries.get_mut(&chunk.transfer) else {
                unreachable!("nobody takes away an entry whose owner is being asked");
            };
            entry.answered(destination, chunk.total);
            // Before anybody else gets the lock, who could end the transfer.
            entry.claim(chunk)
        })
    }

    /// Says that a claimed chunk has been received, or why its link failed. Whether the transfer is complete.
    #[inline]
    pub fn landed(&self, chunk: &ChunkHeader, failure: Option<&LinkError>) -> bool {
        self.land(chunk, failure).notify()
    }

    /// The same, for a caller that has something to do before the waiting thread is notified.
    pub fn land(&self, chunk: &ChunkHeader, failure: Option<&LinkError>) -> ReceivedChunk {
        self.unclaim(chunk, |entry| {
            if let Some(error) = failure {
                entry.ended.get_or_insert_with(|| error.clone().into());
            }
        })
    }

    /// Says that a claimed chunk did not come whole; it may come again.
    pub fn missed(&self, chunk: &ChunkHeader) {
        self.unclaim(chunk, |entry| entry.spans.release(chunk)).notify();
    }

    fn unclaim(&self, chunk: &ChunkHeader, note: impl FnOnce(&mut Entry)) -> ReceivedChunk {
        let incomplete = ReceivedChunk { is_complete: false, is_alone: false, ending: None };
        self.entries.change(|entries| {
            let Some(entry) = entries.get_mut(&chunk.transfer) else {
                return incomplete;
            };
            entry.in_flight -= 1;
            note(entry);
            if entry.in_flight > 0 {
                return incomplete;
            }
            let is_complete =
                entry.spans.covers(entry.total) && !(entry.total == 0 && entry.spans.is_empty());
            let lost = matches!(entry.ended, Some(TransferError::Link(_)));
            // Of a transfer that has failed the remaining chunks are still to come and to be dropped.
            let ending = entry.end(is_complete || entry.ended.is_some());
            if is_complete || lost {
                entries.remove(&chunk.transfer);
            }
            ReceivedChunk { is_complete, is_alone: entries.is_empty(), ending }
        })
    }

    /// Gives a transfer up: when this returns nothing writes to its destination any more, and its end has
    /// been told, or is about to be by the thread that has received the last of it.
    pub fn cancel(&self, transfer: u64) {
        let ending = self.entries.wait(|entries| {
            let Some(entry) = entries.get_mut(&transfer) else { return Some(None) };
            if matches!(entry.fate, ChunkAction::Dropped) {
                return Some(None);
            }
            entry.ended.get_or_insert(TransferError::Cancelled);
            if entry.in_flight > 0 || matches!(entry.fate, ChunkAction::AwaitingOwner) {
                return None;
            }
            let ending = entry.end(true);
            if entry.spans.is_empty() {
                // Nothing came yet and perhaps nothing will, so nothing needs to be remembered.
                entries.remove(&transfer);
            }
            Some(ending)
        });
        if let Some(ending) = ending {
            ending.notify();
        }
    }

    /// Fails every transfer; those being received end when their lane notices.
    pub fn fail_all(&self, cause: &LinkError) {
        let mut endings = Vec::new();
        self.entries.change(|entries| {
            entries.retain(|_, entry| {
                entry.ended.get_or_insert_with(|| cause.clone().into());
                let busy = entry.in_flight > 0 || matches!(entry.fate, ChunkAction::AwaitingOwner);
                if !busy {
                    endings.extend(entry.end(true));
                }
                busy
            });
        });
        endings.into_iter().for_each(Ending::notify);
    }
}
