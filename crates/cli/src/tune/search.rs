//! Search for the best copy plan: which plans are tried.
//!
//! Nothing here measures: times come in, a choice goes out.

use core::ops::Range;

use causeway_measure::statistics::Summary;
use causeway_pipeline::{Change, Direction, Plan, Rule, TransportKind};

/// What a plan must be better by than the built-in one, or noise would be kept.
const MIN_GAIN: f64 = 1.03;

/// A size of copies that is measured, and the sizes that its plan is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the copies that are measured.
    pub bytes: usize,
    /// The sizes that its plan serves.
    pub serves: Range<u64>,
}

/// The sizes that are measured.
pub fn steps(quick: bool) -> Vec<Step> {
    let sizes: &[usize] = if quick {
        &[256 << 10, 4 << 20]
    } else {
        &[128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20]
    };
    let middle = |at: usize| (sizes[at] as f64 * sizes[at + 1] as f64).sqrt() as u64;
    let step = |at: usize| Step {
        bytes: sizes[at],
        serves: if at == 0 { 0 } else { middle(at - 1) }..if at + 1 == sizes.len() {
            u64::MAX
        } else {
            middle(at)
        },
    };
    (0..sizes.len()).map(step).collect()
}

/// What can be had.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Lanes of a session.
    pub lanes: usize,
    /// Cores of this machine.
    pub cores: usize,
}

/// The first plans that are tried for a size: the `first` one, which is built in, and others that differ in their pieces.
pub fn by_pieces(first: Plan, bytes: usize) -> Vec<Plan> {
    let plans = [1, 2, 4, 8, 32].map(|parts| {
        let buffer_bytes = bytes.div_ceil(parts).next_power_of_two().clamp(Plan::MIN_BYTES, 32 << 20);
        let buffers = bytes.div_ceil(buffer_bytes).clamp(1, 8);
        Plan { buffers, buffer_bytes, ..first }
    });
    distinct([first].into_iter().chain(plans))
}

/// The plans that are tried next: again the `first` one, the best so far, and others that differ from that in what works on a
/// piece. Over TCP the lanes do the copying, elsewhere threads do.
pub fn by_workers(module: TransportKind, first: Plan, best: Plan, limits: Limits) -> Vec<Plan> {
    let max = if module.has_lanes() { limits.lanes } else { limits.cores };
    let counts = (0..=5).map(|shift| 1 << shift).filter(move |count| *count <= max.max(1));
    let others = counts.map(move |count| match module.has_lanes() {
        true => Plan { lanes: count, ..best },
        false => Plan { threads: count, ..best },
    });
    distinct([first, best].into_iter().chain(others))
}

fn distinct(plans: impl Iterator<Item = Plan>) -> Vec<Plan> {
    let mut out: Vec<Plan> = Vec::new();
    for plan in plans.map(Plan::within_limits) {
        if !out.contains(&plan) {
            out.push(plan);
        }
    }
    out
}

/// The place of the plan with the shortest median; `times` has the repetitions of each plan, and at least one plan.
pub fn quickest(times: &[Vec<f64>]) -> usize {
    let medians = times.iter().map(|times| median(times));
    medians.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(at, _)| at)
}

/// What was found for a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The place of the plan to use.
    pub plan: usize,
    /// The median times of the first plan, and of that one.
    pub medians: [f64; 2],
}

/// Chooses a plan by the even repetitions of each, and says what it gains over the first one by the odd ones, which had no
/// part in the choice. With no gain that can be relied on, the first one stays.
pub fn choose(times: &[Vec<f64>]) -> Found {
    let half = |times: &[f64], odd: usize| -> Vec<f64> {
        times.iter().enumerate().filter(|(at, _)| at % 2 == odd).map(|(_, time)| *time).collect()
    };
    let halves = |odd: usize| -> Vec<Vec<f64>> { times.iter().map(|times| half(times, odd)).collect() };
    let (choosing, comparing) = (halves(0), halves(1));
    let plan = quickest(&choosing);
    let medians = [median(&comparing[0]), median(&comparing[plan])];
    let gains = |before: f64, after: f64| before > after * MIN_GAIN;
    if plan != 0 && gains(median(&choosing[0]), median(&choosing[plan])) && gains(medians[0], medians[1]) {
        Found { plan, medians }
    } else {
        Found { plan: 0, medians: [medians[0]; 2] }
    }
}

