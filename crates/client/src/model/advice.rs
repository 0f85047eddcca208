//! Advice for managed memory (`cuMemAdvise`).
//!
//! The memory follows host and device by itself, so nothing is done with it; but the program can ask for it.

use crate::locks::{Mutex, rank};
use causeway_api::sys::CUdevice;
use core::ops::Range;
use std::collections::BTreeMap;

/// A place of memory in the terms of the calls: the number of a device, or one of the two below.
pub type Location = CUdevice;
/// `CU_DEVICE_CPU`.
pub const HOST: Location = -1;
/// `CU_DEVICE_INVALID`.
pub const NOWHERE: Location = -2;

/// What was said about a piece of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// It is read much more than written.
    pub read_mostly: bool,
    /// Where it had better be.
    pub preferred: Location,
    /// Who should have it mapped.
    pub accessed_by: Vec<Location>,
    /// Where it was last asked to go.
    pub last_prefetch: Location,
}

impl Default for Advice {
    fn default() -> Self {
        Self { read_mostly: false, preferred: NOWHERE, accessed_by: Vec::new(), last_prefetch: NOWHERE }
    }
}

/// Pieces by their first address, with their ends; where there is none, nothing was said.
#[derive(Default)]
struct Pieces(BTreeMap<u64, (u64, Advice)>);

static PIECES: Mutex<rank::MemoryAdvice, Pieces> = Mutex::new(Pieces(BTreeMap::new()));

/// Changes what was said about `range`.
pub fn change(range: Range<u64>, change: impl Fn(&mut Advice)) {
    PIECES.lock().change(range, change);
}

/// What was said about the pieces of `range`, the ones of which nothing was said included.
pub fn of(range: Range<u64>) -> Vec<Advice> {
    PIECES.lock().of(range)
}

/// Forgets what was said about memory that is freed.
pub fn forget(range: Range<u64>) {
    let mut pieces = PIECES.lock();
    pieces.split(range.start);
    pieces.split(range.end);
    pieces.0.retain(|start, _| !range.contains(start));
}

impl Pieces {
    /// Makes `at` a boundary of pieces.
    fn split(&mut self, at: u64) {
        if let Some((&start, (end, advice))) = self.0.range_mut(..at).next_back()
            && at < *end
        {
            let (rest, advice) = (*end, advice.clone());
            self.0.insert(at, (rest, advice));
            if let Some((end, _)) = self.0.get_mut(&start) {
                *end = at;
            }
        }
    }

    fn change(&mut self, range: Range<u64>, change: impl Fn(&mut Advice)) {
        self.split(range.start);
        self.split(range.end);
        let mut at = range.start;
        while at < range.end {
            let next = self.0.range(at..).next().map(|(start, (end, _))| (*start, *end));
            match next {
                Some((start, end)) if start == at => {
                    if let Some((_, advice)) = self.0.get_mut(&start) {
                        change(advice);
                    }
                    at = end;
                }
                later => {
                    let end = later.map_or(range.end, |(start, _)| start.min(range.end));
                    let mut advice = Advice::default();
                    change(&mut advice);
                    self.0.insert(at, (end, advice));
                    at = end;
                }
            }
        }
    }

    fn of(&self, range: Range<u64>) -> Vec<Advice> {
        let overlapping =
            |(start, (end, _)): &(&u64, &(u64, Advice))| **start < range.end && range.start < *end;
        let mut covered = 0;
        let mut found = Vec::new();
        for (start, (end, advice)) in self.0.iter().filter(overlapping) {
            covered += (*end).min(range.end) - (*start).max(range.start);
            found.push(advice.clone());
        }
        if covered < range.end - range.start {
            found.push(Advice::default());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_kept_by_piece() {
        let mut pieces = Pieces::default();
        pieces.change(100..200, |advice| advice.read_mostly = true);
        pieces.change(150..300, |advice| advice.preferred = 0);
        let found = |range| pieces.of(range).iter().map(|a| (a.read_mostly, a.preferred)).collect::<Vec<_>>();
        assert_eq!(found(100..150), [(true, NOWHERE)]);
        assert_eq!(found(150..200), [(true, 0)]);
        assert_eq!(found(210..220), [(false, 0)]);
        assert_eq!(found(100..400), [(true, NOWHERE), (true, 0), (false, 0), (false, NOWHERE)]);
        assert_eq!(found(0..10), [(false, NOWHERE)]);
    }
}
