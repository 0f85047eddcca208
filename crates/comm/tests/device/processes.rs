//! Ranks that are processes, as teams know them, each with a team of its own: here they are threads, which
//! meet by the sockets of a team. Those of one host hand each other their windows; hosts have no board in
//! common, and reach each other over the loopback network.

use std::sync::Mutex;

use causeway_comm::board::BoardLocations;
use causeway_comm::device::peers::{PeerLocations, Peers};

use super::*;
use crate::machine::is_cuda;

const ADDITIONS: u32 = 5;
const THREADS: u32 = 64;

/// Ranks on hosts.
pub struct Hosts {
    /// The host of each rank.
    of_rank: Vec<usize>,
    folders: Vec<tempfile::TempDir>,
    nonce: [u8; 16],
}

impl Hosts {
    /// A team whose ranks are on these hosts.
    pub fn new(of_rank: &[usize]) -> Self {
        let folders = (0..=*of_rank.iter().max().unwrap()).map(|_| tempfile::tempdir().unwrap()).collect();
        Self { of_rank: of_rank.to_vec(), folders, nonce: causeway_comm::Job::random_nonce().unwrap() }
    }

    pub fn ranks(&self) -> u32 {
        self.of_rank.len() as u32
    }

    /// Meets the others.
    pub fn join(&self, rank: u32) -> Peers {
        let folder = self.folders[self.of_rank[rank as usize]].path().to_owned();
        let boards = BoardLocations { folders: vec![folder], system_v: false };
        let is_one = self.folders.len() == 1;
        let hosts = if is_one { Vec::new() } else { vec!["127.0.0.1".to_owned()] };
        Peers::join(self.nonce, rank, self.ranks(), &PeerLocations { boards, hosts }).unwrap()
    }

