//! Tests of the fair queue, against a device that runs kernels in a simulated time.

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

/// A program that launches kernels of one length, and so long after the end of one the next.
#[derive(Clone, Copy)]
struct Program {
    peer: u8,
    share: u32,
    group: Option<(u8, u32)>,
    kernel: Duration,
    pause: Duration,
}

/// What a worker does for a program, step by step.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Doing {
    Pauses(Duration),
    Waits,
    Runs { until: Duration, lease: u32 },
}

/// Runs programs for `length` on a device; for how long each has had it, and how long each waited at most.
fn simulate(programs: &[Program], length: Duration) -> Vec<(Duration, Duration)> {
    let mut queue = FairQueue::default();
    let mut doing = vec![Doing::Pauses(Duration::ZERO); programs.len()];
    // The lease that holds, whether others wait, and whether it was recalled.
    let mut leases: Vec<Option<(u32, bool, bool)>> = vec![None; programs.len()];
    let mut results = vec![(Duration::ZERO, Duration::ZERO); programs.len()];
    let mut waits_since = vec![Duration::ZERO; programs.len()];
    let mut now = Duration::ZERO;
    while now < length {
        for (number, program) in programs.iter().enumerate() {
            if let Doing::Runs { until, lease } = doing[number]
                && until <= now
            {
                results[number].0 += program.kernel;
                doing[number] = Doing::Pauses(now + program.pause);
                if leases[number] == Some((lease, true, true)) {
                    leases[number] = None;
                    queue.ended(number, lease, now);
                }
            }
            if let Doing::Pauses(until) = doing[number]
                && until <= now
            {
                if let Some((lease, _, false)) = leases[number] {
                    doing[number] = Doing::Runs { until: now + program.kernel, lease };
                } else {
                    (doing[number], waits_since[number]) = (Doing::Waits, now);
                    queue.request(number, program.peer, program.share, program.group, now);
                }
            }
            // It releases what it does not use.
            if let (Doing::Pauses(until), Some((lease, true, _))) = (doing[number], leases[number])
                && now >= until - program.pause + LINGER
            {
                leases[number] = None;
                queue.ended(number, lease, now);
            }
        }
        let mut actions = queue.actions(now);
        while !actions.is_empty() {
            for action in core::mem::take(&mut actions) {
                match action {
                    Action::Grant { session, lease } => {
                        assert_eq!(doing[session], Doing::Waits);
                        leases[session] = Some((lease, false, false));
                        let wait = &mut results[session].1;
                        *wait = (*wait).max(now - waits_since[session]);
                        let until = now + programs[session].kernel;
                        doing[session] = Doing::Runs { until, lease };
                    }
                    Action::Contend { session, lease } => {
                        assert_eq!(leases[session], Some((lease, false, false)));
                        leases[session] = Some((lease, true, false));
                    }
                    Action::Recall { session, lease } => {
                        assert!(leases[session].is_some_and(|held| held.0 == lease && !held.2));
                        leases[session] = Some((lease, true, true));
                        if !matches!(doing[session], Doing::Runs { .. }) {
                            leases[session] = None;
                            queue.ended(session, lease, now);
                        }
                    }
                }
            }
            actions = queue.actions(now);
        }
        let running: Vec<_> = doing
            .iter()
            .zip(programs)
            .filter(|(doing, program)| matches!(doing, Doing::Runs { .. }) && program.kernel < OVERDUE)
            .map(|(_, program)| program.peer)
            .collect();
        assert!(running.windows(2).all(|pair| pair[0] == pair[1]), "one peer at a time: {running:?}");
        let next = doing.iter().zip(programs).zip(&leases).filter_map(|((doing, program), lease)| {
            match (*doing, lease) {
                (Doing::Pauses(until), Some((_, true, _))) => {
                    Some(until.min((until - program.pause + LINGER).max(now + Duration::from_micros(1))))
                }
                (Doing::Pauses(until) | Doing::Runs { until, .. }, _) => Some(until),
                (Doing::Waits, _) => None,
            }
        });
        let next = next.chain(queue.next_deadline()).min().expect("somebody goes on");
        assert!(next > now, "nothing happens at {now:?}: {queue:?}");
        now = next;
    }
    results
}

