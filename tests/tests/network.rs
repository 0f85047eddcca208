//! Networks that are long, lose packets, are cut, or whose other end stops reading.
//!
//! Each test has two network namespaces of its own, which takes root's rights; where those are missing it
//! says so and passes. Times are for `make net-test`; here only what can be counted is looked at.

use causeway_tests::built::cuda_program;
use causeway_tests::client::through_run;
use causeway_tests::network::{Cable, Network, Side};
use causeway_tests::process::{Outcome, Running, eventually, run};
use causeway_tests::server::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A network, or nothing where none can be made, which is said.
fn lay(cable: Cable<'_>) -> Option<Network> {
    Network::lay(cable).inspect_err(|why| eprintln!("skipped, for no network can be made here: {why}")).ok()
}

/// A program at the near side.
fn program(network: &Network, server: &Server, name: &str, arguments: &[&str]) -> Command {
    let mut command = through_run(Some(&server.connect_string()), &cuda_program(name));
    command.args(arguments);
    network.inside(Side::Client, &command)
}

/// Runs a program that counts what it does.
fn counted(network: &Network, server: &Server, name: &str, folder: &Path) -> Value {
    let counts = folder.join("counts");
    let mut command = program(network, server, name, &[]);
    run(command.env("CAUSEWAY_STATS", &counts), LIMIT).must_succeed();
    // What is kept for later sessions is written when the program has gone.
    server.must_have_workers(0);
    serde_json::from_slice(&fs::read(counts).expect("the program has counted")).expect("the counts are JSON")
}

/// Bytes of memory that a process has in use.
fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel counts it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("processes have numbers above 0");
    kill_process(pid, signal).expect("the process is there");
}

#[test]
fn ten_thousand_launches_take_few_round_trips() {
    let Some(network) = lay(Cable::Carried { arguments: &["-d", "1000", "-g"] }) else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let server = network.server(folder.path(), &["--cache-dir", cache.to_str().unwrap()]);
    // `causeway run` makes sure of the server first, with a connection and the exchange of the keys' proofs.
    const CHECK: u64 = 2;
    for sends_image in [true, false] {
        let counts = counted(&network, &server, "many_launches", folder.path());
        assert_eq!(counts["module_bytes"].as_u64().is_some_and(|bytes| bytes > 0), sends_image, "{counts:#}");
        assert_eq!(counts["round_trips"]["opening"].as_array().map(Vec::len), Some(3), "{counts:#}");
        let waits = counts["round_trips"]["all"].as_object().expect("waits by name");
        let total: u64 = waits.values().filter_map(Value::as_u64).sum();
        // Memory, the kernel's layout, nine synchronisations, and the copy of the result.
        assert_eq!(total, 12, "{counts:#}");
        assert_eq!(total, counts["waits"].as_u64().unwrap(), "{counts:#}");
        assert!(CHECK + 3 + total + u64::from(sends_image) <= 18, "{counts:#}");
    }
    server.must_be_well();
}

#[test]
fn a_network_that_loses_packets_loses_no_data() {
    let arguments = ["-d", "200", "-l", "1"];
    let Some(network) = lay(Cable::Carried { arguments: &arguments }) else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = network.server(folder.path(), &[]);
    for (name, arguments) in [("copy_rate", &["4", "2"]), ("many_launches", &["500", "4"])] {
        run(&mut program(&network, &server, name, arguments), LIMIT).must_succeed();
    }
    server.must_be_well();
}

/// Starts a copy that takes long, and returns when it is under way.
fn start_copying(network: &Network, server: &Server) -> Running {
    let copying = Running::start(&mut program(network, server, "copy_rate", &["64", "1000"]));
    copying.must_print("to_device", LIMIT);
    copying
}

#[test]
fn both_ends_notice_that_the_network_is_gone() {
    let Some(network) = lay(Cable::Plain { rate: Some("1gbit") }) else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = network.server(folder.path(), &[]);
    let mut copying = start_copying(&network, &server);
    network.cut(true);
    let outcome = copying.finish(LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stderr.contains("has not answered for several seconds"), "{outcome}");
    assert!(outcome.stdout.contains("FAIL copy_rate"), "{outcome}");
    server.must_have_workers(0);
    // The server serves the next one.
    network.cut(false);
    run(&mut program(&network, &server, "vector_add", &[]), LIMIT).must_succeed();
    server.must_be_well();
}

#[test]
fn a_short_interruption_is_survived() {
    let Some(network) = lay(Cable::Plain { rate: Some("1gbit") }) else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = network.server(folder.path(), &[]);
    let mut copying = Running::start(&mut program(&network, &server, "copy_rate", &["32", "3"]));
    copying.must_print("to_device", LIMIT);
    network.cut(true);
    std::thread::sleep(Duration::from_millis(200));
    network.cut(false);
    copying.finish(LIMIT).must_succeed();
}

/// Runs a program whose worker stops reading for a while, and asserts that the program's memory stays bounded
/// meanwhile and that it ends well.
#[track_caller]
fn must_bear_with_a_stopped_worker(name: &str, arguments: &[&str], bound: u64) {
    let Some(network) = lay(Cable::Plain { rate: None }) else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = network.server(folder.path(), &[]);
    let mut command = through_run(Some(&server.connect_string()), &cuda_program(name));
    command.args(arguments);
    let mut running = Running::start(&mut network.inside(Side::Client, &command));
    running.must_print("begins", LIMIT);
    server.must_have_workers(1);
    let worker = server.workers()[0];
    signal(worker, Signal::STOP);
    let before = resident(running.pid());
    // Long enough for a program that nothing holds back to fill gigabytes.
    std::thread::sleep(Duration::from_secs(2));
    let (after, has_ended) = (resident(running.pid()), running.has_exited());
    signal(worker, Signal::CONT);
    let outcome: Outcome = running.finish(LIMIT).must_succeed();
    assert!(!has_ended, "the program must have been held back: {outcome}");
    assert!(after < before + bound, "{} MiB more: {outcome}", (after - before) >> 20);
    eventually("the worker ends", LIMIT, || server.workers().is_empty());
}

#[test]
fn launches_wait_for_a_worker_that_does_not_read() {
    must_bear_with_a_stopped_worker("many_launches", &["1500000", "1"], 16 << 20);
}

#[test]
fn copies_wait_for_a_worker_that_does_not_read() {
    must_bear_with_a_stopped_worker("copy_rate", &["64", "12"], 16 << 20);
}
