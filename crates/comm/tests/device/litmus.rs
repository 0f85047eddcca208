//! Litmus tests between ranks: outcomes that the memory model of PTX forbids must not be seen.
//!
//! A test that can see no weak outcome proves nothing, so store buffering without its fence must show one.
//! The software GPU's threads are threads of an x86 machine, which reorders a store with a later load and
//! nothing else; a GPU has many more ways, but takes one rarely: `tests/cuda/device_litmus.cuh` says what is
//! done about that.

use core::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// From what the next run's numbers are drawn.
static DRAWN: AtomicU32 = AtomicU32::new(0);

const MESSAGE_PASSING: u32 = 0;
const STORE_BUFFERING: u32 = 1;
const INDEPENDENT_READS: u32 = 2;

/// Words of 8 bytes in a line, and those in front of the instances' lines, as in `device_litmus.cuh`.
const LINE: u64 = 16;
const INSTANCES_AT: u64 = LINE * (1 + 1024);

/// How the machine is filled.
struct Crowd {
    /// Blocks of each rank that test, and that keep the memory system busy.
    testers: u32,
    crowding: u32,
    threads: u32,
    /// Rounds of a launch, in each of which every testing thread makes the test once.
    rounds: u32,
}

impl Crowd {
    fn of_machine(ranks: usize) -> Self {
        match (is_cuda(), ranks) {
            // The blocks of all ranks run at the same time, on a GPU with 40 multiprocessors and more.
            (true, 2) => Self { testers: 32, crowding: 32, threads: 256, rounds: 128 },
            (true, _) => Self { testers: 16, crowding: 16, threads: 256, rounds: 128 },
            (false, _) => Self { testers: 1, crowding: 0, threads: 512, rounds: 128 },
        }
    }

    fn instances(&self) -> u32 {
        self.testers * self.threads
    }

    /// Launches in which the test is made a million times.
    fn launches(&self) -> u32 {
        1_000_000_u32.div_ceil(self.instances() * self.rounds)
    }
}

/// Runs a test often, and counts how often the ranks found these.
fn count(ranks: usize, kind: u32, fenced: bool, is_forbidden: fn(&[u8]) -> bool) -> (u64, u64) {
    let gpu = Ranks::new(Lanes::Well);
    let team = team(&gpu, ranks, patient());
    let crowd = Crowd::of_machine(ranks);
    let bytes = 8 * (INSTANCES_AT + 2 * LINE * u64::from(crowd.instances()));
    let window = team.window(Kind::Device, bytes).unwrap();
    let made = crowd.instances() * crowd.rounds;
    let outcomes: Vec<_> = (0..ranks).map(|_| gpu.filled(&vec![0; made as usize])).collect();
    let zeros = vec![0; bytes as usize];
    let (mut forbidden, mut other) = (0, 0);
    // Other delays and partners each time.
    let start = DRAWN.fetch_add(1 << 16, Ordering::Relaxed) ^ std::process::id();
    for launch in 0..crowd.launches() {
        // Words in all parts of the window, so that ranks on two GPUs find them here and there.
        let homes = [launch % ranks as u32, launch / ranks as u32 % ranks as u32];
        for home in homes {
            gpu.write(team.window_handle(home, window).unwrap().base, &zeros);
        }
        let grid = [crowd.testers + crowd.crowding, crowd.threads];
        gpu.launch_blocks(&team, "litmus_in_a_crowd", grid, |rank| {
            let params = Params::default().team(&team, rank).window(&team, rank, window);
            let params = params.word(kind).word(u32::from(fenced)).word(u32::from(is_cuda()));
            let params = params.word(crowd.rounds).word(crowd.testers).word(start.wrapping_add(launch));
            params.word(homes[0]).word(homes[1]).long(outcomes[rank as usize].address)
        });
        assert_eq!(team.failure(), None);
        let found: Vec<Vec<u8>> =
            outcomes.iter().map(|block| gpu.bytes(block.address, u64::from(made))).collect();
        for at in 0..made as usize {
            let found: Vec<u8> = found.iter().map(|of_rank| of_rank[at]).collect();
            if is_forbidden(&found) { forbidden += 1 } else { other += 1 }
        }
    }
    (forbidden, other)
}

/// The signal was seen, and what was written before it was not.
fn passed_by(found: &[u8]) -> bool {
    found[1] == 1
}

/// Both have written, and neither has seen it.
fn both_missed(found: &[u8]) -> bool {
    found[0] == 0 && found[1] == 0
}

/// Two readers have seen two writes in two orders.
fn disagree(found: &[u8]) -> bool {
    found[2] == 1 && found[3] == 1
}

/// The outcome is never seen with the orders of the operations. How often it is without them is what is
/// returned, and printed for whoever reads the output of a GPU's test.
fn is_never_seen(name: &str, ranks: usize, kind: u32, is_forbidden: fn(&[u8]) -> bool) -> u64 {
    let (forbidden, other) = count(ranks, kind, true, is_forbidden);
    assert!(forbidden == 0 && other >= 1_000_000, "{name}: {forbidden} beside {other}");
    let (weak, others) = count(ranks, kind, false, is_forbidden);
    println!("{name}: 0 of {other} in order, {weak} of {} relaxed", weak + others);
    weak
}

#[test]
fn a_signal_does_not_pass_what_was_written_before_it() {
    is_never_seen("message passing", 2, MESSAGE_PASSING, passed_by);
}

#[test]
fn with_the_sequential_fence_one_of_two_sees_the_other_and_without_it_not_always() {
    let weak = is_never_seen("store buffering", 2, STORE_BUFFERING, both_missed);
    // More often where it takes that: both must be at the same place at the same time.
    let seen = weak > 0 || (0..30).any(|_| count(2, STORE_BUFFERING, false, both_missed).0 > 0);
    assert!(seen, "no weak outcome was seen, so that the test proves nothing");
}

#[test]
fn all_see_independent_writes_in_one_order() {
    is_never_seen("independent reads", 4, INDEPENDENT_READS, disagree);
}
