//! Does everything work over InfiniBand verbs, also when packets are lost, the link goes down, or a peer misbehaves?
//!
//! `make verbs-test` runs these in a guest with two hosts that have RDMA devices; elsewhere each says so and passes.

use causeway_tests::network::{Network, SERVER, Side};
use causeway_tests::process::{Running, run};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The two hosts, or nothing where there are no RDMA devices, which is said.
fn hosts() -> Option<Network> {
    Network::of_guest().inspect_err(|why| eprintln!("skipped: {why}")).ok()
}

#[test]
fn the_hosts_reach_each_other_by_verbs() {
    let Some(hosts) = hosts() else { return };
    let ping = |side, arguments: &[&str]| {
        let mut command = Command::new("rping");
        command.args(arguments).args(["-a", SERVER, "-C", "20", "-v"]);
        hosts.inside(side, &command)
    };
    let mut server = Running::start(&mut ping(Side::Server, &["-s"]));
    // It says nothing before somebody calls, so that the caller tries again.
    let answered = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        run(&mut ping(Side::Client, &["-c"]), LIMIT).code() == Some(0)
    });
    assert!(answered, "{}", server.finish(Duration::ZERO));
    let outcome = server.finish(LIMIT);
    assert!(outcome.stdout.contains("rdma-ping-19"), "{outcome}");
}
