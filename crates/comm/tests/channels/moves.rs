//! Do messages come when ranks enter other namespaces while they are in flight?

use crate::job::{Rank, run};
use crate::rank::MOVES;

/// Namespaces may be forbidden here.
fn can_move() -> bool {
    let tried = std::process::Command::new("unshare").args(["--uts", "--ipc", "true"]).output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        eprintln!("not tested: this needs root, and unshare with namespaces");
    }
    can
}

fn nothing_is_lost(moves: &str, channel: &str, hosts: &str) {
    const MESSAGES: u64 = 60;
    let variables = vec![
        (MOVES, moves.to_owned()),
        ("CAUSEWAY_COMM_EXPLAIN", "1".to_owned()),
        ("CAUSEWAY_COMM_HOSTS", hosts.to_owned()),
        ("FAKE_GPU_GDRDRV", "1".to_owned()),
    ];
    let rank = Rank { host: None, variables };
    let ended = run(&[rank.clone(), rank], channel, MESSAGES, false);
    let told: Vec<_> = ended.iter().map(|one| (&one.said, &one.trouble)).collect();
    assert!(ended.iter().all(|one| one.is_ok), "{told:?}");
    let sum = |word| ended.iter().map(|one| one.messages(word)).sum::<u64>();
    assert_eq!((sum("moved"), sum(channel)), (4, MESSAGES), "{told:?}");
    if hosts.is_empty() {
        let place = "the peer is in another container of this host";
        let sees = |one: &crate::job::Ended| one.said.iter().any(|line| line.contains(place));
        assert!(ended.iter().all(sees), "what lies between the two is found out anew: {told:?}");
    }
}

#[test]
fn ranks_that_tell_of_their_moves_lose_nothing() {
    if can_move() {
        for channel in ["staged", "bar"] {
            nothing_is_lost("told", channel, "");
        }
    }
}

#[test]
fn ranks_that_just_enter_other_namespaces_lose_nothing() {
    if can_move() {
        nothing_is_lost("noticed", "staged", "");
    }
}

#[test]
fn ranks_that_meet_over_a_network_lose_nothing() {
    if can_move() {
        nothing_is_lost("told", "tcp", "127.0.0.1");
    }
}
