//! Communication of kernels of several ranks: the headers of `device/include`, compiled by nvcc, run on the
//! software GPU with the proxies of this crate: random programs against a model, litmus tests, mistakes.
//!
//! `make programs` compiles the kernels.

mod cuda;
mod initiator_verbs;
mod litmus;
mod machine;
mod mistakes;
mod network_cards;
mod processes;
mod programs;
mod remote;
mod software;
#[path = "../common/split_mix.rs"]
mod split_mix;
mod stencil;
mod verbs;

use std::time::Duration;

use causeway_comm::device::choice::InitiatorPolicy;
use causeway_comm::device::team::{Kind, NetworkPolicy, Options, Team, TeamError};

use machine::{Lanes, Params, Ranks, is_cuda};
use processes::Hosts;
use programs::{Abilities, DATA, Program, WORDS};
use split_mix::Random;

/// A team of so many ranks. Waits take long where the machine is busy.
fn team(gpu: &Ranks, ranks: usize, options: Options) -> Team {
    Team::of_process(&gpu.gpus(ranks), options).unwrap()
}

fn patient() -> Options {
    Options { limit: Duration::from_secs(100), ..Options::default() }
}

/// By the soft card, which reaches no memory of a real GPU.
fn by_card() -> NetworkPolicy {
    if is_cuda() {
        return NetworkPolicy::Tcp("the soft card reaches no memory of a GPU");
    }
    verbs::softcard::SoftCard::get();
    NetworkPolicy::Device("mlx5_0".to_owned())
}

fn over_tcp() -> NetworkPolicy {
    NetworkPolicy::Tcp("the test asks for it")
}

