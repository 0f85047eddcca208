//! Schedule: repetitions, and the order of cases.
//!
//! Machines are shared and their speed changes from minute to minute. So repetition `i` of a case is measured
//! on each target before repetition `i + 1` on any, each repetition begins with another target, and each
//! target comes as often right behind any other: the threads of a session are awake still when it was just
//! measured with other plans, and asleep behind another's.

use core::time::Duration;

use crate::case::Case;
use crate::prng::Random;

/// Copies up to this size get all their repetitions; larger ones as many as the time for a case allows.
pub const ALL_REPETITIONS_UP_TO: u64 = 32 << 20;

/// What large cases get at least, so that a median and a spread mean something.
pub const MIN_REPETITIONS: u32 = 5;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Repetitions of each case on each target.
    pub repetitions: u32,
    /// How long a target may take for a case of more than [`ALL_REPETITIONS_UP_TO`] bytes.
    pub budget: Duration,
}

impl Plan {
    /// How often a case is repeated on each target. `slowest` is what one repetition took during the warm-up,
    /// on the target where it took longest.
    pub fn repetitions_of(&self, case: Case, slowest: Duration) -> u32 {
        if case.bytes() * case.row() <= ALL_REPETITIONS_UP_TO {
            return self.repetitions;
        }
        let fitting = self.budget.as_secs_f64() / slowest.as_secs_f64().max(1e-9);
        // More than `u32` holds becomes its largest value.
        (fitting as u32).clamp(MIN_REPETITIONS.min(self.repetitions), self.repetitions)
    }

    /// How often a case is carried out before anything is timed, so that memory is mapped, code is made and
    /// buffers are there.
    pub fn warm_up_of(&self, case: Case) -> u32 {
        match case {
            Case::Launches { .. } => 2,
            _ if case.bytes() > ALL_REPETITIONS_UP_TO => 1,
            _ => 10.min(self.repetitions),
        }
    }
}

/// How often a case is carried out before a timed repetition: a process that has just been woken runs its
/// first calls with cold caches, which short ones feel, while a program that copies often does not.
///
/// Short ones not always as often: what happens once in so many copies would meet the same targets each time,
/// and a session that measures ten plans in turns does something every eighth copy of 64 KiB, by which the
/// plans of every other target looked 4 % faster than those between them (2026-11-23).
pub(crate) fn untimed_before(case: Case, random: &mut Random) -> u32 {
    match case {
        Case::Launches { .. } => 0,
        _ if case.bytes() <= 64 << 10 => 5 + random.next_below(8),
        _ if case.bytes() <= 4 << 20 => 3 + random.next_below(4),
        _ => 1,
    }
}

/// The targets in the order in which this repetition visits them: the rows of a square that is balanced for
/// what one visit does to the next (E. J. Williams, "Experimental designs balanced for the estimation of
/// residual effects of treatments", 1949). An odd number of targets takes two squares, of which one is the
/// other read backwards.
pub fn order(repetition: u32, targets: usize) -> impl Iterator<Item = usize> {
    let repetition = repetition as usize;
    let backwards = targets % 2 == 1 && repetition / targets % 2 == 1;
    (0..targets).map(move |step| {
        let step = if backwards { targets - 1 - step } else { step };
        // 0, 1, -1, 2, -2, ...
        let zigzag = if step % 2 == 1 { step.div_ceil(2) } else { targets - step / 2 };
        (zigzag + repetition) % targets
    })
}