    /// What comes of a function of each rank; all run at the same time.
    pub fn all<T: Send>(&self, run: impl Fn(u32) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let run = &run;
            let started: Vec<_> = (0..self.ranks()).map(|rank| scope.spawn(move || run(rank))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The teams of all ranks, which have the windows of these kinds and bytes, with the same numbers.
    pub fn teams(&self, gpu: &Ranks, options: &Options, windows: &[(Kind, u64)]) -> (Vec<Team>, Vec<u32>) {
        let gpus = Mutex::new(gpu.gpus(self.of_rank.len()).into_iter().map(Some).collect::<Vec<_>>());
        let made = self.all(|rank| {
            let own = gpus.lock().unwrap()[rank as usize].take().unwrap();
            let team = Team::of_processes(own, self.join(rank), self.ranks(), options.clone()).unwrap();
            let made: Vec<u32> =
                windows.iter().map(|(kind, bytes)| team.window(*kind, *bytes).unwrap()).collect();
            (team, made)
        });
        let (teams, numbers): (Vec<Team>, Vec<Vec<u32>>) = made.into_iter().unzip();
        assert!(numbers.iter().all(|other| *other == numbers[0]), "ranks number windows alike");
        (teams, numbers[0].clone())
    }
}

#[test]
fn windows_of_all_kinds_reach_other_processes_and_hosts() {
    // Natively ranks of one process on one GPU would map its memory twice; `device_processes` has real
    // processes.
    if is_cuda() {
        return;
    }
    let seed = u64::from(std::process::id()) + 1;
    let (auto, proxy, verbs) = (InitiatorPolicy::Auto, InitiatorPolicy::Proxy, InitiatorPolicy::Verbs);
    // Cards reach the GPU's memory, or do not.
    for (policy, data, signals, hosts, network, reaches) in [
        (auto, Kind::Device, Kind::Device, [0, 0, 0], over_tcp(), true),
        (proxy, Kind::Host, Kind::Host, [0, 0, 0], over_tcp(), true),
        (auto, Kind::Device, Kind::Device, [0, 1, 1], over_tcp(), true),
        (auto, Kind::Device, Kind::Device, [0, 1, 1], by_card(), true),
        // A thread of the host sends the signals, and a lane that is late has the bytes.
        (auto, Kind::Device, Kind::Host, [0, 1, 2], over_tcp(), true),
        (auto, Kind::Device, Kind::Host, [0, 1, 2], by_card(), true),
        (auto, Kind::Device, Kind::Host, [0, 1, 2], by_card(), false),
        (proxy, Kind::Device, Kind::Host, [0, 1, 0], over_tcp(), true),
        (proxy, Kind::Host, Kind::Host, [0, 1, 0], by_card(), true),
        // Kernels post: for all ranks, for some, and where the card does not reach the GPU for the signals alone.
        (verbs, Kind::Device, Kind::Device, [0, 1, 2], by_card(), true),
        (verbs, Kind::Device, Kind::Host, [0, 1, 2], by_card(), true),
        (verbs, Kind::Host, Kind::Device, [0, 1, 1], by_card(), true),
        (verbs, Kind::Device, Kind::Host, [0, 1, 2], by_card(), false),
    ] {
        let what = format!(
            "seed {seed}: {policy:?}, data {data:?}, signals {signals:?}, hosts {hosts:?}, {network:?}, {reaches}"
        );
        let seed = seed & !1 | u64::from(!reaches);
        let gpu = Ranks::new(Lanes::Delayed(seed));
        let all = Hosts::new(&hosts);
        let of = [(data, 64), (signals, 64), (Kind::Host, 64)];
        let (teams, windows) = all.teams(&gpu, &Options { policy, network, ..patient() }, &of);
        let [data, signals, words] = windows[..] else { panic!("three were made") };
        all.all(|rank| {
            let team = &teams[rank as usize];
            assert!(team.is_in_host(words), "{what}");
            let wrong = gpu.filled(&[0; 8]);
            let params =
                Params::default().team(team, rank).window(team, rank, data).window(team, rank, signals);
            let params = params.word(20).word(1).long(seed).long(wrong.address);
            gpu.launch_one("words_of_others", THREADS, params);
            assert_eq!(team.failure(), None, "{what}");
            assert_eq!(gpu.bytes(wrong.address, 8), [0; 8], "{what}");
            // All count up words of the next one, by the proxies of processes that know nothing of each
            // other.
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

#[test]
fn a_signal_comes_behind_puts_to_other_ranks_on_other_hosts() {
    let (host, device) = (Kind::Host, Kind::Device);
    let all = [(device, over_tcp()), (host, over_tcp()), (device, by_card()), (host, by_card())];
    for (kind, network) in all {
        let gpu = Ranks::new(Lanes::Delayed(u64::from(std::process::id())));
        let options = Options { network, ..patient() };
        let (teams, windows) = Hosts::new(&[0, 1, 2]).teams(&gpu, &options, &[(kind, 64), (kind, 64)]);
        let wrong = gpu.filled(&[0; 8]);
        gpu.launch_all(&teams[0], "told_by_a_third", 1, |rank| {
            let team = &teams[rank as usize];
            let params = Params::default().team(team, rank).window(team, rank, windows[0]);
            params.window(team, rank, windows[1]).word(30).long(wrong.address)
        });
        assert_eq!(teams.iter().find_map(Team::failure), None, "{kind:?}");
        assert_eq!(gpu.bytes(wrong.address, 8), [0; 8], "{kind:?}");
    }
}

#[test]
fn bytes_that_no_socket_holds_go_both_ways_between_hosts() {
    // Many pieces, and a rest.
    const BYTES: u64 = (5 << 20) + 1000;
    let mixed = [Kind::Host, Kind::Device, Kind::Host];
    for (kinds, lanes, network) in [
        ([Kind::Device; 3], Lanes::Well, over_tcp()),
        (mixed, Lanes::Well, over_tcp()),
        (mixed, Lanes::Well, by_card()),
        // The card reaches no memory of this GPU.
        (mixed, Lanes::Delayed(1), by_card()),
    ] {
        let gpu = Ranks::new(lanes);
        let options = Options { network, ..patient() };
        let (teams, windows) = Hosts::new(&[0, 1]).teams(&gpu, &options, &kinds.map(|kind| (kind, BYTES)));
        let base = |rank: u32, window: usize| {
            teams[rank as usize].window_handle(rank, windows[window]).unwrap().base
        };
        let mut random = Random(u64::from(std::process::id()));
        let content = [0, 1].map(|rank| {
            let bytes: Vec<u8> = (0..BYTES).map(|_| random.next() as u8).collect();
            gpu.write(base(rank, 0), &bytes);
            bytes
        });
        gpu.launch_all(&teams[0], "put_and_get", 32, |rank| {
            let team = &teams[rank as usize];
            let all = Params::default().team(team, rank);
            windows.iter().fold(all, |params, window| params.window(team, rank, *window))
        });
        assert_eq!(teams.iter().find_map(Team::failure), None, "{kinds:?}");
        for rank in [0, 1] {
            for window in [1, 2] {
                let found = gpu.bytes(base(rank, window), BYTES);
                assert!(found == content[1 - rank as usize], "{kinds:?}: rank {rank}, window {window}");
            }
        }
    }
}

#[test]
fn a_window_that_one_rank_cannot_make_is_made_by_none() {
    if is_cuda() {
        return;
    }
    let gpu = Ranks::new(Lanes::Well);
    let all = Hosts::new(&[0, 1]);
    let (teams, _) = all.teams(&gpu, &patient(), &[]);
    let memory = gpu.filled(&[0; 64]);
    let failed = all.all(|rank| {
        let team = &teams[rank as usize];
        let address = if rank == 1 { memory.address + 8 } else { memory.address };
        // SAFETY: nothing is copied from or to there.
        let registered = unsafe { team.register(Kind::Device, &[address], 48) };
        let made = team.window(Kind::Host, if rank == 0 { 0 } else { 64 });
        let refused = team.refuse_window(TeamError::Kind(2)).to_string();
        // Ranks still agree on what comes next.
        assert!(team.window(Kind::Host, 64).is_ok());
        [registered.unwrap_err().to_string(), made.unwrap_err().to_string(), refused]
    });
    for (at, told) in [
        (0, ["could not create its part", "a multiple of 16"]),
        (1, ["a multiple of 16", "could not create its part"]),
    ] {
        let found = [&failed[0][at], &failed[1][at]];
        assert!(found.iter().zip(told).all(|(found, told)| found.contains(told)), "{found:?}");
    }
    assert!(failed.iter().all(|failed| failed[2].contains("memory 2 was requested")), "{failed:?}");
}
