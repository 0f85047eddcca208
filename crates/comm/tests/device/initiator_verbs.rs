//! Ranks of other hosts for which kernels write the network card's requests themselves: what is forced and what is
//! chosen, full queues and rings that wrap around, errors with queue pair, operation and cause, the end of a team.

use std::process::Command;

use causeway_comm::board::BoardLocations;
use causeway_comm::device::choice::{Curve, Curves, Initiator};
use causeway_comm::device::failure::{Failure, NicError, Refused, Status};
use causeway_comm::device::peers::{PeerLocations, Peers};
use causeway_comm::device::verbs::layout::operation;

use super::*;
use crate::verbs::pair::cause::{REMOTE_ACCESS, RETRY_EXCEEDED};
use crate::verbs::softcard::SoftCard;

const BYTES: u64 = 4096;

fn by_verbs() -> Options {
    SoftCard::get();
    let network = NetworkPolicy::Device("mlx5_0".to_owned());
    Options { policy: InitiatorPolicy::Verbs, network, ..patient() }
}

/// Ranks on hosts of their own, and windows; `None` for those in memory of a real GPU, which the soft card does not
/// reach.
fn apart(ranks: usize, options: &Options, windows: &[(Kind, u64)]) -> Option<(Ranks, Vec<Team>, Vec<u32>)> {
    if is_cuda() && windows.iter().any(|(kind, _)| *kind == Kind::Device) {
        return None;
    }
    let gpu = Ranks::new(Lanes::Well);
    let of_rank: Vec<usize> = (0..ranks).collect();
    let (teams, windows) = Hosts::new(&of_rank).teams(&gpu, options, windows);
    Some((gpu, teams, windows))
}

fn ping_pong(gpu: &Ranks, teams: &[Team], [data, words]: [u32; 2], bytes: u64, rounds: u32, by: u32) {
    gpu.launch_all(&teams[0], "ping_pong", 32, |rank| {
        let team = &teams[rank as usize];
        let params = Params::default().team(team, rank).window(team, rank, data).window(team, rank, words);
        params.long(bytes).word(rounds).word(by)
    });
}

fn must_be_well(teams: &[Team]) {
    assert_eq!(teams.iter().find_map(Team::failure), None);
    assert_eq!(SoftCard::get().complaint(), "");
}

#[test]
fn what_is_forced_goes_by_the_card_and_is_told() {
    for kinds in [[Kind::Device; 2], [Kind::Host; 2], [Kind::Device, Kind::Host], [Kind::Host, Kind::Device]]
    {
        let windows = kinds.map(|kind| (kind, BYTES));
        let Some((gpu, teams, windows)) = apart(2, &by_verbs(), &windows) else { continue };
        let base = |rank: u32, window: usize| {
            teams[rank as usize].window_handle(rank, windows[window]).unwrap().base
        };
        gpu.write(base(0, 0), &[7; 1000]);
        ping_pong(&gpu, &teams, [windows[0], windows[1]], 1000, 10, 0);
        must_be_well(&teams);
        assert_eq!(gpu.bytes(base(1, 0), 1000), [7; 1000], "{kinds:?}");
        assert_eq!(teams[0].counts(0).unwrap()[Initiator::Verbs.code()], [10, 10_000], "{kinds:?}");
        let decisions = teams[0].decisions();
        let told = "rank 0: 10 messages of 513 to 1024 bytes by blocks, by verbs: CAUSEWAY_DEVICE_INITIATOR names it";
        assert!(decisions.iter().any(|line| line == told), "{decisions:?}");
        let report = teams[0].report();
        assert!(report.contains(&"rank 0: kernels may post for rank 1 themselves".to_owned()), "{report:?}");
        assert!(report.contains(&"rank 0: 10 messages, 10000 bytes by verbs".to_owned()), "{report:?}");
    }
}

