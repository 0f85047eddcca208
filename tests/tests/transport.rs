//! Connections: those that come about, and the errors of those that must not.

use causeway_access::{Key, Target};
use causeway_tests::built::cuda_program;
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::hostile;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::Server;
use causeway_wire::handshake::{LaneHello, LaneToken, Response, SessionId, VersionRange};
use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs vector_add through `causeway run`.
fn vector_add(server: &str) -> Outcome {
    run(&mut through_run(Some(server), &cuda_program("vector_add")), LIMIT)
}

/// Asserts that neither `causeway run` nor a program started by itself gets a session, and that both say so
/// in one line on their standard error which contains `reason`.
#[track_caller]
fn must_be_turned_away(server: &str, reason: &str) {
    let outcome = vector_add(server);
    assert_eq!(outcome.code(), Some(125), "{outcome}");
    assert_eq!(outcome.stdout, "", "the program must not start: {outcome}");
    must_say_once(&outcome, reason);

    // The program reports what cudaMalloc returned, which is a CUDA error like any other.
    let outcome = run(&mut by_itself(server, &cuda_program("vector_add")), LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(
        outcome.stdout.starts_with("FAIL vector_add: ") && outcome.stdout.contains("cudaError"),
        "{outcome}"
    );
    must_say_once(&outcome, reason);
}

#[track_caller]
fn must_say_once(outcome: &Outcome, reason: &str) {
    assert_eq!(outcome.stderr.lines().count(), 1, "one line must be said: {outcome}");
    assert!(outcome.stderr.starts_with("causeway: "), "{outcome}");
    assert!(outcome.stderr.contains(reason), "the line must contain {reason:?}: {outcome}");
}

/// A loopback port that nobody listens on: it was free a moment ago.
fn unused_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
    listener.local_addr().expect("a listener has an address").port()
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let nowhere = format!("127.0.0.1:{}", unused_port());
    must_be_turned_away(&nowhere, &format!("nothing listens at {nowhere}"));
    must_be_turned_away("no-such-host.invalid:7690", "no-such-host.invalid");
}

#[test]
fn another_kind_of_server_is_recognised() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut caller in listener.incoming().flatten() {
            // The caller may be gone already.
            let _ = caller.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
        }
    });
    let generated = Target { key: Some(Key::generate()), ..address.to_string().parse().unwrap() };
    for server in [format!("{address}?insecure-no-key"), generated.connect_string().to_string()] {
        let outcome = vector_add(&server);
        assert!(outcome.code() == Some(125) && outcome.stderr.contains("not a Causeway server"), "{outcome}");
    }
}

#[test]
fn an_address_that_makes_no_sense_is_explained() {
    for (address, reason) in
        [("gpuhost:port", "no port"), ("http://gpuhost", "causeway://"), ("::1", "brackets")]
    {
        let outcome = vector_add(address);
        assert!(outcome.stderr.contains(reason) && outcome.stdout.is_empty(), "{outcome}");
        assert!(matches!(outcome.code(), Some(125 | 2)), "{outcome}");
        let outcome = run(&mut by_itself(address, &cuda_program("vector_add")), LIMIT);
        assert_eq!(outcome.code(), Some(1), "{outcome}");
        must_say_once(&outcome, reason);
    }
}

#[test]
fn another_version_is_refused_with_both_versions_named() {
    let server = Server::start();
    let mut hello = hostile::hello();
    hello.offer.versions = VersionRange { oldest: 900, newest: 901 };
    hello.offer.release = "90.0.1".into();
    match hostile::ask_for_session(server.target(), &hello).1 {
        Response::Refused { text } => {
            assert!(text.contains("protocols 900 to 901") && text.contains("90.0.1"), "{text}");
            assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
        }
        other => panic!("the server answered {other:?}"),
    }
    let mut hello = hostile::hello();
    hello.abilities.commands.fingerprint ^= 1;
    match hostile::ask_for_session(server.target(), &hello).1 {
        Response::Refused { text } => assert!(text.contains("same release"), "{text}"),
        other => panic!("the server answered {other:?}"),
    }
    vector_add(&server.connect_string()).must_succeed();
}

#[test]
fn a_lane_needs_the_token_of_its_session() {
    let server = Server::start();
    let (_connection, welcome) = hostile::session(server.target());
    let right = LaneHello { session: welcome.session, token: welcome.token, lane: 0 };
    let mut token = right.token.0;
    token[31] ^= 1;
    let wrong = [
        LaneHello { token: LaneToken(token), ..right },
        LaneHello { session: SessionId([7; 16]), ..right },
        LaneHello { lane: u32::MAX, ..right },
    ];
    for hello in wrong {
        match hostile::ask_for_lane(server.target(), &hello).1 {
            Response::Refused { text } => assert!(!text.is_empty()),
            other => panic!("the server answered {other:?} to lane {}", hello.lane),
        }
    }
    assert_eq!(hostile::ask_for_lane(server.target(), &right).1, Response::LaneReady);
    server.must_be_well();
}
