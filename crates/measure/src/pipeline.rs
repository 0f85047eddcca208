//! Check of the copy plans: a choice by size against the best fixed choice.
//!
//! The best of several settings looks better than it is when it is chosen by the same times that it is judged
//! by. So for each size the best fixed setting is chosen on every other repetition, and compared with the
//! adaptive one on the rest.

use serde::Serialize;

use crate::case::Case;
use crate::results::{CaseRecord, Run};
use crate::statistics::Summary;
use crate::worker_process::{Target, TargetLocation};

/// Settings that are compared by default: from what short copies want to what long ones want.
pub const FIXED: [&str; 9] = [
    "1x256K, 1 lane, 1 thread",
    "1x1M, 4 lanes, 1 thread",
    "4x256K, 2 lanes, 2 threads",
    "4x1M, 4 lanes, 1 thread",
    "8x256K, 4 lanes, 4 threads",
    "8x1M, 8 lanes, 8 threads",
    "8x4M, 8 lanes, 2 threads",
    "8x4M, 8 lanes, 8 threads",
    "8x8M, 8 lanes, 4 threads",
];

/// The adaptive choice may be this much slower than the best fixed setting of a size.
pub const MAY_BE_BEHIND: f64 = 0.05;

/// One case, adaptive against the best fixed setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The number of the adaptive target.
    pub adaptive: usize,
    /// The number of the target with the best fixed setting.
    pub best: usize,
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// GB/s of the adaptive choice, on the repetitions by which nothing was chosen.
    pub adaptive_gb_per_s: f64,
    /// GB/s of the best fixed setting, on the same.
    pub best_gb_per_s: f64,
    /// How much faster the adaptive choice is, as a share; below 0 where it is slower.
    pub ahead: f64,
}

/// What the comparisons of one server and module say together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckResult {
    /// The number of the adaptive target.
    pub adaptive: usize,
    /// The least of [`Comparison::ahead`].
    pub worst: f64,
    /// Its mean.
    pub mean: f64,
    /// Whether the adaptive choice is nowhere more than [`MAY_BE_BEHIND`] behind, and ahead on average.
    pub holds: bool,
}

/// The setting of a target: none for the adaptive one and for what has no such choice.
fn setting(target: &Target) -> Option<&str> {
    match &target.location {
        TargetLocation::Server { pipeline, .. } => pipeline.as_deref(),
        TargetLocation::Native => None,
    }
}

/// Whether two targets are the same but for their settings.
fn same_way(one: &Target, other: &Target) -> bool {
    match (&one.location, &other.location) {
        (
            TargetLocation::Server { address: one, via: one_via, .. },
            TargetLocation::Server { address: other, via: other_via, .. },
        ) => one == other && one_via == other_via,
        _ => false,
    }
}

/// All comparisons of a run: each adaptive target with the fixed settings of the same server and module.
pub fn compare(run: &Run) -> Vec<Comparison> {
    let targets: Vec<&Target> = run.targets.iter().map(|record| &record.target).collect();
    let adaptive = (0..targets.len()).filter(|index| {
        targets[*index].location != TargetLocation::Native && setting(targets[*index]).is_none()
    });
    adaptive
        .flat_map(|adaptive| {
            let fixed: Vec<usize> = (0..targets.len())
                .filter(|index| {
                    setting(targets[*index]).is_some() && same_way(targets[*index], targets[adaptive])
                })
                .collect();
            run.cases.iter().filter_map(move |record| compare_case(record, adaptive, &fixed))
        })
        .collect()
}

fn compare_case(record: &CaseRecord, adaptive: usize, fixed: &[usize]) -> Option<Comparison> {
    let choosing = fixed.iter().filter_map(|index| Some((*index, half(record, *index, 0)?)));
    let (best, _) = choosing.min_by(|one, other| one.1.total_cmp(&other.1))?;
    let rate = |target| Some(record.case.bytes() as f64 / 1e3 / half(record, target, 1)?);
    let (adaptive_gb_per_s, best_gb_per_s) = (rate(adaptive)?, rate(best)?);
    let ahead = adaptive_gb_per_s / best_gb_per_s - 1.0;
    Some(Comparison { adaptive, best, case: record.case, adaptive_gb_per_s, best_gb_per_s, ahead })
}