/// What a session hears that gets a slot while others wait.
fn contended(session: u8, lease: u32) -> [Action<u8>; 2] {
    [Action::Grant { session, lease }, Action::Contend { session, lease }]
}

fn ratio(results: &[(Duration, Duration)]) -> f64 {
    results[0].0.as_secs_f64() / results[1].0.as_secs_f64()
}

#[test]
fn shares_of_three_to_one_give_three_to_one() {
    for kernel in [1, 5, 30, 100, 700] {
        // A program that pauses for long leaves the device to others.
        for pause in [0, 1, 3].into_iter().filter(|pause| 4 * *pause <= kernel) {
            let program = Program {
                peer: 1,
                share: 3,
                group: None,
                kernel: kernel * MILLISECOND,
                pause: pause * MILLISECOND,
            };
            let other = Program { peer: 2, share: 1, ..program };
            let ratio = ratio(&simulate(&[program, other], Duration::from_secs(100)));
            assert!((2.7..3.3).contains(&ratio), "kernels of {kernel} ms, {pause} ms apart: {ratio}");
        }
    }
    // Kernels of different lengths.
    let long = Program { peer: 1, share: 3, group: None, kernel: 300 * MILLISECOND, pause: MILLISECOND };
    let short = Program { peer: 2, share: 1, group: None, kernel: 7 * MILLISECOND, pause: Duration::ZERO };
    let ratio = ratio(&simulate(&[long, short], Duration::from_secs(100)));
    assert!((2.7..3.3).contains(&ratio), "{ratio}");
}

#[test]
fn sessions_of_a_peer_have_its_share_together() {
    let program = Program { peer: 1, share: 1, group: None, kernel: 50 * MILLISECOND, pause: MILLISECOND };
    let other = Program { peer: 2, share: 2, ..program };
    let results = simulate(&[program, program, other], Duration::from_secs(100));
    // Both of one peer run at the same time.
    let ratio = results[2].0.as_secs_f64() / results[0].0.as_secs_f64();
    assert!((1.8..2.2).contains(&ratio) && results[0].0 == results[1].0, "{results:?}");
}

/// Two peers of a group with the shares 2 and 1, and another peer.
fn of_group(group: Option<(u8, u32)>, share: u32) -> [Program; 3] {
    let program = Program { peer: 1, share: 2, group, kernel: 10 * MILLISECOND, pause: Duration::ZERO };
    [program, Program { peer: 2, share: 1, ..program }, Program { peer: 3, share, group: None, ..program }]
}

#[test]
fn time_is_divided_among_groups_and_then_among_their_peers() {
    let parts = |programs: &[Program]| {
        let results = simulate(programs, Duration::from_secs(100));
        results.into_iter().map(|(time, _)| time.as_secs_f64()).collect::<Vec<_>>()
    };
    let is_close = |parts: &[f64], expected: &[f64]| {
        parts.iter().zip(expected).all(|(part, expected)| (part - expected).abs() < 0.1 * expected)
    };
    // Three to one, and within the group two to one.
    let all = parts(&of_group(Some((10, 3)), 1));
    assert!(is_close(&all, &[50.0, 25.0, 25.0]), "{all:?}");
    // The shares of members say nothing to others.
    let all = parts(&of_group(Some((10, 1)), 1));
    assert!(is_close(&all, &[100.0 / 3.0, 100.0 / 6.0, 50.0]), "{all:?}");
    let without = parts(&of_group(None, 1));
    assert!(is_close(&without, &[50.0, 25.0, 25.0]), "{without:?}");
    // Two groups, and in each of them two who are equal.
    let other =
        of_group(Some((11, 2)), 1).map(|program| Program { peer: 3 + program.peer, share: 1, ..program });
    let own = of_group(Some((10, 3)), 1).map(|program| Program { share: 1, ..program });
    let all = parts(&[own[0], own[1], other[0], other[1]]);
    assert!(is_close(&all, &[30.0, 30.0, 20.0, 20.0]), "{all:?}");
    // What one of a group leaves is the others' of the group.
    let mut programs = of_group(Some((10, 3)), 1);
    programs[0].kernel = MILLISECOND;
    programs[0].pause = Duration::from_secs(1);
    let all = parts(&programs);
    assert!(is_close(&all[1..], &[75.0, 25.0]), "{all:?}");
}

