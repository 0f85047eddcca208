//! Sandbox of the workers of a real server, and its log.

use causeway_tests::built::cuda_program;
use causeway_tests::client::by_itself;
use causeway_tests::process::{Running, run};
use causeway_tests::server::{OPEN, Server};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A server with these arguments besides.
fn server(more: &[&str]) -> Server {
    Server::start_with(&[&OPEN[..], more].concat())
}

/// Whether a server's log names a part as lacking; if so, the test's output says what was not tested.
fn lacks(server: &Server, part: &str) -> bool {
    let log = server.log();
    let line = log.lines().find(|line| line.contains("confined less") && line.contains(part));
    if let Some(line) = line {
        eprintln!("not tested: {line}");
    }
    line.is_some()
}

/// What the kernel says of a process under this name.
fn status(process: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("nothing is said of {name}:\n{text}")).trim().to_owned()
}

/// Starts a program that works until it is ended.
fn working(server: &Server) -> Running {
    let running = Running::start(&mut by_itself(&server.connect_string(), &cuda_program("long_run")));
    running.must_print("running", LIMIT);
    running
}

#[test]
fn a_worker_that_serves_a_program_is_confined() {
    let server = server(&[]);
    let _programs = [working(&server), working(&server)];
    let workers = server.workers();
    assert_eq!(workers.len(), 2);
    for worker in &workers {
        assert_eq!(status(*worker, "CapEff"), "0000000000000000");
        assert_eq!(status(*worker, "NoNewPrivs"), "1");
        if !lacks(&server, "any system call") {
            assert_eq!(status(*worker, "Seccomp"), "2");
        }
    }
    if !lacks(&server, "run as the server's user") {
        assert_ne!(status(workers[0], "Uid"), status(workers[1], "Uid"));
    }
    server.must_be_well();
}

#[test]
fn a_session_that_wants_too_much_memory_ends_and_the_log_says_why() {
    let server = server(&["--session-memory", "96M"]);
    if lacks(&server, "memory is not bounded") {
        return;
    }
    // It copies more than that to a device whose memory is the worker's.
    let outcome = run(by_itself(&server.connect_string(), &cuda_program("copy_rate")).arg("200"), LIMIT);
    assert_ne!(outcome.code(), Some(0), "{outcome}");
    server.must_have_workers(0);
    let log = server.log();
    assert!(log.contains("requested more memory than a session may have (--session-memory"), "{log}");
    run(&mut by_itself(&server.connect_string(), &cuda_program("vector_add")), LIMIT).must_succeed();
}

#[test]
fn a_server_without_the_sandbox_says_so() {
    let server = server(&["--sandbox", "off"]);
    let _program = working(&server);
    let log = server.log();
    assert!(log.contains("workers are not confined (--sandbox off)"), "{log}");
    assert_eq!(status(server.workers()[0], "NoNewPrivs"), "0");
}

#[test]
fn a_server_that_requires_the_sandbox_has_all_of_it_or_does_not_start() {
    let lacks_something = server(&[]).log().contains("confined less");
    let mut command = Server::command(&[&OPEN[..], &["--sandbox", "require"]].concat());
    if lacks_something {
        let outcome = run(&mut command, LIMIT);
        assert_eq!(outcome.code(), Some(1), "{outcome}");
        assert!(outcome.stderr.contains("the whole sandbox is required"), "{outcome}");
    } else {
        working(&Server::start_command(command));
    }
}