#[test]
fn without_a_card_at_both_ends_the_proxy_takes_what_is_forced() {
    if is_cuda() {
        return;
    }
    let gpu = Ranks::new(Lanes::Well);
    let hosts = Hosts::new(&[0, 1]);
    let made = hosts.all(|rank| {
        let network = if rank == 0 { by_card() } else { over_tcp() };
        let own = gpu.gpus(2).remove(rank as usize);
        let team = Team::of_processes(own, hosts.join(rank), 2, Options { network, ..by_verbs() }).unwrap();
        let window = team.window(Kind::Host, BYTES).unwrap();
        (team, window)
    });
    let window = made[0].1;
    let teams: Vec<Team> = made.into_iter().map(|(team, _)| team).collect();
    ping_pong(&gpu, &teams, [window, window], 8, 3, 0);
    must_be_well(&teams);
    assert_eq!(teams[0].counts(0).unwrap()[Initiator::Proxy.code()], [3, 24]);
    let report = teams[1].report().join("\n");
    assert!(report.contains("rank 1: kernels do not post for rank 0: "), "{report}");
}

/// Curves by which one initiator is the cheaper one for short messages, and the other for long ones.
fn curves(of_short: Initiator) -> Curves {
    let of_long = if of_short == Initiator::Verbs { Initiator::Proxy } else { Initiator::Verbs };
    let short = Curve { latency: 1.0, post: 1.0, bandwidth: 0.01, packs: 1.0, packs_below: 0.0 };
    let long = Curve { latency: 1e5, post: 1e5, bandwidth: 1e5, packs: 1.0, packs_below: 0.0 };
    let mut curves = vec![(of_short, short), (of_long, long)];
    curves.sort_by_key(|(initiator, _)| *initiator);
    Curves(curves)
}

#[test]
fn the_cheaper_one_is_chosen_for_each_message() {
    for of_short in [Initiator::Verbs, Initiator::Proxy] {
        let of_long = if of_short == Initiator::Verbs { Initiator::Proxy } else { Initiator::Verbs };
        let options =
            Options { policy: InitiatorPolicy::Auto, network_curves: Some(curves(of_short)), ..by_verbs() };
        let Some((gpu, teams, windows)) = apart(2, &options, &[(Kind::Device, 1 << 16), (Kind::Device, 64)])
        else {
            return;
        };
        for bytes in [64, 1 << 16] {
            for (rank, team) in (0..).zip(&teams) {
                gpu.write(team.window_handle(rank, windows[1]).unwrap().base, &[0; 8]);
            }
            ping_pong(&gpu, &teams, [windows[0], windows[1]], bytes, 2, 0);
            must_be_well(&teams);
        }
        let counts = teams[0].counts(0).unwrap();
        assert_eq!(counts[of_short.code()], [2, 128], "{of_short}");
        assert_eq!(counts[of_long.code()], [2, 1 << 17], "{of_short}");
        let decisions = teams[0].decisions();
        let told = format!("rank 0: 2 messages of 33 to 64 bytes by blocks, by {of_short}: it costs least");
        assert!(decisions.iter().any(|line| line.starts_with(&told)), "{decisions:?}");
    }
}

#[test]
fn what_messages_take_corrects_both_costs() {
    const MAX_ROUNDS: usize = 200;
    let options = Options { policy: InitiatorPolicy::Auto, ..by_verbs() };
    let windows = [(Kind::Host, 64), (Kind::Host, 64)];
    let Some((gpu, teams, windows)) = apart(2, &options, &windows) else { return };
    let has_both = |decisions: &[String]| {
        ["proxy", "verbs"].iter().all(|by| {
            decisions
                .iter()
                .any(|line| line.starts_with(&format!("a short message over the network by {by}: ")))
        })
    };
    let round = || {
        // By the proxy, and atomic operations, which the cards make.
        for (rank, team) in (0..).zip(&teams) {
            gpu.write(team.window_handle(rank, windows[1]).unwrap().base, &[0; 8]);
        }
        ping_pong(&gpu, &teams, [windows[0], windows[1]], 8, 5, Initiator::Proxy.code() as u32);
        let answers: Vec<_> = (0..2).map(|_| gpu.filled(&[0xff; 8])).collect();
        gpu.launch_all(&teams[0], "mistake", 1, |rank| {
            let team = &teams[rank as usize];
            let window = |params: Params| params.window(team, rank, windows[0]);
            window(window(Params::default().team(team, rank))).word(14).long(answers[rank as usize].address)
        });
        must_be_well(&teams);
        std::thread::sleep(Duration::from_millis(20));
        has_both(&teams[0].decisions())
    };
    assert!((0..MAX_ROUNDS).any(|_| round()), "nothing was corrected: {:?}", teams[0].decisions());
}

