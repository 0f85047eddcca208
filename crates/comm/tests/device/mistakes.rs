//! What must be refused is refused: an error and a clear sentence, nothing written anywhere, and no endless
//! kernel.

use super::*;

use causeway_comm::device::failure::{Failure, Status};
use causeway_comm::device::team::TeamError;

const WINDOW: u64 = 4096;

/// Runs the kernel of mistakes on two ranks. Gives the statuses that they were told.
fn run(gpu: &Ranks, team: &Team, window: u32, others: (&Team, u32), which: u32) -> Vec<u64> {
    let answers: Vec<_> = (0..2).map(|_| gpu.filled(&[0xff; 8])).collect();
    gpu.launch_all(team, "mistake", 64, |rank| {
        let params = Params::default().team(team, rank).window(team, rank, window);
        params.window(others.0, rank, others.1).word(which).long(answers[rank as usize].address)
    });
    let word = |block: &causeway_comm::device::gpu::Block| {
        u64::from_le_bytes(gpu.bytes(block.address, 8).try_into().unwrap())
    };
    answers.iter().map(word).collect()
}

#[test]
fn mistakes_are_refused_and_nothing_is_written() {
    let cases = [
        (0, Status::OutOfBounds, "do not lie in the window"),
        (1, Status::OutOfBounds, "do not lie in the window"),
        (2, Status::OutOfBounds, "do not lie in the window"),
        (3, Status::OutOfBounds, "do not lie in the window"),
        (4, Status::Misaligned, "a multiple of 8"),
        (5, Status::OtherTeam, "belongs to another team"),
        (6, Status::NoSuchRank, "the team has no such rank"),
        (7, Status::Truncated, "the receiver's room is shorter"),
        (8, Status::TimedOut, "within the team's limit"),
        (9, Status::TimedOut, "a barrier"),
        (10, Status::OutOfBounds, "do not lie in the window"),
        (11, Status::Unsupported, "memory of the host"),
        (12, Status::OutOfBounds, "do not lie in the window"),
    ];
    for policy in [InitiatorPolicy::Auto, InitiatorPolicy::Proxy] {
        for (which, status, told) in cases {
            let gpu = Ranks::new(Lanes::Well);
            let limit = Duration::from_millis(200);
            let team = team(&gpu, 2, Options { policy, limit, ..Options::default() });
            let other_team = super::team(&gpu, 2, patient());
            let window = team.window(Kind::Device, WINDOW).unwrap();
            let others = other_team.window(Kind::Device, WINDOW).unwrap();
            let content: Vec<u8> = (0..WINDOW).map(|at| at as u8).collect();
            let parts = |rank| {
                [
                    team.window_handle(rank, window).unwrap().base,
                    other_team.window_handle(rank, others).unwrap().base,
                ]
            };
            for base in (0..2).flat_map(parts) {
                gpu.write(base, &content);
            }
            let statuses = run(&gpu, &team, window, (&other_team, others), which);
            let code = u64::from(status.code());
            // Where one rank errs after the other has ended the team, that is what it is told.
            let aborted = u64::from(Status::Aborted.code());
            assert!(statuses.contains(&code), "{which}: {statuses:?}");
            assert!(statuses.iter().all(|found| [0, code, aborted].contains(found)), "{which}: {statuses:?}");
            let failure = team.failure().expect("the team has ended");
            assert!(matches!(failure, Failure::Refused { .. }), "{failure}");
            assert!(failure.to_string().contains(told), "{which}: {failure}");
            for base in (0..2).flat_map(parts) {
                assert_eq!(gpu.bytes(base, WINDOW), content, "{which}");
            }
        }
    }
}

