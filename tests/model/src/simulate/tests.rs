//! What generated programs give on the machine.

use super::{Result, Simulation};
use crate::generate::{PATTERNS, Profile, Setting, generate};
use crate::interpret::interpret;
use crate::order::HappensBefore;
use crate::program::{Call, Program};
use crate::reduce::reduce;
use fastrand::Rng;

fn setting(seed: u64, profile: Profile) -> Setting {
    let devices = if seed.is_multiple_of(3) { 2 } else { 1 };
    Setting {
        devices,
        managed: true,
        pools: true,
        values: true,
        uploads_wait: seed.is_multiple_of(2),
        host_order: true,
        host_sources: true,
        profile,
    }
}

/// The results of a program under some schedules.
fn simulate(program: &Program, lands_late: bool, times: usize, rng: &mut Rng) -> Vec<Result> {
    let order = HappensBefore::of(program).expect("programs are in order");
    let expected = interpret(program, &order);
    (0..times).map(|_| Simulation::new(program, &order, &expected, lands_late).run(rng)).collect()
}

#[test]
fn every_schedule_gives_what_the_model_says() {
    let mut rng = Rng::with_seed(1);
    for seed in 0..300 {
        let program = generate(seed, &setting(seed, Profile::Small));
        for result in simulate(&program, false, 5, &mut rng) {
            assert_eq!(result, Result::Right, "{program}");
        }
    }
}

#[test]
fn copies_that_arrive_late_are_found_by_each_pattern_that_has_them() {
    let mut rng = Rng::with_seed(2);
    let mut found = Vec::new();
    for seed in 0..900 {
        let program = generate(seed, &setting(seed, Profile::Small));
        let is_random = program.kind == crate::generate::RANDOM;
        // Random programs are many, and one that finds it is enough of a pattern.
        if (is_random && seed >= 300) || (!is_random && found.contains(&program.kind)) {
            continue;
        }
        let times = if is_random { 4 } else { 40 };
        if simulate(&program, true, times, &mut rng).contains(&Result::Wrong) {
            found.push(program.kind);
        }
    }
    for (name, _) in PATTERNS {
        assert!(found.contains(&name), "{name} finds nothing");
    }
    assert!(found.iter().filter(|kind| **kind == crate::generate::RANDOM).count() > 20);
}

#[test]
fn a_failing_program_is_reduced_to_two_copies() {
    let mut rng = Rng::with_seed(3);
    let program = (0..)
        .map(|seed| generate(seed, &setting(1, Profile::Small)))
        .find(|program| program.kind == "repeat-down" && program.ops.len() > 30)
        .expect("there is one");
    let everything = (0..program.ops.len()).collect();
    let fails = |kept: &[usize]| simulate(&program.keep(kept), true, 40, &mut rng).contains(&Result::Wrong);
    let kept = reduce(&program, everything, fails, || true);
    let small = program.keep(&kept);
    let copies = |op: &crate::program::Op| {
        matches!(&op.call, Call::Enqueue { work: crate::program::Work::Copy { .. }, .. })
    };
    assert_eq!(small.ops.iter().filter(|op| copies(op)).count(), 2, "{small}");
    assert!(small.ops.len() <= 5, "two copies, what makes them differ, and an event between them: {small}");
}

#[test]
fn programs_without_their_waits_are_races() {
    let mut races = 0;
    for seed in 0..300 {
        let program = generate(seed, &setting(seed, Profile::Small));
        let waits = |op: &crate::program::Op| matches!(op.call, Call::Await(_) | Call::WaitEvent { .. });
        let kept: Vec<usize> =
            program.ops.iter().enumerate().filter(|(_, op)| !waits(op)).map(|(index, _)| index).collect();
        races += usize::from(HappensBefore::of(&program.keep(&kept)).is_err());
    }
    assert!(races > 150, "only {races} programs need their waits");
}