#[test]
fn a_full_queue_and_rings_that_wrap_around_lose_nothing() {
    // More requests than the card counts in 16 bits, in a ring of 16.
    for (capacity, threads, times) in [(16, 96, 20), (16, 64, 1100), (1024, 96, 20)] {
        let options = Options { capacity, ..by_verbs() };
        let Some((gpu, teams, windows)) = apart(2, &options, &[(Kind::Host, 64)]) else { return };
        gpu.launch_all(&teams[0], "count_up", threads, |rank| {
            let team = &teams[rank as usize];
            Params::default().team(team, rank).window(team, rank, windows[0]).word(times)
        });
        must_be_well(&teams);
        gpu.launch_all(&teams[0], "meet", 32, |rank| Params::default().team(&teams[rank as usize], rank));
        for (rank, team) in (0..).zip(&teams) {
            let found = gpu.bytes(team.window_handle(rank, windows[0]).unwrap().base, 32);
            let each = u64::from(threads / 4 * times).to_le_bytes();
            assert_eq!(found, each.repeat(4), "{capacity} {threads} {times}");
        }
    }
}

#[test]
fn what_was_got_is_there_behind_quiet_and_what_was_put_behind_a_fence() {
    const BYTES: u64 = 1 << 17;
    let [proxy, verbs] = [Initiator::Proxy, Initiator::Verbs].map(|initiator| initiator.code() as u32);
    for kind in [Kind::Host, Kind::Device] {
        let Some((gpu, teams, windows)) = apart(2, &by_verbs(), &[(kind, BYTES), (Kind::Host, 64)]) else {
            return;
        };
        let wrong = gpu.filled(&[0; 8]);
        for (rank, team) in (0..).zip(&teams) {
            let base = team.window_handle(rank, windows[0]).unwrap().base;
            gpu.write(base, &(1000 + u64::from(rank)).to_le_bytes());
        }
        gpu.launch_all(&teams[0], "get_and_look", 1, |rank| {
            let team = &teams[rank as usize];
            let params = Params::default().team(team, rank).window(team, rank, windows[0]);
            params.word(100).word(verbs).long(wrong.address)
        });
        must_be_well(&teams);
        assert_eq!(gpu.bytes(wrong.address, 8), [0; 8], "{kind:?}: words that were got");
        for (put_by, signal_by) in [(verbs, verbs), (verbs, proxy), (proxy, verbs)] {
            for (rank, team) in (0..).zip(&teams) {
                gpu.write(team.window_handle(rank, windows[1]).unwrap().base, &[0; 8]);
            }
            gpu.launch_all(&teams[0], "put_fence_signal", 32, |rank| {
                let team = &teams[rank as usize];
                let params = Params::default().team(team, rank).window(team, rank, windows[0]);
                let params = params.window(team, rank, windows[1]).word(20).word(put_by).word(signal_by);
                params.long(wrong.address)
            });
            must_be_well(&teams);
            assert_eq!(
                gpu.bytes(wrong.address, 8),
                [0; 8],
                "{kind:?}: put by {put_by}, signal by {signal_by}"
            );
        }
    }
}

