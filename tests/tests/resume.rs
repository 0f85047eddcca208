//! Resumption of programs whose connection over TCP is lost. It works at a server behind a relay that cuts
//! its connections.

use causeway_tests::built::cuda_program;
use causeway_tests::client::by_itself;
use causeway_tests::process::{Running, eventually};
use causeway_tests::server::{OPEN, Server};
use causeway_tests::stall::Stall;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a program may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A session is not resumed before it has begun: connections are left alone for so long.
const HANDSHAKE: Duration = Duration::from_millis(300);

fn command(stall: &Stall, name: &str, arguments: &[&str]) -> Command {
    let mut command = by_itself(&stall.target().connect_string(), &cuda_program(name));
    command.env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_LANES", "3").env("CAUSEWAY_RESUME_TIMEOUT", "60");
    command.args(arguments);
    command
}

#[test]
fn programs_compute_the_same_though_their_connections_are_cut_all_the_time() {
    let server = Server::start_with(&OPEN);
    let stall = Stall::on(server.target());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cuts = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(HANDSHAKE);
                stall.cut(HANDSHAKE);
            }
        });
        // Each checks what it has computed or copied.
        for (name, arguments) in [
            ("random_copies", &[][..]),
            ("many_launches", &["60000", "1"]),
            ("polled_copies", &[]),
            ("copy_rows", &[]),
            ("callback_waits", &[]),
        ] {
            let outcome = Running::start(&mut command(&stall, name, arguments)).finish(LIMIT);
            assert_eq!(outcome.code(), Some(0), "{name}: {outcome}");
        }
        is_over.store(true, Ordering::SeqCst);
        cuts.join().unwrap();
    });
    assert!(server.log().contains("resumed after"), "{}", server.log());
    // A worker whose program has ended while its connection was cut waits for it as long as was agreed.
    server.must_be_well();
}

/// The server hears of a program's end from the program, which waits for nothing but the answer.
#[test]
fn a_program_that_ends_leaves_no_connection_to_be_resumed() {
    let server = Server::start_with(&OPEN);
    for devices in ["0", ""] {
        for _ in 0..4 {
            let mut command = by_itself(&server.connect_string(), &cuda_program("vector_add"));
            command.env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_RESUME_TIMEOUT", "60");
            // A program that may see no device says so and ends its session, too.
            command.env("CUDA_VISIBLE_DEVICES", devices).env("CAUSEWAY_LOG", "info");
            let outcome = Running::start(&mut command).finish(LIMIT);
            assert_eq!(outcome.code() == Some(0), !devices.is_empty(), "{outcome}");
            assert!(!outcome.stderr.contains("connection lost"), "{outcome}");
            // Nothing is left that waits for it.
            server.must_have_workers(0);
        }
    }
    let log = server.log();
    assert!(!log.contains("connection lost") && !log.contains("was refused"), "{log}");
    server.must_be_well();
}

#[test]
fn a_session_that_has_ended_is_not_waited_for() {
    let server = Server::start_with(&OPEN);
    let stall = Stall::on(server.target());
    let mut program = Running::start(&mut command(&stall, "long_kernel", &["1000"]));
    program.must_print("begins", LIMIT);
    let [worker] = server.workers()[..] else { panic!("one worker") };
    kill_process(Pid::from_raw(worker as i32).unwrap(), Signal::KILL).unwrap();
    let outcome = program.finish(Duration::from_secs(50));
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(
        outcome
            .stderr
            .contains("this server does not have the program's session: it was restarted meanwhile"),
        "{outcome}"
    );
}

#[test]
fn the_session_of_a_program_that_does_not_come_back_ends() {
    let server = Server::start_with(&[OPEN.as_slice(), &["--resume-timeout", "2"]].concat());
    let stall = Stall::on(server.target());
    let mut program = Running::start(&mut command(&stall, "long_kernel", &["1000"]));
    program.must_print("begins", LIMIT);
    program.signal(Signal::KILL);
    program.finish(LIMIT);
    eventually("the worker has ended", LIMIT, || server.workers().is_empty());
    server.must_log("could not be resumed within 2 s");
}
