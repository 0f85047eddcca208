//! Random programs of asynchronous work, compared with a model of CUDA's order.
//!
//! `causeway-model` (`tests/model`) makes the programs, runs them and reduces one that goes wrong; its last
//! lines then say how to run that again. Threads of client and server hand over to each other with delays by
//! chance. `CAUSEWAY_MODEL_SEEDS=FIRST..END` runs other programs.

use causeway_tests::built;
use causeway_tests::client::by_itself;
use causeway_tests::process::run;
use causeway_tests::server::{OPEN, Server};
use std::time::Duration;

/// How long one campaign may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(400);

/// Hand-overs in a thousand that wait, and up to how many microseconds.
const DELAYS: (&str, &str) = ("CAUSEWAY_TEST_DELAYS", "60:1500");

/// A server whose software GPU has so many devices.
fn server(devices: &str) -> Server {
    let mut command = Server::command(&OPEN);
    command.env("CAUSEWAY_SOFTWARE_GPU_DEVICES", devices).envs([DELAYS]);
    Server::start_command(command)
}

/// Runs these programs on servers, by what carries calls and copies.
fn campaign(servers: &[&Server], via: &str, seeds: &str) {
    let on: Vec<_> = servers.iter().map(|server| server.connect_string()).collect();
    let seeds = std::env::var("CAUSEWAY_MODEL_SEEDS").unwrap_or_else(|_| seeds.to_owned());
    let mut command = by_itself(&on.join(","), &built::causeway().with_file_name("causeway-model"));
    command.args(["--seeds", &seeds, "--jobs", "2"]).envs([DELAYS, ("CAUSEWAY_VIA", via)]);
    run(&mut command, LIMIT).must_succeed();
    servers.iter().for_each(|server| server.must_be_well());
}

#[test]
fn programs_are_in_order_over_tcp() {
    campaign(&[&server("2")], "tcp", "0..2600");
}

#[test]
fn programs_are_in_order_over_shared_memory() {
    campaign(&[&server("2")], "shm", "2600..5200");
}

#[test]
fn programs_are_in_order_with_two_servers() {
    let servers = [server("1"), server("1")];
    campaign(&[&servers[0], &servers[1]], "tcp", "5200..5600");
    campaign(&[&servers[0], &servers[1]], "shm", "5600..6000");
}
