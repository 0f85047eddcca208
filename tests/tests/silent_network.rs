//! Silent network: a proxy or port forward keeps connections open and forwards nothing any more. TCP itself
//! goes on as if all were well.

use causeway_tests::built::cuda_program;
use causeway_tests::client::by_itself;
use causeway_tests::process::{Outcome, Running};
use causeway_tests::server::{OPEN, Server};
use causeway_tests::stall::{Direction, Silent, Stall};
use rustix::process::Signal;
use std::time::Duration;

/// How long a program may take to start, and to end once it should: a timeout is 3 s, and this machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Longer than the timeouts.
const LONG: Duration = Duration::from_secs(6);

/// A server that gives up early, as its clients do; it waits so many seconds for a client.
fn server(client_timeout: &str) -> Server {
    let timeouts = ["--keepalive-timeout", "3", "--client-timeout", client_timeout];
    Server::start_with(&[OPEN.as_slice(), &timeouts].concat())
}

/// A program that works at a server behind a relay, once it has said so.
fn behind(stall: &Stall, name: &str, arguments: &[&str], says: &str) -> Running {
    let mut command = by_itself(&stall.target().connect_string(), &cuda_program(name));
    command.env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_LANES", "3").env("CAUSEWAY_KEEPALIVE_TIMEOUT", "3");
    let running = Running::start(command.args(arguments));
    running.must_print(says, LIMIT);
    running
}

/// The programs, by what they are doing when the network falls silent.
const UPLOAD_AND_DOWNLOAD: (&str, &[&str], &str) = ("copy_rate", &["16", "100000"], "to_device");
const LAUNCH: (&str, &[&str], &str) = ("many_launches", &["500000", "1"], "begins");
const WAIT: (&str, &[&str], &str) = ("long_kernel", &["1000"], "begins");

/// Asserts that a program has got an error, with words that say what was found.
#[track_caller]
fn must_have_failed(outcome: &Outcome, words: &str) {
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stdout.contains("returned cudaError"), "{outcome}");
    assert!(outcome.stderr.contains(words), "{outcome}");
}

#[test]
fn a_program_gets_an_error_whatever_it_does_when_nothing_is_forwarded() {
    let server = server("4");
    let scenes = [
        (UPLOAD_AND_DOWNLOAD, Direction::Both),
        (LAUNCH, Direction::ToServer),
        (LAUNCH, Direction::Both),
        (WAIT, Direction::ToClient),
    ];
    std::thread::scope(|scope| {
        for ((name, arguments, says), direction) in scenes {
            let server = &server;
            scope.spawn(move || {
                let stall = Stall::on(server.target());
                let mut program = behind(&stall, name, arguments, says);
                stall.silence(Silent::All, direction);
                let outcome = program.finish(LIMIT);
                // Which end notices is the direction's matter; the server tells by ending the connection.
                let words = match direction {
                    Direction::ToServer => "the connection to the server is lost",
                    Direction::ToClient | Direction::Both => "nothing was received from the other end for ",
                };
                must_have_failed(&outcome, words);
            });
        }
    });
    server.must_have_workers(0);
    server.must_log("nothing was received from the other end for ");
    server.must_be_well();
}

#[test]
fn one_lane_that_falls_silent_costs_no_more_than_a_pause() {
    let server = server("1000");
    let stall = Stall::on(server.target());
    let mut program = behind(&stall, "copy_rate", &["16", "8"], "to_device");
    assert_eq!(stall.connections(), 4);
    stall.silence(Silent::Only(2), Direction::Both);
    program.finish(LIMIT).must_succeed();
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn commands_that_fall_silent_alone_end_the_session_though_lanes_work() {
    let server = server("1000");
    let stall = Stall::on(server.target());
    let mut program = behind(&stall, "long_kernel", &["1000"], "begins");
    stall.silence(Silent::Only(0), Direction::Both);
    must_have_failed(&program.finish(LIMIT), "nothing was received over its connection for commands for ");
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn a_server_behind_a_silent_network_is_said_to_say_nothing() {
    let server = server("4");
    let stall = Stall::on(server.target());
    for direction in [Direction::ToServer, Direction::ToClient] {
        stall.silence(Silent::All, direction);
        let mut command = by_itself(&stall.target().connect_string(), &cuda_program("vector_add"));
        let outcome = Running::start(command.env("CAUSEWAY_VIA", "tcp")).finish(LIMIT);
        assert_eq!(outcome.code(), Some(1), "{outcome}");
        // Either end may be the first that has waited for long enough, and one direction still works.
        let reasons = ["sent nothing for", "ended the connection during the handshake"];
        assert!(reasons.iter().any(|reason| outcome.stderr.contains(reason)), "{outcome}");
    }
    stall.silence(Silent::None, Direction::Both);
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn a_kernel_that_takes_longer_than_the_timeout_is_waited_for() {
    let server = server("4");
    let stall = Stall::on(server.target());
    behind(&stall, "long_kernel", &["6"], "begins").finish(LIMIT).must_succeed();
    server.must_be_well();
}

#[test]
fn a_program_that_is_stopped_goes_on_afterwards() {
    let server = server("1000");
    let stall = Stall::on(server.target());
    for (name, arguments, says) in
        [("copy_rate", ["16", "30"], "to_device"), ("many_launches", ["50000", "3"], "begins")]
    {
        let mut program = behind(&stall, name, &arguments, says);
        program.signal(Signal::STOP);
        std::thread::sleep(LONG);
        assert_eq!(server.workers().len(), 1, "as by a debugger: {}", server.log());
        program.signal(Signal::CONT);
        program.finish(LIMIT).must_succeed();
        server.must_have_workers(0);
    }
    server.must_be_well();
}
