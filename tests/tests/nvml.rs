//! NVML through Causeway: the client's own processes, and what happens without a server, with a wrong key,
//! and when the server or its monitor is lost. What NVML answers is the matter of `tests/cuda/nvml.cu`, which
//! `programs` runs, too.

use causeway_access::Key;
use causeway_tests::built::cuda_program;
use causeway_tests::client::by_itself;
use causeway_tests::hostile::{self, Random};
use causeway_tests::process::{Outcome, Running};
use causeway_tests::server::Server;
use causeway_wire::handshake::Opening;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn start(connect_string: &str, what: &str) -> Running {
    Running::start(by_itself(connect_string, &cuda_program("nvml")).arg(what))
}

fn run(connect_string: &str, what: &str) -> Outcome {
    start(connect_string, what).finish(LIMIT)
}

/// Asserts that a program without a server is told why in one line.
#[track_caller]
fn must_say(outcome: Outcome, words: &str) {
    let outcome = outcome.must_succeed();
    let said: Vec<_> = outcome.stderr.lines().collect();
    assert!(
        matches!(said.as_slice(), [line] if line.starts_with("causeway: ") && line.contains(words)),
        "{outcome}"
    );
}

#[test]
fn a_program_finds_itself_among_the_processes_also_with_a_key() {
    run(&Server::start().connect_string(), "own").must_succeed();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let server = Server::start_with_key(&folder.path().join("key"));
    run(&server.connect_string(), "own").must_succeed();
    let mut wrong = server.target().clone();
    wrong.key = Some(Key::generate());
    must_say(run(&wrong.connect_string(), "none"), "the key is not this server's");
    server.must_be_well();
}

#[test]
fn of_several_servers_all_devices_are_told_of() {
    let servers = [Server::start(), Server::start()];
    let both = servers.each_ref().map(Server::connect_string).join(",");
    run(&both, "several").must_succeed();
    let one_is_missing = format!("{},127.0.0.1:1", servers[0].connect_string());
    must_say(run(&one_is_missing, "none"), "127.0.0.1:1");
}

#[test]
fn without_a_server_there_is_no_driver() {
    must_say(run("127.0.0.1:1", "none"), "127.0.0.1:1");
    must_say(run(" ", "none"), "CAUSEWAY_ON");
}

#[test]
fn monitoring_needs_no_worker_and_outlives_the_monitor() {
    let server = Server::start();
    let program = start(&server.connect_string(), "lost");
    program.must_print("waiting", LIMIT);
    let processes = server.workers();
    let [monitor] = processes.as_slice() else {
        panic!("{processes:?} are there instead of the monitor alone")
    };
    let monitor = i32::try_from(*monitor).ok().and_then(Pid::from_raw).expect("it is a process");
    kill_process(monitor, Signal::KILL).expect("the monitor runs");
    let mut program = program;
    program.finish(LIMIT).must_succeed();
    server.must_log("the monitor was ended by signal 9");
}

#[test]
fn a_killed_server_is_a_lost_device() {
    let server = Server::start();
    let mut program = start(&server.connect_string(), "gone");
    program.must_print("waiting", LIMIT);
    server.kill();
    let outcome = program.finish(LIMIT).must_succeed();
    assert!(
        outcome.stderr.contains("causeway: the connection to the monitoring server is lost"),
        "{outcome}"
    );
}

#[test]
fn questions_that_make_no_sense_end_their_own_connection_only() {
    let server = Server::start();
    let mut random = Random::new(7);
    let mut other = start(&server.connect_string(), "own");
    for length in [0, 1, 9, 100, 5000] {
        let mut connection = hostile::authenticated(server.target());
        connection
            .send_handshake(|out| Opening::encode_monitor(&hostile::hello(), out))
            .expect("the connection is open");
        let question = hostile::frame(1, &random.bytes(length));
        connection.outgoing.send(&question).expect("the connection is open");
        assert!(hostile::is_ended_by_peer(&mut connection), "{length} bytes were taken for a question");
    }
    other.finish(LIMIT).must_succeed();
    server.must_be_well();
}