#[test]
fn a_peer_that_changes_its_group_starts_as_a_new_one() {
    let mut queue = FairQueue::default();
    let at = |seconds| Duration::from_secs(seconds);
    queue.request(1, 1, 1, None, at(0));
    queue.request(2, 2, 1, None, at(0));
    queue.actions(at(0));
    // A slot of an hour, in which the peer has come into a group.
    queue.request(1, 1, 1, Some((10, 1)), at(3600));
    queue.ended(1, 1, at(3600));
    queue.actions(at(3600));
    assert_eq!((queue.tag(1), queue.tag(10)), (0, 0), "{queue:?}");
    // In the group it comes after one that has asked before; and out of it again.
    queue.request(3, 3, 1, Some((10, 1)), at(3600));
    queue.request(1, 1, 1, None, at(3600));
    assert_eq!(queue.top(1), 1);
    // With its last session everything of a group is forgotten.
    for session in [1, 2, 3] {
        queue.session_ends(session, at(3600));
    }
    queue.actions(at(3600));
    queue.request(4, 4, 1, None, at(7200));
    queue.actions(at(7200));
    queue.session_ends(4, at(7200));
    queue.actions(at(7200));
    assert!(!queue.peers.contains_key(&10) && !queue.peers.contains_key(&3), "{queue:?}");
}

#[test]
fn one_who_is_idle_saves_nothing_and_loses_nothing() {
    let busy = Program { peer: 1, share: 1, group: None, kernel: 10 * MILLISECOND, pause: Duration::ZERO };
    let seldom = Program { peer: 2, share: 1, group: None, kernel: MILLISECOND, pause: 100 * MILLISECOND };
    let results = simulate(&[busy, seldom], Duration::from_secs(100));
    // Nobody keeps the device for what does not come soon.
    assert!(results[0].0 > Duration::from_secs(96), "{results:?}");
    assert!(results[1].1 <= QUANTUM + 15 * MILLISECOND, "it comes next: {results:?}");
    // One who was alone for long owes nothing for that time.
    let mut queue = FairQueue::default();
    let at = |seconds| Duration::from_secs(seconds);
    queue.request(1, 1, 1, None, at(0));
    assert_eq!(queue.actions(at(0)), [Action::Grant { session: 1, lease: 1 }]);
    assert_eq!(queue.next_deadline(), None, "alone, it is never asked");
    queue.request(2, 2, 1, None, at(3600));
    assert_eq!(queue.actions(at(3600)), [Action::Recall { session: 1, lease: 1 }]);
    queue.ended(1, 1, at(3600));
    assert_eq!(queue.actions(at(3600)), [Action::Grant { session: 2, lease: 2 }]);
    queue.request(1, 1, 1, None, at(3600));
    assert_eq!(queue.actions(at(3600)), [Action::Contend { session: 2, lease: 2 }]);
    assert_eq!(queue.next_deadline(), Some(at(3600) + QUANTUM));
    assert_eq!(queue.actions(at(3600) + QUANTUM), [Action::Recall { session: 2, lease: 2 }]);
}

#[test]
fn a_kernel_without_end_holds_nobody_up_for_long() {
    let endless =
        Program { peer: 1, share: 3, group: None, kernel: Duration::from_secs(1000), pause: MILLISECOND };
    let other = Program { peer: 2, share: 1, group: None, kernel: 10 * MILLISECOND, pause: MILLISECOND };
    let results = simulate(&[endless, other], Duration::from_secs(100));
    assert!(results[1].0 > Duration::from_secs(80) && results[1].1 <= OVERDUE + QUANTUM, "{results:?}");
}

