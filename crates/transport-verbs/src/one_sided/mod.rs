//! How do bytes move where cards know the memory at both ends?
//!
//! *To the peer's owner*, memory that is registered needs no copy into staging: it is written to the peer's
//! arena from where it is, or offered to the peer, which reads it into its arena
//! ([`Preference`](super::settings::Preference) decides). *For one copy* memory can be lent: to be written by
//! the peer, which then says that a transfer is in place, or to be read by the peer, which then gives it
//! back. Whoever lends memory keeps it until then.
//!
//! An operation whose link ends fails; what was lent is not in use any more then, since the queue pairs have
//! ended.
//!
//! Here is what all of these have in common: bytes that move over all queue pairs, and what follows when they
//! have.
//!
//! | Module         | Question it answers                                                          |
//! |----------------|------------------------------------------------------------------------------|
//! | `registration` | How does memory come to be known to the card?                                |
//! | `to_arena`     | How does a piece get into the arena of whoever receives it?                  |
//! | `lending`      | Which memory is lent to the peer, and what keeps it until it is given back?  |
//! | `borrowing`    | How is memory used that the peer has lent?                                   |
//! | `offered`      | What of this is offered to the link?                                         |

mod borrowing;
mod lending;
mod offered;
mod registration;
mod to_arena;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_ibverbs::{MemoryRegion, RemoteMemory, Segment};
use causeway_wire::chunk::ChunkHeader;

pub(super) use lending::Lendings;

use super::come::Found;
use super::operation::{Operation, Then};
use super::parts::{order, requests, split};
use super::path::{MOST_CARRIED, Part, Said, Work};
use super::state::State;
use causeway_sync::delays;
use causeway_transport::slots::SLOT;
use causeway_transport::{LinkError, RegionSlice, Shared, count};

/// Longer transfers of registered memory go in pieces of this many bytes, so that the peer can go on with the
/// first.
const LONG_STEP: usize = 4 << 20;

/// Bytes of a region, by the address of the first one.
fn slice_of(region: &MemoryRegion, address: u64, length: usize) -> RegionSlice {
    RegionSlice { address, key: region.local_key(), length }
}

impl Work {
    /// The same for what lies `offset` bytes behind.
    fn at(self, offset: usize) -> Self {
        let behind = |RemoteMemory { address, key }| RemoteMemory {
            address: address.wrapping_add(offset as u64),
            key,
        };
        match self {
            Self::Write(to) => Self::Write(behind(to)),
            Self::Read(from) => Self::Read(behind(from)),
            Self::None => Self::None,
        }
    }
}

/// Ends an operation when nothing holds it any more.
struct Ends(Arc<Operation>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.done();
    }
}

impl State {
    /// Moves bytes over all queue pairs. `said` is what the peer is told behind the last request of each of
    /// so many parts; `then` follows when all bytes have been moved.
    fn carry(
        &self,
        stretch: RegionSlice,
        work: Work,
        said: impl Fn(u32) -> Option<Said>,
        then: Option<Then>,
    ) {
        let RegionSlice { address, key, length } = stretch;
        let order = if length <= MOST_CARRIED && then.is_none() {
            // They go with their announcement, as a message of the first path.
            vec![0]
        } else {
            let backlogs: Vec<usize> = self.paths.iter().map(|path| path.backlog()).collect();
            order(&backlogs, self.turn.fetch_add(1, Ordering::Relaxed))
        };
        let parts: Vec<_> = split(length, self.paths.len()).collect();
        let all: usize = parts.iter().map(|(offset, part)| requests(*offset, *part).len()).sum();
        // Without bytes no request is posted whose end could be seen.
        let (then, at_once) = if length > 0 { (then, None) } else { (None, then) };
        let operation = then.map(|then| Operation::new(all as u32, then));
        for ((offset, part), path) in parts.iter().zip(order) {
            for (offset, length, is_last) in requests(*offset, *part) {
                self.paths[path].enqueue(Part {
                    segment: Segment { address: address + offset as u64, length: length as u32, key },
                    work: work.at(offset),
                    said: if is_last { said(parts.len() as u32) } else { None },
                    operation: operation.clone(),
                });
            }
        }
        if self.is_over() {
            self.abandon();
        }
        self.pump();
        if let Some(then) = at_once {
            then(Ok(()));
        }
    }

    /// Ends every operation, and lets go of all that is lent to the peer: the link has ended.
    pub(super) fn abandon(&self) {
        let cause = self.cause();
        for path in &self.paths {
            path.abandon().iter().for_each(|operation| operation.fail(&cause));
        }
        let keepers = core::mem::take(&mut self.lendings.lock().kept);
        drop(keepers);
    }

    /// Deals with what a look has found.
    pub(super) fn follow(&self, found: Found) {
        delays::inject();
        drop(found.keepers);
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

    /// A slot of this side's staging memory.
    pub(super) fn slot(&self, first: u32, length: usize) -> RegionSlice {
        let region = self.staging.region();
        slice_of(region, region.address() + first as u64 * SLOT as u64, length)
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
