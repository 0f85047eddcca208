//! Makes a failing program small: by taking operations away for as long as what is left is in order and still fails.

use crate::order::Order;
use crate::program::Program;

/// Finds a small part of a program that fails: the places of the operations that are left.
///
/// `fails` runs a program, as often as it takes to be sure, and says whether it failed. `goes_on` says whether there is
/// time to try more.
pub fn reduce(
    program: &Program,
    start: Vec<usize>,
    mut fails: impl FnMut(&[usize]) -> bool,
    mut goes_on: impl FnMut() -> bool,
) -> Vec<usize> {
    let mut kept = start;
    let mut chunk = kept.len().div_ceil(2).max(1);
    loop {
        let mut has_shrunk = false;
        // From the end: later operations need earlier ones, not the other way round.
        let mut end = kept.len();
        while end > 0 && goes_on() {
            let from = end.saturating_sub(chunk);
            let mut candidate = kept.clone();
            candidate.drain(from..end);
            if let Some(candidate) = repair(program, candidate)
                && fails(&candidate)
            {
                kept = candidate;
                has_shrunk = true;
                end = from.min(kept.len());
            } else {
                end = from;
            }
        }
        if !goes_on() || (chunk == 1 && !has_shrunk) {
            return kept;
        }
        if !has_shrunk {
            chunk = (chunk / 2).max(1);
        } else {
            chunk = chunk.min(kept.len().max(1));
        }
    }
}

/// Takes away what makes no sense any more, or is no longer in order, without operations that went.
fn repair(program: &Program, mut kept: Vec<usize>) -> Option<Vec<usize>> {
    loop {
        match Order::of(&program.keep(&kept)) {
            Ok(_) => return Some(kept),
            Err((op, _)) if op < kept.len() => drop(kept.remove(op)),
            // A stream stands still at the end.
            Err(_) => return None,
        }
    }
}