#[test]
fn kernels_of_a_peer_that_wait_for_each_other_get_there() {
    let mut queue = FairQueue::default();
    queue.request(1, 1, 1, None, Duration::ZERO);
    queue.request(9, 2, 1, None, Duration::ZERO);
    assert_eq!(queue.actions(Duration::ZERO), contended(1, 1));
    assert_eq!(queue.actions(QUANTUM), [Action::Recall { session: 1, lease: 1 }]);
    // Another session of the peer, a moment later.
    queue.request(2, 1, 1, None, QUANTUM);
    let joins = [Action::Grant { session: 2, lease: 2 }, Action::Recall { session: 2, lease: 2 }];
    assert_eq!(queue.actions(QUANTUM), joins);
    // A third one comes too late for this slot, and without it neither of the two ends.
    queue.request(3, 1, 1, None, QUANTUM + DRAIN);
    assert_eq!(queue.actions(QUANTUM + DRAIN), []);
    assert_eq!(queue.next_deadline(), Some(QUANTUM + OVERDUE));
    let left = QUANTUM + OVERDUE;
    assert_eq!(queue.actions(left), contended(9, 3));
    queue.ended(9, 3, left);
    assert_eq!(queue.actions(left), [], "the other one may want more");
    let later = left + ANTICIPATION;
    assert_eq!(queue.actions(later), [Action::Grant { session: 3, lease: 4 }]);
}

#[test]
fn a_dead_session_loses_its_turn_at_once() {
    let mut queue = FairQueue::default();
    queue.request(1, 1, 1, None, Duration::ZERO);
    queue.request(2, 2, 1, None, Duration::ZERO);
    assert_eq!(queue.actions(Duration::ZERO), contended(1, 1));
    queue.session_ends(1, MILLISECOND);
    assert_eq!(queue.actions(MILLISECOND), [Action::Grant { session: 2, lease: 2 }]);
    // What is said of leases that are over, or never were, changes nothing.
    queue.ended(2, 1, MILLISECOND);
    queue.ended(7, 2, MILLISECOND);
    queue.session_ends(1, MILLISECOND);
    assert_eq!(queue.actions(MILLISECOND), []);
    queue.session_ends(2, MILLISECOND);
    assert_eq!((queue.actions(MILLISECOND), queue.next_deadline()), (vec![], None));
    assert!(queue.sessions.is_empty() && queue.slot.is_none());
}

/// Whatever sessions say and when: leases that hold are of one peer, and nobody waits for ever.
#[test]
fn whatever_sessions_say_everybody_gets_a_turn() {
    let mut seed = 1_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in 0..400 {
        let mut queue = FairQueue::default();
        let mut now = Duration::ZERO;
        let mut leases: HashMap<u64, u32> = HashMap::new();
        let mut waits: HashMap<u64, Duration> = HashMap::new();
        for _ in 0..400 {
            let session = random(6);
            match random(8) {
                0..3 => {
                    // Of every other queue's peers some are in a group, now and then in another one.
                    let group = (round % 2 == 1 && session % 3 > 0)
                        .then(|| (10 + random(20) / 19, 1 + random(3) as u32));
                    queue.request(session, session % 3, random(4) as u32, group, now);
                    waits.entry(session).or_insert(now);
                }
                3..6 => {
                    let lease = leases.get(&session).copied().unwrap_or(random(9) as u32);
                    queue.ended(session, lease, now);
                }
                6 if random(4) == 0 => {
                    queue.session_ends(session, now);
                    waits.remove(&session);
                    leases.remove(&session);
                }
                _ => now += Duration::from_millis(random(40)),
            }
            while queue.next_deadline().is_some_and(|end| end <= now) || random(2) == 0 {
                for action in queue.actions(now) {
                    if let Action::Grant { session, lease } = action {
                        leases.insert(session, lease);
                        let since = waits.remove(&session).expect("it has asked");
                        // Each of two others may have a slot, again and again as their shares are.
                        let slots = if round % 2 == 1 { 27 } else { 9 };
                        assert!(now - since < slots * (OVERDUE + QUANTUM + ANTICIPATION + DRAIN));
                    }
                }
                let valid = queue
                    .sessions
                    .values()
                    .filter(|member| member.lease.is_some_and(|lease| lease.standing != Standing::Overdue));
                let peers: Vec<_> = valid.map(|member| member.peer).collect();
                assert!(peers.windows(2).all(|pair| pair[0] == pair[1]), "{queue:?}");
                let overdue: usize = queue.peers.values().map(|peer| peer.overdue).sum();
                let counted = queue
                    .sessions
                    .values()
                    .filter(|member| member.lease.is_some_and(|lease| lease.standing == Standing::Overdue));
                assert_eq!(overdue, counted.count(), "{queue:?}");
            }
        }
    }
}