#[test]
fn atomic_operations_are_refused_where_what_joins_two_gpus_has_none() {
    // atomic_add, and a signal that counts up.
    for which in [14, 15] {
        let gpu = Ranks::new(Lanes::Well).without_atomics(2);
        let team = team(&gpu, 2, patient());
        let window = team.window(Kind::Device, WINDOW).unwrap();
        let statuses = run(&gpu, &team, window, (&team, window), which);
        assert!(statuses.contains(&u64::from(Status::Unsupported.code())), "{which}: {statuses:?}");
        assert!(team.failure().expect("the team has ended").to_string().contains("no atomic operations"));
        for rank in 0..2 {
            let base = team.window_handle(rank, window).unwrap().base;
            assert_eq!(gpu.bytes(base, 8), [0; 8], "{which}");
        }
    }
    let gpu = Ranks::new(Lanes::Well).apart(2);
    let team = team(&gpu, 2, patient());
    let window = team.window(Kind::Device, WINDOW).unwrap();
    assert_eq!(run(&gpu, &team, window, (&team, window), 14), [0; 2]);
}

/// A kernel that waits for the proxy of a team whose lanes are so.
fn with_lane(lanes: Lanes) -> Failure {
    let gpu = Ranks::new(lanes);
    let team = team(&gpu, 2, patient());
    let data = team.window(Kind::Device, WINDOW).unwrap();
    gpu.launch_all(&team, "ping_pong", 32, |rank| {
        let params = Params::default().team(&team, rank).window(&team, rank, data).window(&team, rank, data);
        params.long(64).word(3).word(2)
    });
    team.failure().expect("the team has ended")
}

#[test]
fn a_proxy_that_ends_ends_the_kernels_that_wait_for_it() {
    let failure = with_lane(Lanes::Panic);
    assert!(matches!(failure, Failure::Proxy(0 | 1)), "{failure}");
}

#[test]
fn copies_that_fail_end_the_team_with_the_drivers_words() {
    let failure = with_lane(Lanes::Fail);
    assert!(
        failure.to_string().contains("the proxy could not copy: a copy: this lane was to fail"),
        "{failure}"
    );
}

#[test]
fn the_program_can_end_a_wait() {
    // That of signal_wait, and a loop over signal_test.
    for which in [8, 13] {
        let gpu = Ranks::new(Lanes::Well);
        let team = team(&gpu, 2, patient());
        let window = team.window(Kind::Device, WINDOW).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| run(&gpu, &team, window, (&team, window), which));
            std::thread::sleep(Duration::from_millis(50));
            team.abort();
            assert_eq!(waiting.join().unwrap(), [u64::from(Status::Aborted.code()); 2], "{which}");
        });
        assert_eq!(team.failure(), Some(Failure::Program));
    }
}

#[test]
fn teams_and_windows_that_cannot_be_are_refused() {
    let gpu = Ranks::new(Lanes::Well);
    let make = |ranks: usize, options| Team::of_process(&gpu.gpus(ranks), options).map(drop);
    assert!(matches!(make(0, patient()), Err(TeamError::Ranks(0))));
    assert!(matches!(make(65, patient()), Err(TeamError::Ranks(65))));
    for (queues, capacity, threads) in
        [(0, 4, 1), (9, 4, 1), (1, 3, 1), (1, 1, 1), (1, 1 << 17, 1), (1, 4, 2), (1, 4, 0)]
    {
        let refused = make(1, Options { queues, capacity, threads, ..patient() });
        assert!(matches!(refused, Err(TeamError::Queues { .. })), "{queues} {capacity} {threads}");
    }
    let team = team(&gpu, 2, patient());
    assert!(matches!(team.window(Kind::Device, 0), Err(TeamError::WindowSize(0))));
    assert!(matches!(team.window(Kind::Host, 1 << 36), Err(TeamError::WindowSize(_))));
    assert!(matches!(team.handle(2), Err(TeamError::NoSuchRank(2))));
    assert!(matches!(team.free(0), Err(TeamError::NoSuchWindow(0))), "barriers need it");
    let one = team.window(Kind::Device, 16).unwrap();
    team.free(one).unwrap();
    assert!(matches!(team.free(one), Err(TeamError::NoSuchWindow(_))));
    let made = (0..63).map(|_| team.window(Kind::Device, 16)).collect::<Result<Vec<_>, _>>().unwrap();
    assert!(made.contains(&one), "its number is free again");
    assert!(matches!(team.window(Kind::Device, 16), Err(TeamError::Windows)));
    // SAFETY: they are refused.
    let short = unsafe { team.register(Kind::Device, &[4096], 16) };
    assert!(matches!(short, Err(TeamError::Parts { found: 1, ranks: 2 })));
}