fn median(times: &[f64]) -> f64 {
    Summary::of(times).map_or(f64::INFINITY, |summary| summary.median)
}

/// The rule for the copies that a step serves.
pub fn rule(module: TransportKind, direction: Direction, step: &Step, plan: Plan) -> Rule {
    Rule {
        module: Some(module),
        direction: Some(direction),
        sizes: step.serves.clone(),
        change: Change::to(plan),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_pipeline::built_in;

    #[test]
    fn every_size_is_served_by_one_step() {
        for quick in [true, false] {
            let steps = steps(quick);
            assert!(steps.iter().all(|step| step.serves.contains(&(step.bytes as u64))));
            assert!(steps.windows(2).all(|pair| pair[0].serves.end == pair[1].serves.start));
            assert_eq!((steps[0].serves.start, steps[steps.len() - 1].serves.end), (0, u64::MAX));
        }
    }

    #[test]
    fn the_built_in_plan_comes_first_and_no_plan_twice() {
        let limits = Limits { lanes: 8, cores: 4 };
        for module in TransportKind::ALL {
            for (step, direction) in
                steps(false).iter().flat_map(|step| Direction::ALL.map(|way| (step, way)))
            {
                let first = built_in(module, direction, step.bytes);
                let pieces = by_pieces(first, step.bytes);
                let workers = by_workers(module, first, pieces[pieces.len() - 1], limits);
                for plans in [&pieces, &workers] {
                    assert_eq!(plans[0], first);
                    assert!(
                        plans.iter().all(|plan| plans.iter().filter(|other| *other == plan).count() == 1)
                    );
                    assert!((2..=9).contains(&plans.len()), "{plans:?}");
                }
            }
        }
        let first = built_in(TransportKind::Tcp, Direction::FromDevice, 64 << 20);
        let workers = by_workers(TransportKind::Tcp, first, first, limits);
        // The built-in one asks for more lanes than there are, which is to take all.
        assert_eq!(workers[1..].iter().map(|plan| plan.lanes).max(), Some(8));
    }

    #[test]
    fn a_plan_is_chosen_only_if_it_is_better_in_both_halves() {
        let base = vec![10.0; 10];
        assert_eq!(choose(&[base.clone(), vec![8.0; 10]]), Found { plan: 1, medians: [10.0, 8.0] });
        assert_eq!(choose(&[base.clone(), vec![9.9; 10]]).plan, 0);
        // Better in the repetitions that choose, worse in the others: luck.
        let lucky: Vec<_> = (0..10).map(|at| if at % 2 == 0 { 5.0 } else { 12.0 }).collect();
        assert_eq!(choose(&[base.clone(), lucky]), Found { plan: 0, medians: [10.0, 10.0] });
        assert_eq!(choose(&[base]).plan, 0);
        assert_eq!(quickest(&[vec![3.0, 3.0], vec![1.0, 2.0], Vec::new()]), 1);
    }

    #[test]
    fn rules_can_be_read_by_whoever_uses_them() {
        let steps = steps(false);
        let plan = built_in(TransportKind::Shm, Direction::FromDevice, 1 << 20);
        for step in &steps {
            let text = rule(TransportKind::Shm, Direction::FromDevice, step, plan).to_string();
            let table = causeway_pipeline::Table::parse(&text).unwrap();
            assert_eq!(table.plan(TransportKind::Shm, Direction::FromDevice, step.bytes), plan);
        }
    }
}