/// Draws a team and a program, runs it, and compares everything.
fn run_program(seed: u64) {
    let mut random = Random(seed);
    let ranks = 2 + random.below(7) as usize;
    let policies = [
        InitiatorPolicy::Auto,
        InitiatorPolicy::Auto,
        InitiatorPolicy::Direct,
        InitiatorPolicy::Proxy,
        InitiatorPolicy::Verbs,
        InitiatorPolicy::Verbs,
    ];
    let policy = policies[random.below(6) as usize];
    let mut kind = || if random.below(2) == 0 { Kind::Device } else { Kind::Host };
    let kinds = [kind(), kind(), kind()];
    // In one process, or in processes on two or three hosts, or on one for each.
    let hosts = [1, 1, 2, 3, 4][random.below(5) as usize];
    let ranks = if hosts > 1 { 2 + ranks % 3 } else { ranks };
    let hosts = hosts.min(ranks);
    // Natively all ranks on one host would map the memory of the one GPU twice.
    let of_rank: Vec<usize> = (0..ranks).map(|rank| if is_cuda() { rank } else { rank % hosts }).collect();
    let is_spread = hosts > 1;
    let queues = 1 + random.below(3) as usize;
    let capacity = [4, 16, 1024][random.below(3) as usize];
    let has_card = random.below(3) > 0;
    // Kernels post for all ranks: also for their own, which is how cards make atomic changes.
    let is_by_verbs = has_card
        && !is_cuda()
        && hosts == ranks
        && matches!(policy, InitiatorPolicy::Auto | InitiatorPolicy::Verbs)
        && (seed.is_multiple_of(2) || kinds == [Kind::Host; 3]);
    let abilities = Abilities {
        is_by_verbs,
        is_mapped: policy != InitiatorPolicy::Proxy && !is_spread,
        has_atomics: policy != InitiatorPolicy::Proxy || kinds[2] == Kind::Host || is_spread,
    };
    let program = Program::draw(seed, ranks, 4, abilities);
    let gpu = Ranks::new(Lanes::Delayed(seed));
    // On a GPU each part would be mapped twice, which kernels may not rely on without a fence for that.
    let are_apart = random.below(2) == 1 && !is_cuda() && !is_spread;
    let gpu = if are_apart { gpu.apart(ranks) } else { gpu };
    let what = format!(
        "seed {seed}: {ranks} ranks on {hosts} hosts, {policy:?}, windows {kinds:?}, {queues} queues of {capacity}, \
         apart: {are_apart}, by card: {has_card}"
    );
    let network = if has_card { by_card() } else { over_tcp() };
    let options = Options { policy, queues, capacity, network, ..patient() };
    let windows = [(kinds[0], DATA), (kinds[1], DATA), (kinds[2], WORDS)];
    let (teams, windows) = if is_spread {
        Hosts::new(&of_rank).teams(&gpu, &options, &windows)
    } else {
        let team = team(&gpu, ranks, options);
        let windows = windows.map(|(kind, bytes)| team.window(kind, bytes).unwrap());
        (vec![team], windows.to_vec())
    };
    let team = |rank: u32| teams.get(rank as usize).unwrap_or(&teams[0]);
    let base = |rank: u32, window: usize| team(rank).window_handle(rank, windows[window]).unwrap().base;
    let mut buffers = Vec::new();
    for (rank, start) in program.start.iter().enumerate() {
        for (window, bytes) in start.iter().enumerate() {
            gpu.write(base(rank as u32, window), bytes);
        }
        let steps = gpu.filled(programs::bytes_of(&program.steps[rank]));
        buffers.push((steps, gpu.filled(&vec![0xff; 16 * program.steps[rank].len()])));
    }
    gpu.launch_all(&teams[0], "random_program", 64, |rank| {
        let (steps, answers) = &buffers[rank as usize];
        let (team, none) = (team(rank), Params::default());
        let params =
            windows.iter().fold(none.team(team, rank), |params, window| params.window(team, rank, *window));
        params.long(steps.address).long(program.steps[rank as usize].len() as u64).long(answers.address)
    });
    if let Some(failure) = teams.iter().find_map(Team::failure) {
        panic!("{what}: {failure}");
    }
    for (rank, (_, answers)) in buffers.iter().enumerate() {
        let words = gpu.bytes(answers.address, 16 * program.steps[rank].len() as u64);
        let word = |at: usize| u64::from_le_bytes(words[8 * at..][..8].try_into().unwrap());
        for at in 0..program.steps[rank].len() {
            assert_eq!(word(2 * at), 0, "{what}: rank {rank}, step {at}: {:?}", program.steps[rank][at]);
        }
        for (at, answer) in &program.answers[rank] {
            assert_eq!(
                word(2 * at + 1),
                *answer,
                "{what}: rank {rank}, step {at}: {:?}",
                program.steps[rank][*at]
            );
        }
        for window in 0..2 {
            let found = gpu.bytes(base(rank as u32, window), DATA);
            let differs = found.iter().zip(&program.data[rank][window]).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}: rank {rank}, window {window} differs from this byte on");
        }
        let found = gpu.bytes(base(rank as u32, 2), WORDS);
        let found: Vec<u64> =
            found.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(found, program.words[rank], "{what}: rank {rank}");
    }
}

/// `CAUSEWAY_DEVICE_SEED` and `CAUSEWAY_DEVICE_PROGRAMS` try others, and more.
#[test]
fn random_programs_leave_behind_what_the_model_does() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("CAUSEWAY_DEVICE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    for seed in first..first + number("CAUSEWAY_DEVICE_PROGRAMS").unwrap_or(12) {
        run_program(seed);
    }
}

#[test]
fn a_full_queue_makes_producers_wait_and_loses_nothing() {
    for (capacity, queues) in [(2, 1), (4, 2), (64, 1)] {
        let gpu = Ranks::new(Lanes::Well);
        let team = team(&gpu, 2, Options { capacity, queues, ..patient() });
        let words = team.window(Kind::Host, 64).unwrap();
        gpu.launch_all(&team, "count_up", 96, |rank| {
            Params::default().team(&team, rank).window(&team, rank, words).word(20)
        });
        assert_eq!(team.failure(), None);
        for rank in 0..2 {
            let found = gpu.bytes(team.window_handle(rank, words).unwrap().base, 32);
            let counts: Vec<u64> =
                found.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            assert_eq!(counts, [24 * 20; 4], "{capacity} {queues}");
        }
    }
}

