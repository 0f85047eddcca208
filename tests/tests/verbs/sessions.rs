//! Many sessions beside each other, and beside TCP.

use crate::setup::{Far, LIMIT, hosts, runs_all};
use causeway_tests::network::{Network, Side};
use causeway_tests::process::{Running, run};
use rustix::process::Signal;
use std::process::Command;

/// Queue pairs of the first host's device that belong to processes.
fn queue_pairs(hosts: &Network) -> usize {
    let mut rdma = Command::new("rdma");
    rdma.args(["resource", "show", "qp"]);
    let outcome = run(&mut hosts.inside(Side::Client, &rdma), LIMIT).must_succeed();
    let device = std::env::var("CAUSEWAY_GUEST_DEVICE").expect("a guest has a device");
    let own = format!("link {device}1/");
    outcome.stdout.lines().filter(|line| line.starts_with(&own) && line.contains(" pid ")).count()
}

#[test]
fn many_sessions_at_a_time_have_queue_pairs_of_their_own() {
    let Some(hosts) = hosts() else { return };
    let small = ("CAUSEWAY_VERBS_STAGING", "1M");
    let far = Far::start(&hosts, &[small, ("CAUSEWAY_SOFTWARE_GPU_MEMORY", "64M")]);
    let count = if runs_all() { 200 } else { 16 };
    let mut standing = Vec::new();
    for _ in 0..count {
        let mut program = far.program(&hosts, "copy_rate", &["1", "2"]);
        let program = Running::start(program.env(small.0, small.1));
        // It has its session then; it goes on when all the others have theirs, too.
        program.must_print("begins", LIMIT);
        program.signal(Signal::STOP);
        standing.push(program);
    }
    far.server.must_have_workers(count);
    let queue_pairs = queue_pairs(&hosts);
    assert!(queue_pairs >= 2 * count, "{count} sessions have {queue_pairs} queue pairs");
    // All of them copy to and fro at the same time, and check every byte.
    for program in &standing {
        program.signal(Signal::CONT);
    }
    for mut program in standing {
        program.finish(LIMIT).must_succeed();
    }
    far.server.must_have_workers(0);
    far.server.must_be_well();
    println!("note: {count} sessions at a time, with {queue_pairs} queue pairs on the first host's device");
}

#[test]
fn a_port_that_tcp_has_in_use_is_left_to_it() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    // rdma_cm chooses by chance, whatever TCP has of them.
    let _taken = [Side::Client, Side::Server].map(|side| hosts.leave_ports(side, 41_000..41_400, 5));
    for _ in 0..12 {
        run(&mut far.program(&hosts, "vector_add", &[]), LIMIT).must_succeed();
    }
    far.server.must_be_well();
}