/// The median time of every other repetition, beginning with this one, in microseconds.
fn half(record: &CaseRecord, target: usize, first: usize) -> Option<f64> {
    let times = &record.results(target)?.samples.done_us;
    let half: Vec<f64> = times.iter().skip(first).step_by(2).copied().collect();
    Some(Summary::of(&half)?.median)
}

/// One verdict for each adaptive target that was compared.
pub fn verdicts(comparisons: &[Comparison]) -> Vec<CheckResult> {
    let mut verdicts: Vec<CheckResult> = Vec::new();
    for Comparison { adaptive, .. } in comparisons {
        if verdicts.iter().any(|check_result| check_result.adaptive == *adaptive) {
            continue;
        }
        let of_this = comparisons.iter().filter(|comparison| comparison.adaptive == *adaptive);
        let ahead: Vec<f64> = of_this.map(|comparison| comparison.ahead).collect();
        let worst = ahead.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = ahead.iter().sum::<f64>() / ahead.len() as f64;
        verdicts.push(CheckResult {
            adaptive: *adaptive,
            worst,
            mean,
            holds: worst >= -MAY_BE_BEHIND && mean >= 0.0,
        });
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Path;
    use crate::protocol::Samples;
    use crate::results::{CaseResult, Outcome, tests::example};

    /// A run of one case: these times on an adaptive target and on fixed ones.
    fn run(times: &[[f64; 4]]) -> Run {
        let mut run = example();
        let case = Case::Copy { path: Path::PinnedToDevice, bytes: 1_000_000 };
        let outcome = |done: &[f64; 4]| {
            let done = done.to_vec();
            let samples = Samples { returned_us: done.clone(), processor_s: done.clone(), done_us: done };
            CaseResult::of(case, samples).map(|results| Outcome::Measured(Box::new(results)))
        };
        run.cases = vec![CaseRecord { case, outcomes: times.iter().map(outcome).collect() }];
        let server = run.targets.pop().expect("the example has a server");
        run.targets.clear();
        for index in 0..times.len() {
            let mut record = server.clone();
            let pipeline = (index > 0).then(|| format!("{index}x1M"));
            record.target.location = TargetLocation::Server { address: "server".into(), via: None, pipeline };
            run.targets.push(record);
        }
        run
    }

    #[test]
    fn the_best_is_chosen_on_one_half_and_judged_on_the_other() {
        // The second setting has the best single time, on the half that chooses nothing.
        let run = run(&[[1000.0; 4], [900.0, 1250.0, 900.0, 1250.0], [950.0, 100.0, 950.0, 100.0]]);
        let comparisons = compare(&run);
        assert_eq!(comparisons.len(), 1);
        assert_eq!((comparisons[0].adaptive, comparisons[0].best), (0, 1));
        assert!((comparisons[0].adaptive_gb_per_s - 1.0).abs() < 1e-9);
        assert!((comparisons[0].best_gb_per_s - 0.8).abs() < 1e-9);
        assert!((comparisons[0].ahead - 0.25).abs() < 1e-9);
        let verdicts = verdicts(&comparisons);
        assert!(verdicts.len() == 1 && verdicts[0].holds, "{verdicts:?}");
    }

    #[test]
    fn five_percent_behind_is_too_much_only_beyond() {
        let check_result = |adaptive: f64| verdicts(&compare(&run(&[[adaptive; 4], [1000.0; 4]])))[0].clone();
        // Behind on average, as there is one case only.
        assert!(!check_result(1040.0).holds && check_result(1040.0).worst > -MAY_BE_BEHIND);
        assert!(check_result(1100.0).worst < -MAY_BE_BEHIND && !check_result(1100.0).holds);
        assert!(check_result(1000.0).holds && check_result(900.0).holds);
    }

    #[test]
    fn another_module_is_another_matter() {
        let mut run = run(&[[1000.0; 4], [500.0; 4]]);
        if let TargetLocation::Server { via, .. } = &mut run.targets[1].target.location {
            *via = Some("shm".into());
        }
        assert!(compare(&run).is_empty());
    }
}
