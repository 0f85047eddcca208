//! Stencil of ranks on several hosts, whose planes proxies exchange over TCP or by network cards: each number
//! has the bits that one rank alone computes.

use super::*;

const WIDTH: u32 = 12;
const HEIGHT: u32 = 9;
const PLANES: u32 = 4;
const STEPS: u32 = 15;

/// Bytes of so many planes.
fn bytes(planes: u32) -> u64 {
    u64::from(WIDTH * HEIGHT * planes) * 4
}

/// Bytes of the two buffers of a box of so many planes.
fn buffers(planes: u32) -> u64 {
    2 * bytes(planes + 2)
}

fn params(team: &Team, rank: u32, [data, words]: [u32; 2], planes: u32) -> Params {
    let params = Params::default().team(team, rank).window(team, rank, data).window(team, rank, words);
    params.word(WIDTH).word(HEIGHT).word(planes).word(STEPS)
}

/// The planes of a rank when all steps are done.
fn result(gpu: &Ranks, team: &Team, rank: u32, data: u32, planes: u32) -> Vec<u8> {
    let base = team.window_handle(rank, data).unwrap().base;
    let buffer = base + u64::from(STEPS % 2) * bytes(planes + 2);
    gpu.bytes(buffer + bytes(1), bytes(planes))
}

/// What one rank computes for the planes of all.
fn alone(ranks: u32) -> Vec<u8> {
    let gpu = Ranks::new(Lanes::Well);
    let (team, planes) = (team(&gpu, 1, patient()), PLANES * ranks);
    let data = team.window(Kind::Device, buffers(planes)).unwrap();
    let words = team.window(Kind::Device, 16).unwrap();
    gpu.launch_one("stencil_steps", 64, params(&team, 0, [data, words], planes));
    let found = result(&gpu, &team, 0, data, planes);
    assert!(found.chunks(4).any(|number| number != &found[..4]), "the numbers differ");
    found
}

#[test]
fn a_stencil_over_hosts_comes_to_the_bits_of_one_rank() {
    let seed = u64::from(std::process::id());
    let (auto, verbs) = (InitiatorPolicy::Auto, InitiatorPolicy::Verbs);
    for (hosts, kind, network, policy) in [
        (&[0, 1][..], Kind::Device, over_tcp(), auto),
        (&[0, 1], Kind::Host, over_tcp(), auto),
        (&[0, 1], Kind::Device, by_card(), auto),
        (&[0, 1], Kind::Host, by_card(), auto),
        (&[0, 1, 2], Kind::Device, by_card(), auto),
        (&[0, 1], Kind::Device, by_card(), verbs),
        (&[0, 1, 2], Kind::Host, by_card(), verbs),
    ] {
        let what = format!("seed {seed}, {kind:?}, hosts {hosts:?}, {network:?}, {policy:?}");
        let gpu = Ranks::new(Lanes::Delayed(seed & !1));
        let has_card = matches!(network, NetworkPolicy::Device(_));
        let windows = [(kind, buffers(PLANES)), (kind, 16)];
        let (teams, windows) =
            Hosts::new(hosts).teams(&gpu, &Options { network, policy, ..patient() }, &windows);
        let windows = [windows[0], windows[1]];
        gpu.launch_all(&teams[0], "stencil_steps", 64, |rank| {
            params(&teams[rank as usize], rank, windows, PLANES)
        });
        assert_eq!(teams.iter().find_map(Team::failure), None, "{what}");
        let right = alone(hosts.len() as u32);
        for (rank, team) in teams.iter().enumerate() {
            let found = result(&gpu, team, rank as u32, windows[0], PLANES);
            let all = bytes(PLANES) as usize;
            let differs = found.iter().zip(&right[rank * all..]).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}: rank {rank} differs from this byte on");
            let report = team.report().join("\n");
            let by = if has_card { "by the RDMA device" } else { "over TCP" };
            let initiator = if policy == verbs { "bytes by verbs" } else { "bytes by proxy" };
            assert!(report.contains(by) && (is_cuda() || report.contains(initiator)), "{what}: {report}");
        }
    }
}