/// Has every target measured once in each repetition, in their [`order`]. A target of which `measure` says
/// false is not measured again.
///
/// # Errors
/// The first that `measure` has, which ends everything.
pub fn interleaved<E>(
    repetitions: u32,
    targets: usize,
    mut measure: impl FnMut(u32, usize) -> Result<bool, E>,
) -> Result<(), E> {
    let mut is_going = vec![true; targets];
    for repetition in 0..repetitions {
        for target in order(repetition, targets) {
            is_going[target] = is_going[target] && measure(repetition, target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Path, Wait};

    const PLAN: Plan = Plan { repetitions: 100, budget: Duration::from_secs(1) };

    fn copy(bytes: u64) -> Case {
        Case::Copy { path: Path::PinnedToDevice, bytes }
    }

    #[test]
    fn each_repetition_visits_every_target_once_and_begins_with_another() {
        let visits = |targets| (0..4).map(move |repetition| order(repetition, targets).collect::<Vec<_>>());
        assert_eq!(visits(2).collect::<Vec<_>>(), [[0, 1], [1, 0], [0, 1], [1, 0]]);
        assert_eq!(visits(3).collect::<Vec<_>>(), [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]);
        assert_eq!(visits(4).next().unwrap(), [0, 1, 3, 2]);
        assert_eq!(order(7, 0).count(), 0);
    }

    #[test]
    fn a_target_that_is_over_is_left_out_and_an_error_ends_all() {
        let mut visited = Vec::new();
        let outcome = interleaved(3, 2, |repetition, target| {
            visited.push(target);
            if repetition == 2 { Err("over") } else { Ok(target == 1) }
        });
        assert_eq!((outcome, visited), (Err("over"), vec![0, 1, 1, 1]));
    }

    #[test]
    fn each_target_follows_every_other_as_often() {
        for targets in 2..12 {
            let mut followed = vec![vec![0; targets]; targets];
            for repetition in 0..2 * targets as u32 {
                let visits: Vec<_> = order(repetition, targets).collect();
                assert_eq!(visits.iter().copied().collect::<std::collections::BTreeSet<_>>().len(), targets);
                visits.windows(2).for_each(|pair| followed[pair[0]][pair[1]] += 1);
            }
            for (before, row) in followed.iter().enumerate() {
                for (after, count) in row.iter().enumerate() {
                    assert_eq!(*count, if before == after { 0 } else { 2 }, "{targets}: {before} {after}");
                }
            }
        }
    }

    #[test]
    fn what_comes_every_so_many_copies_meets_all_targets() {
        const TARGETS: usize = 10;
        const REPETITIONS: u32 = 400;
        for (case, every) in
            [(copy(64 << 10), 8), (copy(64 << 10), 16), (copy(1 << 20), 4), (copy(1 << 20), 8)]
        {
            let mut met = [0; TARGETS];
            let (mut copies, mut random) = (0, Random::default());
            for repetition in 0..REPETITIONS {
                for target in order(repetition, TARGETS) {
                    copies += untimed_before(case, &mut random) + 1;
                    met[target] += u32::from(copies % every == 0);
                }
            }
            let mean = REPETITIONS / every;
            let (min, max) = (met.iter().min().unwrap(), met.iter().max().unwrap());
            assert!(*min > mean / 2 && *max < 2 * mean, "every {every} of {case}: {met:?}");
        }
    }

    #[test]
    fn only_large_copies_are_repeated_less() {
        let slow = Duration::from_millis(40);
        assert_eq!(PLAN.repetitions_of(copy(32 << 20), slow), 100);
        assert_eq!(PLAN.repetitions_of(copy(64 << 20), slow), 25);
        assert_eq!(PLAN.repetitions_of(copy(64 << 20), Duration::from_millis(1)), 100);
        assert_eq!(PLAN.repetitions_of(copy(64 << 20), Duration::ZERO), 100);
        assert_eq!(PLAN.repetitions_of(copy(1 << 30), Duration::from_secs(9)), MIN_REPETITIONS);
        assert_eq!(PLAN.repetitions_of(Case::Wait { wait: Wait::QueryIdle }, slow), 100);
        // Sixteen in a row are more than 32 MiB together.
        let row = Case::Copy { path: Path::AsyncToDevice, bytes: 4 << 20 };
        assert_eq!(PLAN.repetitions_of(row, slow), 25);
    }

    #[test]
    fn nobody_gets_more_repetitions_than_were_asked_for() {
        let few = Plan { repetitions: 2, ..PLAN };
        for case in [copy(1), copy(1 << 30), Case::Launches { arguments: 0 }] {
            assert_eq!(few.repetitions_of(case, Duration::from_secs(9)), 2, "{case}");
            assert!((1..=2).contains(&few.warm_up_of(case)), "{case}");
        }
    }
}
