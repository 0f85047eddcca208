//! Makes a failing program small: by taking operations away for as long as what is left is in order and still
//! fails.

use crate::order::HappensBefore;
use crate::program::Program;

/// Finds a small part of a program that fails: the places of the operations that are left.
///
/// `fails` runs a program, as often as it takes to be sure, and says whether it failed. `goes_on` says
/// whether there is time to try more.
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
        match HappensBefore::of(&program.keep(&kept)) {
            Ok(_) => return Some(kept),
            Err((op, _)) if op < kept.len() => drop(kept.remove(op)),
            // A stream stands still at the end.
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reduce;
    use crate::generate::{Profile, Setting, generate};
    use crate::order::HappensBefore;
    use crate::program::{Call, Program, Work};

    fn program() -> Program {
        let setting = Setting {
            devices: 1,
            managed: true,
            pools: true,
            values: true,
            uploads_wait: true,
            host_order: true,
            host_sources: true,
            profile: Profile::Small,
        };
        let is_long = |program: &Program| program.kind == "host-functions" && program.ops.len() > 40;
        (0..).map(|seed| generate(seed, &setting)).find(is_long).expect("there is one")
    }

    fn is_planted(call: &Call) -> bool {
        matches!(call, Call::Enqueue { work: Work::HostWrite { .. }, .. })
    }

    #[test]
    fn what_does_not_matter_goes() {
        let program = program();
        let planted: Vec<usize> =
            (0..program.ops.len()).filter(|&op| is_planted(&program.ops[op].call)).collect();
        let (first, last) = (planted[0], planted[planted.len() - 1]);
        let fails = |kept: &[usize]| {
            assert!(HappensBefore::of(&program.keep(kept)).is_ok(), "only programs without races are tried");
            kept.contains(&first) && kept.contains(&last)
        };
        let kept = reduce(&program, (0..program.ops.len()).collect(), fails, || true);
        // Both, and what puts them in order if their streams are two.
        assert!(kept.contains(&first) && kept.contains(&last) && kept.len() <= 6, "{}", program.keep(&kept));
    }

    #[test]
    fn nothing_goes_when_there_is_no_time() {
        let program = program();
        let everything: Vec<usize> = (0..program.ops.len()).collect();
        assert_eq!(reduce(&program, everything.clone(), |_| true, || false), everything);
    }
}
