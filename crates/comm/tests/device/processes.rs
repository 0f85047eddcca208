//! Ranks that are processes, as teams know them, each with a team of its own: here they are threads, which meet by
//! the sockets of a team and hand each other their windows.

use causeway_comm::device::peers::Peers;

use super::*;
use crate::machine::is_cuda;

const RANKS: u32 = 3;
const ADDITIONS: u32 = 5;
const THREADS: u32 = 64;

/// What a rank does with its team; all do it at the same time.
fn as_processes(number: u8, policy: InitiatorPolicy, run: impl Fn(&Ranks, &Team, u32) + Sync) {
    let folder = tempfile::tempdir().unwrap();
    let mut nonce = [number; 16];
    nonce[..4].copy_from_slice(&std::process::id().to_le_bytes());
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let (folder, run) = (folder.path().to_owned(), &run);
            scope.spawn(move || {
                let gpu = Ranks::new(Lanes::Well);
                let peers = Peers::join(nonce, rank, RANKS, Some(folder)).unwrap();
                let own = gpu.gpus(1).remove(0);
                let team = Team::of_processes(own, peers, RANKS, Options { policy, ..patient() }).unwrap();
                run(&gpu, &team, rank);
            });
        }
    });
}

#[test]
fn windows_of_all_kinds_reach_other_processes() {
    // Natively ranks of one process on one GPU would map its memory twice; `device_processes` has real processes.
    if is_cuda() {
        return;
    }
    let seed = u64::from(std::process::id()) + 1;
    let kinds = [Kind::Device, Kind::Host];
    let wishes = [InitiatorPolicy::Auto, InitiatorPolicy::Proxy];
    for (number, (policy, kind)) in
        wishes.into_iter().flat_map(|policy| kinds.map(|kind| (policy, kind))).enumerate()
    {
        as_processes(number as u8, policy, |gpu, team, rank| {
            let what = format!("seed {seed}: {policy:?}, data {kind:?}, rank {rank}");
            let data = team.window(kind, 64).unwrap();
            let (signals, words) = (team.window(kind, 64).unwrap(), team.window(Kind::Host, 64).unwrap());
            assert!(team.is_in_host(words), "{what}");
            let wrong = gpu.filled(&[0; 8]);
            let params =
                Params::default().team(team, rank).window(team, rank, data).window(team, rank, signals);
            let params = params.word(20).word(1).long(seed).long(wrong.address);
            gpu.launch_one("words_of_others", THREADS, params);
            assert_eq!(team.failure(), None, "{what}");
            assert_eq!(gpu.bytes(wrong.address, 8), [0; 8], "{what}");
            // All count up words of the next one, by the proxies of processes that know nothing of each other.
            let params = Params::default().team(team, rank).window(team, rank, words).word(ADDITIONS);
            gpu.launch_one("count_up", THREADS, params);
            // Its end is after that of all that it asked for; of what was asked of this rank a barrier tells.
            gpu.launch_one("meet", THREADS, Params::default().team(team, rank));
            let found = gpu.bytes(team.window_handle(rank, words).unwrap().base, 32);
            let each = u64::from(THREADS / 4 * ADDITIONS).to_le_bytes();
            assert_eq!(found, each.repeat(4), "{what}");
        });
    }
}
