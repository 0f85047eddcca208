//! Faults of verbs: lost packets, links that go down, misbehaving peers, lacking resources.

use crate::setup::{Far, LIMIT, hostile_library, hosts, is_roce, runs_all};
use causeway_tests::network::Side;
use causeway_tests::process::{Running, run};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// A counter of the first host's device.
fn counter(name: &str) -> u64 {
    let device = std::env::var("CAUSEWAY_GUEST_DEVICE").expect("a guest has a device");
    let path = format!("/sys/class/infiniband/{device}1/ports/1/hw_counters/{name}");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim().parse().expect("counters are numbers")
}

#[test]
fn packets_that_are_lost_or_overtaken_change_no_byte() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[("CAUSEWAY_VERBS_QUEUE_PAIRS", "4")]);
    for how in [&["loss", "0.2%"][..], &["delay", "300us", "reorder", "95%", "50%"]] {
        for side in [Side::Client, Side::Server] {
            hosts.disturb(side, how);
        }
        // Of the settings those that make packets many, requests few, and parts cross.
        let settings = [("2", "128", "4096"), ("1", "1", "1024"), ("4", "16", "256")];
        for (queue_pairs, depth, mtu) in settings.into_iter().take(if runs_all() { 3 } else { 1 }) {
            let mut program = far.program(&hosts, "random_copies", &["7", "24", "512"]);
            program.env("CAUSEWAY_VERBS_QUEUE_PAIRS", queue_pairs);
            program.env("CAUSEWAY_VERBS_QUEUE_DEPTH", depth).env("CAUSEWAY_VERBS_MTU", mtu);
            let outcome = run(&mut program, LIMIT);
            assert_eq!(
                outcome.code(),
                Some(0),
                "{how:?}, {queue_pairs} queue pairs, {depth}, {mtu}: {outcome}"
            );
        }
        for side in [Side::Client, Side::Server] {
            hosts.disturb(side, &[]);
        }
    }
    far.server.must_be_well();
}

#[test]
fn a_link_that_is_down_for_a_moment_is_survived() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let mut copying = far.start_copying(&hosts, &["16", "6"]);
    hosts.cut(true);
    std::thread::sleep(Duration::from_millis(100));
    hosts.cut(false);
    copying.finish(LIMIT).must_succeed();
}

#[test]
fn a_link_that_stays_down_ends_the_session_and_not_the_server() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let mut copying = far.start_copying(&hosts, &["16", "1000"]);
    hosts.cut(true);
    let outcome = copying.finish(LIMIT);
    hosts.cut(false);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stdout.contains("FAIL copy_rate"), "{outcome}");
    far.server.must_have_workers(0);
    run(&mut far.program(&hosts, "vector_add", &[]), LIMIT).must_succeed();
    far.server.must_be_well();
}

#[test]
fn a_peer_that_posts_no_receives_is_waited_for_and_not_stormed() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    // A second's launches at least: the worker has to be found while it is at work.
    let mut running = Running::start(&mut far.program(&hosts, "many_launches", &["240000", "1"]));
    running.must_print("begins", LIMIT);
    far.server.must_have_workers(1);
    let worker = Pid::from_raw(far.server.workers()[0] as i32).expect("processes have numbers above 0");
    kill_process(worker, Signal::STOP).expect("the worker is there");
    // Long enough for a program that nothing holds back to be done.
    std::thread::sleep(Duration::from_secs(3));
    let has_ended = running.has_exited();
    let refused = is_roce().then(|| counter("rcvd_rnr_err"));
    kill_process(worker, Signal::CONT).expect("the worker is there");
    let outcome = running.finish(LIMIT).must_succeed();
    assert!(!has_ended, "the program must have been held back: {outcome}");
    assert_eq!(refused.unwrap_or(0), 0, "messages were sent for which there was no receive");
}

#[test]
fn a_client_with_a_wrong_key_ends_its_own_session_alone() {
    let Some(hosts) = hosts() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let hostile = hostile_library(folder.path());
    let far = Far::start(&hosts, &[]);
    let mut honest = far.start_copying(&hosts, &["8", "12"]);
    let outcome = run(far.program(&hosts, "copy_rate", &["8", "1000"]).env("LD_PRELOAD", &hostile), LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stdout.contains("FAIL copy_rate"), "{outcome}");
    // iWARP's cards end the connection and say no more to the one that asked.
    assert!(!is_roce() || outcome.stderr.contains("does not allow access to the memory"), "{outcome}");
    honest.finish(LIMIT).must_succeed();
    far.server.must_have_workers(0);
    far.server.must_be_well();
}

#[test]
fn a_client_that_says_its_frames_lie_elsewhere_ends_its_own_session_alone() {
    let Some(hosts) = hosts() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let hostile = hostile_library(folder.path());
    let far = Far::start(&hosts, &[]);
    // What goes with its command makes a frame that is written to slots.
    let copies = ["64K", "10"];
    run(&mut far.program(&hosts, "copy_rate", &copies), LIMIT).must_succeed();
    // iWARP's writes have no numbers.
    if !is_roce() {
        return;
    }
    let mut honest = far.start_copying(&hosts, &["8", "12"]);
    let mut program = far.program(&hosts, "copy_rate", &copies);
    let outcome = run(program.env("LD_PRELOAD", &hostile).env("WRONG", "number"), LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stdout.contains("FAIL copy_rate"), "{outcome}");
    honest.finish(LIMIT).must_succeed();
    far.server.must_have_workers(0);
    far.server.must_be_well();
}

#[test]
fn without_room_for_locked_memory_the_limit_is_named() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let limited = |kibibytes: u64, via: &str| {
        let program = far.program(&hosts, "vector_add", &[]);
        // Without the capability that lifts the limit.
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit"]);
        command
            .arg(format!("--memlock={}", kibibytes << 10))
            .arg(program.get_program())
            .args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        run(command.env("CAUSEWAY_VIA", via), LIMIT)
    };
    let refused = limited(64, "verbs");
    assert_ne!(refused.code(), Some(0), "{refused}");
    assert!(refused.stderr.contains("ulimit -l"), "{refused}");
    // The limit that most systems set, and one with room for everything.
    limited(8 << 10, "verbs").must_succeed();
    limited(64 << 10, "verbs").must_succeed();
    far.server.must_be_well();
}