#[test]
fn what_was_posted_before_the_end_of_a_team_arrives() {
    let options = Options { capacity: 16, ..by_verbs() };
    let Some((gpu, teams, windows)) = apart(2, &options, &[(Kind::Device, BYTES)]) else { return };
    let parts = [0, 1].map(|rank| teams[rank as usize].window_handle(rank, windows[0]).unwrap().base);
    gpu.write(parts[0], &[9; BYTES as usize / 2]);
    // By one rank, whose kernel waits for nothing.
    let params = Params::default().team(&teams[0], 0).window(&teams[0], 0, windows[0]).word(32);
    gpu.launch_one("put_and_leave", 1, params);
    let mut teams = teams.into_iter();
    let (first, second) = (teams.next().unwrap(), teams.next().unwrap());
    std::thread::scope(|scope| {
        // Each waits for the other one to leave.
        scope.spawn(|| drop(first));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(gpu.bytes(parts[1] + BYTES / 2, BYTES / 2), [9; BYTES as usize / 2]);
        drop(second);
    });
    assert_eq!(SoftCard::get().complaint(), "");
}

fn refused(team: &Team) -> Refused {
    let failure = team.failure().expect("the team has ended");
    let Failure::Refused { refused, .. } = failure else { panic!("{failure}") };
    refused
}

#[test]
fn a_key_that_the_peer_does_not_know_ends_the_team_with_queue_pair_operation_and_cause() {
    let Some((gpu, teams, windows)) = apart(2, &by_verbs(), &[(Kind::Host, BYTES)]) else { return };
    teams[1].free(windows[0]).unwrap();
    let window = |params: Params| params.window(&teams[0], 0, windows[0]);
    // The kernel waits for a signal that does not come: it hears of the error in that wait.
    let params = window(window(Params::default().team(&teams[0], 0))).long(64).word(1).word(0);
    gpu.launch_one("ping_pong", 32, params);
    let number = teams[0].queue_pair_for(1).unwrap();
    let found = refused(&teams[0]);
    let nic = NicError { queue_pair: number, operation: operation::RDMA_WRITE, syndrome: REMOTE_ACCESS };
    assert_eq!(
        (found.status, found.nic, found.peer, found.window),
        (Status::NicFailed, Some(nic), 1, windows[0])
    );
    let told = teams[0].failure().unwrap().to_string();
    for words in [
        "rank 0: a put of bytes at offset 0 of window",
        &format!("queue pair {number:#x}, RDMA write: "),
        "does not allow access",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_peer_that_does_not_answer_ends_every_wait() {
    // An atomic operation, and a loop over signal_test behind a put.
    for (which, kernel, what) in
        [(0, "mistake", operation::FETCH_AND_ADD), (1, "ping_pong", operation::RDMA_WRITE)]
    {
        let Some((gpu, teams, windows)) = apart(2, &by_verbs(), &[(Kind::Host, BYTES)]) else { return };
        let number = teams[0].queue_pair_for(1).unwrap();
        SoftCard::get().fail(number, 0, RETRY_EXCEEDED);
        let answer = gpu.filled(&[0; 8]);
        let window = |params: Params| params.window(&teams[0], 0, windows[0]);
        let params = window(window(Params::default().team(&teams[0], 0)));
        let params =
            if which == 0 { params.word(14).long(answer.address) } else { params.long(64).word(1).word(3) };
        gpu.launch_one(kernel, 32, params);
        let nic = NicError { queue_pair: number, operation: what, syndrome: RETRY_EXCEEDED };
        assert_eq!(refused(&teams[0]).nic, Some(nic));
    }
}

#[test]
fn a_rank_that_aborts_ends_the_waits_of_the_other() {
    let Some((gpu, teams, windows)) = apart(2, &by_verbs(), &[(Kind::Host, BYTES)]) else { return };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let window = |params: Params| params.window(&teams[0], 0, windows[0]);
            let params = window(window(Params::default().team(&teams[0], 0))).long(64).word(2).word(0);
            gpu.launch_one("ping_pong", 32, params);
        });
        std::thread::sleep(Duration::from_millis(50));
        teams[1].abort();
        waiting.join().unwrap();
    });
    assert_eq!(teams[0].failure(), Some(Failure::Peer(1)));
}

