//! One pass over the boards of a host.

use std::collections::BTreeMap;
use std::io;

use super::medium::{Medium, MediumKind};
use super::slot::{Layout, MARKS_AT, Mark, SLOT_BYTES, Slot, SlotError};

/// Marks that are read at a time.
const STEP: usize = 64 << 10;

/// How often a slot is read that seems to be rewritten.
const ATTEMPTS: usize = 3;

/// A rank of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it says of itself.
    pub slot: Slot,
    /// The media in which it was met.
    pub media: Vec<MediumKind>,
}

/// Why a rank that has a mark is not counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Its process has ended.
    #[error("its process has ended")]
    Dead,
    /// Its slot makes no sense.
    #[error("its slot is invalid: {0}")]
    Slot(#[from] SlotError),
    /// Its mark says another epoch than its board.
    #[error("its slot is of epoch {0}")]
    Epoch(u32),
    /// Another board says otherwise.
    #[error("two boards have different slots of it")]
    Contradiction,
    /// The board cannot be read there.
    #[error("the board cannot be read: {0}")]
    Unreadable(String),
}

/// A rank that has a mark and is not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disbelieved {
    /// The rank.
    pub rank: u32,
    /// The board.
    pub medium: MediumKind,
    /// Why not.
    pub why: Why,
}

/// The ranks of a host in the order of their numbers, as they were when the boards were read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scan {
    /// Those that live. Their number is the local count.
    pub ranks: Vec<Seen>,
    /// Those that do not count.
    pub disbelieved: Vec<Disbelieved>,
}

impl Scan {
    /// How many ranks are on this host.
    pub fn local_count(&self) -> usize {
        self.ranks.len()
    }

    /// A rank's place among those of this host, if it is here.
    pub fn local_order(&self, rank: u32) -> Option<usize> {
        self.ranks.binary_search_by_key(&rank, |seen| seen.slot.rank).ok()
    }

    /// A rank, if it is on this host.
    pub fn get(&self, rank: u32) -> Option<&Seen> {
        self.ranks.get(self.local_order(rank)?)
    }
}

/// Reads all boards. This rank itself needs no proof: a lock does not stand in the way of who holds it.
pub(super) fn scan(media: &[Box<dyn Medium>], layout: Layout, tag: u64, own: &Slot) -> Scan {
    let itself = Seen { slot: own.clone(), media: media.iter().map(|medium| medium.kind()).collect() };
    let mut ranks = BTreeMap::from([(own.rank, itself)]);
    let mut disbelieved = Vec::new();
    for medium in media {
        let mut doubt = |rank, why| disbelieved.push(Disbelieved { rank, medium: medium.kind(), why });
        let marked = match marked(&**medium, layout) {
            Ok(marked) => marked,
            Err(error) => {
                doubt(0, Why::Unreadable(error.to_string()));
                continue;
            }
        };
        for rank in marked.into_iter().filter(|rank| *rank != own.rank) {
            match believed(&**medium, layout, rank, tag, own.epoch) {
                Ok(slot) => match ranks.get_mut(&rank) {
                    None => {
                        ranks.insert(rank, Seen { slot, media: vec![medium.kind()] });
                    }
                    Some(seen) if seen.slot == slot => seen.media.push(medium.kind()),
                    Some(_) => doubt(rank, Why::Contradiction),
                },
                Err(why) => doubt(rank, why),
            }
        }
    }
    Scan { ranks: ranks.into_values().collect(), disbelieved }
}

/// The ranks that have a mark.
fn marked(medium: &dyn Medium, layout: Layout) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut marks = vec![0; STEP.min(layout.ranks as usize)];
    let mut first = 0;
    while first < layout.ranks {
        let count = (layout.ranks - first).min(STEP as u32);
        let part = &mut marks[..count as usize];
        medium.read(MARKS_AT + u64::from(first), part)?;
        let here = (first..).zip(part.iter()).filter(|(_, mark)| Mark(**mark) != Mark::ABSENT);
        found.extend(here.map(|(rank, _)| rank));
        first += count;
    }
    Ok(found)
}

/// What a rank says that has a mark, if it lives.
fn believed(medium: &dyn Medium, layout: Layout, rank: u32, tag: u64, epoch: u32) -> Result<Slot, Why> {
    let unreadable = |error: io::Error| Why::Unreadable(error.to_string());
    let mut bytes = [0; SLOT_BYTES];
    let mut outcome = Err(SlotError::Sum);
    for _ in 0..ATTEMPTS {
        medium.read(layout.slot(rank), &mut bytes).map_err(unreadable)?;
        outcome = Slot::decode(&bytes, rank, tag);
        if outcome != Err(SlotError::Sum) {
            break;
        }
        std::thread::yield_now();
    }
    let slot = outcome?;
    if slot.epoch != epoch {
        return Err(Why::Epoch(slot.epoch));
    }
    if medium.lives(rank, slot.segment).map_err(unreadable)? { Ok(slot) } else { Err(Why::Dead) }
}
