//! Channels by RDMA devices, in the guest of `tests/verbs`: between its two hosts, and within one.

use crate::job::{Rank, all_come, run};

/// Addresses of the guest's hosts.
const HOSTS: &str = "10.213.79.1,10.213.79.2";

/// The kind of RDMA devices, in the guest.
fn devices() -> Option<String> {
    let found = std::env::var("CAUSEWAY_GUEST_DEVICE").ok();
    if found.is_none() {
        eprintln!("not tested: there are no RDMA devices (tests/verbs/run has them)");
    }
    found
}

/// A rank on a host, whose GPU's memory cards reach or do not.
fn rank(host: &'static str, gpudirect: bool) -> Rank {
    let mut variables = vec![("CAUSEWAY_COMM_HOSTS", HOSTS.to_owned())];
    if gpudirect {
        variables.push(("FAKE_GPU_GPUDIRECT", "1".to_owned()));
    }
    Rank { host: Some(host), variables }
}

/// How many messages there are: more in `make verbs-test` than in `make test`.
fn messages() -> u64 {
    if std::env::var_os("CAUSEWAY_TEST_ALL").is_some() { 60 } else { 12 }
}

/// Whether cards reach the GPU's memory at each of two ranks.
const WAYS: [[bool; 2]; 4] = [[false, false], [true, true], [true, false], [false, true]];

#[test]
fn random_messages_come_by_cards() {
    let Some(device) = devices() else { return };
    for [one, two] in WAYS {
        println!("note: rdma, GPUDirect {one} and {two}");
        all_come(&[rank("h1", one), rank("h2", two)], "rdma", messages());
        // iWARP joins two hosts alone.
        if device == "rxe" {
            println!("note: loopback, GPUDirect {one} and {two}");
            all_come(&[rank("h1", one), rank("h1", two)], "loopback", messages());
        }
    }
}

#[test]
fn iwarp_within_a_host_is_left_for_another_channel() {
    if devices().as_deref() != Some("siw") {
        return;
    }
    let ended = run(&[rank("h1", false), rank("h1", false)], "loopback,staged", 30, false);
    for one in &ended {
        assert!(one.is_ok, "{:?} {}", one.said, one.trouble);
        assert_eq!(one.messages("loopback"), 0);
    }
    assert_eq!(ended.iter().map(|one| one.messages("staged")).sum::<u64>(), 30);
}

#[test]
fn a_sender_that_dies_while_it_is_read_is_an_error() {
    let Some(_) = devices() else { return };
    for gpudirect in [false, true] {
        let ended = run(&[rank("h1", gpudirect), rank("h2", gpudirect)], "rdma", 1, true);
        assert!(
            ended.iter().any(|one| one.is_ok),
            "the receiver goes on: {}{}",
            ended[0].trouble,
            ended[1].trouble
        );
        for error in ended.iter().flat_map(|one| &one.said).filter(|line| line.starts_with("error")) {
            println!("note: {error}");
            assert!(error.contains(" rank 0 ") || error.contains(" rank 1 "), "{error}");
        }
    }
}