/// The team's nonce for the other process; without it `the_other_rank` does nothing.
const NONCE: &str = "CAUSEWAY_TEST_TEAM_NONCE";
/// Whether that ends in the middle.
const IS_LOST: &str = "CAUSEWAY_TEST_TEAM_IS_LOST";

/// A rank of two, each in a process of its own with a card of its own. The failure of its team.
fn rank_of_two(nonce: u128, rank: u32, is_lost: bool) -> Option<Failure> {
    let gpu = Ranks::new(Lanes::Well);
    let folder = tempfile::tempdir().unwrap();
    let boards = BoardLocations { folders: vec![folder.path().to_owned()], system_v: false };
    let locations = PeerLocations { boards, hosts: vec!["127.0.0.1".to_owned()] };
    let options = by_verbs();
    let peers = Peers::join(nonce.to_be_bytes(), rank, 2, &locations).unwrap();
    let team = Team::of_processes(gpu.gpus(1).remove(0), peers, 2, options).unwrap();
    let data = team.window(Kind::Device, BYTES).unwrap();
    let words = team.window(Kind::Device, 64).unwrap();
    let base = |window| team.window_handle(rank, window).unwrap().base;
    if rank == 0 {
        gpu.write(base(data), &[7; 1000]);
    }
    let pair = |rounds| {
        let params = Params::default().team(&team, rank).window(&team, rank, data).window(&team, rank, words);
        gpu.launch_one("ping_pong", 32, params.long(1000).word(rounds).word(0));
    };
    pair(20);
    // The other one may be gone by now, if it is to be.
    if !is_lost {
        assert_eq!(team.failure(), None);
        assert_eq!(gpu.bytes(base(data), 1000), [7; 1000]);
    }
    if is_lost && rank == 1 {
        // At once, as a process does that is killed.
        std::process::abort();
    }
    if is_lost {
        gpu.write(base(words), &[0; 8]);
        pair(1);
        return team.failure();
    }
    // Every thread counts up words of the other one, which the cards do; more than a ring holds.
    let counters = team.window(Kind::Host, 64).unwrap();
    let params = Params::default().team(&team, rank).window(&team, rank, counters).word(20);
    gpu.launch_one("count_up", 64, params);
    gpu.launch_one("meet", 32, Params::default().team(&team, rank));
    assert_eq!(team.failure(), None);
    assert_eq!(gpu.bytes(base(counters), 32), (16 * 20_u64).to_le_bytes().repeat(4));
    assert_eq!(SoftCard::get().complaint(), "");
    None
}

#[test]
fn the_other_rank() {
    let Ok(nonce) = std::env::var(NONCE) else { return };
    rank_of_two(u128::from_str_radix(&nonce, 16).unwrap(), 1, std::env::var_os(IS_LOST).is_some());
}

#[test]
fn kernels_of_two_processes_post_for_each_other_and_hear_of_the_others_end() {
    if is_cuda() {
        return;
    }
    for is_lost in [false, true] {
        let nonce = u128::from_be_bytes(causeway_comm::Job::random_nonce().unwrap());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "initiator_verbs::the_other_rank"]).env(NONCE, format!("{nonce:032x}"));
        if is_lost {
            command.env(IS_LOST, "1");
        }
        let mut other = command.spawn().unwrap();
        let failure = rank_of_two(nonce, 0, is_lost);
        let status = other.wait().unwrap();
        if is_lost {
            let failure = failure.expect("the team has ended");
            let has_heard = failure == Failure::Peer(1)
                || matches!(failure, Failure::Link { peer: 1, .. })
                || matches!(failure, Failure::Refused { refused, .. } if refused.status == Status::NicFailed);
            assert!(has_heard, "{failure}");
        } else {
            assert!(failure.is_none() && status.success(), "{failure:?} {status}");
        }
    }
}