#[test]
fn what_another_thread_has_written_is_put() {
    let seed = u64::from(std::process::id()) + 1;
    for by_block in [0, 1] {
        let gpu = Ranks::new(Lanes::Well);
        let team = team(&gpu, 3, patient());
        let (data, signals) =
            (team.window(Kind::Device, 64).unwrap(), team.window(Kind::Device, 64).unwrap());
        let wrong: Vec<_> = (0..3).map(|_| gpu.filled(&[0; 8])).collect();
        gpu.launch_all(&team, "words_of_others", 64, |rank| {
            let params =
                Params::default().team(&team, rank).window(&team, rank, data).window(&team, rank, signals);
            params.word(50).word(by_block).long(seed).long(wrong[rank as usize].address)
        });
        assert_eq!(team.failure(), None, "seed {seed}");
        for block in &wrong {
            assert_eq!(gpu.bytes(block.address, 8), [0; 8], "seed {seed}, by_block {by_block}");
        }
    }
}

#[test]
fn who_moved_what_is_told_at_the_end() {
    let gpu = Ranks::new(Lanes::Well);
    for (policy, by, told) in [(0, 1, "by direct"), (2, 2, "by proxy")] {
        let team = team(&gpu, 2, patient());
        let (data, words) =
            (team.window(Kind::Device, 4096).unwrap(), team.window(Kind::Device, 64).unwrap());
        gpu.launch_all(&team, "ping_pong", 32, |rank| {
            let params =
                Params::default().team(&team, rank).window(&team, rank, data).window(&team, rank, words);
            params.long(100).word(10).word(policy)
        });
        assert_eq!(team.failure(), None);
        assert_eq!(team.counts(1).unwrap()[by], [10, 1000]);
        let report = team.report();
        assert!(report[0].contains("10 messages, 1000 bytes") && report[0].ends_with(told), "{report:?}");
        assert!(report.iter().any(|line| line.starts_with("a thread, alone: ")), "{report:?}");
        let decisions = team.decisions();
        let why = if policy == 0 { "it costs least" } else { "the program names it" };
        let decided = format!("rank 1: 10 messages of 65 to 128 bytes by blocks, {told}: {why}");
        assert!(decisions.iter().any(|line| line.starts_with(&decided)), "{decisions:?}");
    }
}

#[test]
fn what_messages_take_corrects_the_choice_while_the_team_lives() {
    // How many batches of the proxy are timed, after which it looks, depends on the machine.
    const MAX_ROUNDS: usize = 200;
    let gpu = Ranks::new(Lanes::Well);
    let team = team(&gpu, 2, patient());
    let (data, words) = (team.window(Kind::Device, 1 << 16).unwrap(), team.window(Kind::Device, 64).unwrap());
    // By the proxy, enough for a look, and by the threads of a block, which time what is long.
    let round = || {
        for (bytes, by) in [(1 << 15, 1), (8, 2)] {
            for rank in 0..2 {
                gpu.write(team.window_handle(rank, words).unwrap().base, &[0; 8]);
            }
            gpu.launch_all(&team, "ping_pong", 32, |rank| {
                let params =
                    Params::default().team(&team, rank).window(&team, rank, data).window(&team, rank, words);
                params.long(bytes).word(40).word(by)
            });
        }
        assert_eq!(team.failure(), None);
        team.decisions()
    };
    let has_both = |decisions: &Vec<String>| {
        decisions.iter().any(|line| line.starts_with("copies by a block: "))
            && decisions.iter().any(|line| line.starts_with("copies of the proxy: "))
    };
    let decisions = (0..MAX_ROUNDS).map(|_| round()).find(has_both);
    let decisions = decisions.unwrap_or_else(|| panic!("nothing was corrected: {:?}", team.decisions()));
    assert!(
        decisions.iter().any(|line| line.contains("of 5 to 8 bytes by blocks, by proxy")),
        "{decisions:?}"
    );
}
