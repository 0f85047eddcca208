//! Ranks of other hosts by network cards: which card, or why none, and what happens where something goes wrong.

use causeway_comm::device::failure::Failure;

use super::*;

const BYTES: u64 = 4096;

/// Two ranks on two hosts with a window in the host; `None` on a real GPU, whose memory the soft card does not reach.
fn two(network: [NetworkPolicy; 2]) -> Option<(Ranks, Vec<Team>, u32)> {
    if is_cuda() {
        return None;
    }
    let gpu = Ranks::new(Lanes::Well);
    let hosts = Hosts::new(&[0, 1]);
    let made = hosts.all(|rank| {
        let options = Options { network: network[rank as usize].clone(), ..patient() };
        let own = gpu.gpus(2).remove(rank as usize);
        let team = Team::of_processes(own, hosts.join(rank), 2, options).unwrap();
        let window = team.window(Kind::Host, BYTES).unwrap();
        (team, window)
    });
    let window = made[0].1;
    Some((gpu, made.into_iter().map(|(team, _)| team).collect(), window))
}

fn meet(gpu: &Ranks, teams: &[Team]) {
    gpu.launch_all(&teams[0], "meet", 32, |rank| Params::default().team(&teams[rank as usize], rank));
}

#[test]
fn the_report_says_which_card_moves_bytes_or_why_none_does() {
    let told = |network: [NetworkPolicy; 2]| {
        let (gpu, teams, _) = two(network)?;
        meet(&gpu, &teams);
        assert_eq!(teams.iter().find_map(Team::failure), None);
        Some(teams.iter().map(|team| team.report().join("\n")).collect::<Vec<_>>())
    };
    let Some(reports) = told([by_card(), by_card()]) else { return };
    assert!(reports[0].contains("rank 0: bytes for rank 1 go by the RDMA device mlx5_0"), "{reports:?}");
    assert!(reports[1].contains("rank 1: bytes for rank 0 go by the RDMA device mlx5_0"), "{reports:?}");
    let reports = told([by_card(), over_tcp()]).unwrap();
    let without =
        "rank 0: bytes for rank 1 go over TCP: rank 1 has no RDMA device for this team, and says why";
    assert!(reports[0].contains(without), "{reports:?}");
    assert!(reports[1].contains("go over TCP: the test asks for it"), "{reports:?}");
    let reports = told([NetworkPolicy::Device("mlx5_9".to_owned()), by_card()]).unwrap();
    assert!(reports[0].contains("go over TCP: no port of an RDMA device is active"), "{reports:?}");
}

#[test]
fn a_rank_that_aborts_ends_the_waits_of_the_other() {
    let Some((gpu, teams, _)) = two([by_card(), by_card()]) else { return };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gpu.launch_one("meet", 32, Params::default().team(&teams[0], 0)));
        teams[1].abort();
        waiting.join().unwrap();
    });
    assert_eq!(teams[0].failure(), Some(Failure::Peer(1)));
}

#[test]
fn bytes_for_a_window_that_the_peer_has_freed_end_the_team() {
    let Some((gpu, teams, window)) = two([by_card(), by_card()]) else { return };
    // Behind a meeting each knows the other's window.
    meet(&gpu, &teams);
    teams[1].free(window).unwrap();
    let params =
        Params::default().team(&teams[0], 0).window(&teams[0], 0, window).window(&teams[0], 0, window);
    gpu.launch_one("ping_pong", 32, params.long(64).word(1).word(2));
    let failure = teams[0].failure().expect("the team has ended").to_string();
    let told = "rank 0: the link to rank 1";
    assert!(failure.starts_with(told) && failure.contains("its network card refuses"), "{failure}");
}
