//! Copies between the devices of two servers, from card to card.

use crate::setup::{Far, LIMIT, hostile_library, hosts, runs_all};
use causeway_tests::built::cuda_program;
use causeway_tests::client::through_run;
use causeway_tests::network::{Network, Side};
use causeway_tests::process::run;
use serde_json::Value;
use std::fs;
use std::process::Command;

/// So that several links of a process are set up quickly on one slow processor.
const SMALL_STAGING: (&str, &str) = ("CAUSEWAY_VERBS_STAGING", "4M");

/// A server on each host, with these variables for the second. Both hosts are one machine with one file
/// system, so that neither has a socket in a folder by which the other would find that out.
fn on_both_hosts(hosts: &Network, variables: &[(&str, &str)]) -> [Far; 2] {
    let apart = ["--socket-dir", "/nonexistent"];
    [(Side::Client, &[][..]), (Side::Server, variables)]
        .map(|(side, variables)| Far::on(hosts, side, &apart, &[&[SMALL_STAGING], variables].concat()))
}

/// A program on the first host with the devices of both servers.
fn with_both(hosts: &Network, servers: &[Far; 2], name: &str, variables: &[(&str, &str)]) -> Command {
    let on = servers.each_ref().map(|server| server.server.connect_string()).join(",");
    let mut program = through_run(Some(&on), &cuda_program(name));
    program.envs([SMALL_STAGING]).envs(variables.iter().copied());
    hosts.inside(Side::Client, &program)
}

#[test]
fn servers_copy_between_their_devices_by_verbs() {
    let Some(hosts) = hosts() else { return };
    let servers = on_both_hosts(&hosts, &[]);
    let not_encrypted = "not verbs: verbs are not encrypted";
    for (via, between, way, says) in [
        ("verbs", "auto", "verbs", "go via verbs; not shm: the server is on"),
        ("tcp", "verbs", "verbs", "go via verbs"),
        ("auto", "link", "tcp", not_encrypted),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let counts = folder.path().join("counts.json");
        let counts_file = counts.to_str().expect("temporary folders have plain names");
        let variables = [("CAUSEWAY_VIA", via), ("CAUSEWAY_BETWEEN_SERVERS", between)];
        let told = [("CAUSEWAY_STATS", counts_file), ("CAUSEWAY_LOG", "info")];
        let mut program = with_both(&hosts, &servers, "peer_rate", &[&variables[..], &told].concat());
        let outcome = run(program.args(["4", "2"]), LIMIT).must_succeed();
        let text = fs::read_to_string(&counts).expect("the program has written its counts");
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let bytes = report["copies"]["between_servers"][way]["bytes"].as_u64();
        assert_eq!(bytes, Some(16 << 20), "{via} {between}: {text}");
        // Two counts of wrong words in each repetition, four bytes each.
        assert_eq!(
            (&report["bytes_to_device"], &report["bytes_from_device"]),
            (&0.into(), &16.into()),
            "{text}"
        );
        assert_eq!(outcome.stderr.matches(says).count(), 2, "{via} {between}: {outcome}");
    }
    for Far { server, .. } in &servers {
        server.must_have_workers(0);
        server.must_be_well();
    }
}

/// Bytes that came to a server from the other one, all and by GPUDirect, as its log has them for each of its
/// workers.
fn came_from_the_other(far: &Far) -> Vec<[u64; 2]> {
    far.server.must_have_workers(0);
    let log = far.server.log();
    let told = log.lines().filter_map(|line| {
        let (all, rest) = line.split_once(" bytes from another server, ")?;
        let number = |text: &str| text.rsplit(' ').next()?.parse().ok();
        Some([number(all)?, number(rest.split_once(" of them by GPUDirect")?.0)?])
    });
    told.collect()
}

#[test]
fn between_servers_cards_move_bytes_from_device_to_device_where_they_reach_them() {
    let Some(hosts) = hosts() else { return };
    let variables = [("CAUSEWAY_VIA", "tcp"), ("CAUSEWAY_BETWEEN_SERVERS", "verbs")];
    const BYTES: u64 = 4 << 20;
    for (second, expected) in [("auto", [BYTES; 2]), ("off", [BYTES, 0])] {
        let servers = on_both_hosts(&hosts, &[("CAUSEWAY_GPUDIRECT", second)]);
        run(with_both(&hosts, &servers, "peer_rate", &variables).args(["4", "1"]), LIMIT).must_succeed();
        for (server, direct) in servers.iter().zip(expected) {
            assert_eq!(came_from_the_other(server), [[BYTES, direct]], "the second's GPUDirect is {second}");
        }
        if second == "auto" || runs_all() {
            run(&mut with_both(&hosts, &servers, "peer_copies", &variables), LIMIT).must_succeed();
        }
    }
}

#[test]
fn where_verbs_between_servers_are_insisted_on_and_cannot_be_had_the_client_carries_copies() {
    let Some(hosts) = hosts() else { return };
    let servers = on_both_hosts(&hosts, &[("CAUSEWAY_VERBS_DEVICE", "nothing")]);
    let variables = [("CAUSEWAY_VIA", "tcp"), ("CAUSEWAY_BETWEEN_SERVERS", "verbs")];
    let outcome =
        run(with_both(&hosts, &servers, "peer_rate", &variables).args(["4", "1"]), LIMIT).must_succeed();
    assert_eq!(outcome.stderr.matches(" via verbs: ").count(), 2, "{outcome}");
}

#[test]
fn a_server_with_a_wrong_key_ends_that_session_and_the_program_hears_of_it() {
    let Some(hosts) = hosts() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let hostile = hostile_library(folder.path());
    let far =
        Far::start(&hosts, &[("LD_PRELOAD", hostile.to_str().expect("temporary folders have plain names"))]);
    for direct in ["off", "auto"] {
        let mut program = far.program(&hosts, "pinned_copies", &["4", "50"]);
        let outcome = run(program.env("CAUSEWAY_GPUDIRECT", direct), LIMIT);
        assert_eq!(outcome.code(), Some(1), "{direct}: {outcome}");
        assert!(outcome.stdout.contains("FAIL pinned_copies"), "{direct}: {outcome}");
        far.server.must_have_workers(0);
    }
    far.server.must_be_well();
}
