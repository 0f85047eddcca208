//! Software GPU in the place of a real one: never without a word.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::hostile;
use causeway_tests::process::{eventually, run};
use causeway_tests::server::{Server, forget_environment};
use causeway_wire::codec::Decoder;
use causeway_wire::frame::MAX_OPENING;
use causeway_wire::handshake::{Opening, Response};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// The driver that is not there, on machines with a GPU, too.
const NOWHERE: &str = "/nowhere/libcuda.so.1";

/// The command line of a server on a machine without a driver.
fn without_driver(arguments: &[&str]) -> Command {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["serve", "--listen", "127.0.0.1:0", "--insecure-no-key", "--no-cache"]).args(arguments);
    command.env("CAUSEWAY_DRIVER", NOWHERE).env("CAUSEWAY_NVML", "/nowhere/libnvidia-ml.so.1");
    command
}

/// What a client that asks NVML is answered.
fn ask_monitor(server: &Server) -> Response {
    let mut connection = hostile::authenticated(server.target());
    let sent = connection.send_handshake(|out| Opening::encode_monitor(&hostile::hello(), out));
    sent.expect("the connection is open");
    let answer = connection.receive_handshake(MAX_OPENING, Instant::now() + LIMIT);
    Decoder::new(&answer.expect("the server answers")).value().expect("the answer can be decoded")
}

/// The warnings in a server's log.
fn warnings(server: &Server) -> Vec<String> {
    server.log().lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
}

#[test]
fn without_a_driver_clients_are_told_why_and_what_to_do() {
    for choice in [&[][..], &["--gpu", "auto"]] {
        let server = Server::start_command(without_driver(choice));
        // Before anybody comes.
        eventually("the log says it", LIMIT, || warnings(&server).iter().any(|line| line.contains(NOWHERE)));
        let target = server.connect_string();
        for outcome in [
            run(&mut through_run(Some(&target), &cuda_program("vector_add")), LIMIT),
            run(&mut by_itself(&target, &cuda_program("vector_add")), LIMIT),
        ] {
            assert!(outcome.code().is_some_and(|code| code != 0), "{outcome}");
            for part in [NOWHERE, "on the server's machine", "`--gpu cpu`", "`--allow-software`"] {
                assert!(outcome.stderr.contains(part), "{part} in {outcome}");
            }
            assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
        }
        let refusal = |line: &&String| line.contains("new clients are refused");
        assert_eq!(warnings(&server).iter().filter(refusal).count(), 1, "{}", server.log());
        match ask_monitor(&server) {
            Response::Refused { text } => {
                assert!(text.contains("libnvidia-ml.so.1") && text.contains("`--allow-software`"), "{text}");
            }
            other => panic!("the monitor answered {other:?}"),
        }
        server.must_be_well();
    }
}

#[test]
fn who_allows_the_software_gpu_gets_it_with_a_warning() {
    let server = Server::start_command(without_driver(&["--allow-software"]));
    let target = server.connect_string();
    for _ in 0..4 {
        run(&mut by_itself(&target, &cuda_program("vector_add")), LIMIT).must_succeed();
    }
    let says = |line: &&String| line.contains(NOWHERE) && line.contains("serving the software GPU");
    assert_eq!(
        warnings(&server).iter().filter(says).count(),
        1,
        "once, not with every client: {}",
        server.log()
    );
    assert_eq!(ask_monitor(&server), Response::MonitorReady);
    server.must_be_well();
}

#[test]
fn the_software_gpu_by_name_needs_no_driver_and_the_driver_by_name_takes_no_other() {
    let server = Server::start_command(without_driver(&["--gpu", "cpu"]));
    run(&mut by_itself(&server.connect_string(), &cuda_program("vector_add")), LIMIT).must_succeed();
    let of_driver = |line: &String| line.contains("GPU") && line.contains(NOWHERE);
    assert!(!warnings(&server).iter().any(of_driver), "{}", server.log());
    // There is nobody whom it could serve: no address, no listening.
    let outcome = run(&mut without_driver(&["--gpu", "driver"]), LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stdout.is_empty(), "{outcome}");
    for part in [NOWHERE, "--gpu cpu", "causeway doctor"] {
        assert!(outcome.stderr.contains(part), "{part} in {outcome}");
    }
    for named in ["cpu", "driver"] {
        let outcome = run(&mut without_driver(&["--gpu", named, "--allow-software"]), LIMIT);
        assert!(outcome.code() == Some(1) && outcome.stderr.contains("requires --gpu auto"), "{outcome}");
    }
}
