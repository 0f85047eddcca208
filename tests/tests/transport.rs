//! Do connections come about as they should, and do those that must not come about end with a clear sentence?

use causeway_fabric::Target;
use causeway_tests::built::cuda_program;
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::hostile;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::Server;
use causeway_tests::tap::Tap;
use causeway_wire::handshake::{Answer, LaneHello, LaneToken, SessionId, VersionRange};
use rustix::process::Signal;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A server on a loopback port that demands a key, with the file of the key.
fn server_with_key(folder: &Path) -> Server {
    let file = folder.join("key");
    let file = file.to_str().expect("temporary folders have plain names");
    Server::start_with(&["--listen", "127.0.0.1:0", "--key-file", file])
}

/// Runs vector_add through `causeway run`.
fn vector_add(server: &str) -> Outcome {
    run(&mut through_run(Some(server), &cuda_program("vector_add")), LIMIT)
}

/// Asserts that neither `causeway run` nor a program started by itself gets a session, and that both say so in one line
/// on their standard error which contains `reason`.
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
fn a_key_is_demanded_and_encrypts_everything() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with_key(folder.path());
    assert!(server.target().key.is_some(), "{}", server.connect_string());
    let tap = Tap::on(server.target());
    // The second one sends copies over the bulk lanes.
    for program in ["vector_add", "pinned_memory", "concurrent"] {
        let mut command = through_run(Some(&tap.target().connect_string()), &cuda_program(program));
        run(command.env("CAUSEWAY_VIA", "tcp"), LIMIT).must_succeed();
    }
    assert!(tap.bytes_seen() > 1 << 20, "the tap saw {} bytes", tap.bytes_seen());
    // The name is in the first message of every client, and in the module.
    assert!(!tap.has_seen(b"vector_add"), "something travelled in the clear");
    server.must_be_well();
}

#[test]
fn the_tap_would_see_what_is_not_encrypted() {
    let server = Server::start();
    let tap = Tap::on(server.target());
    vector_add(&tap.target().connect_string()).must_succeed();
    assert!(tap.has_seen(b"vector_add"));
}

#[test]
fn the_key_is_made_once_and_readable_by_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let first = server_with_key(folder.path());
    let mode = std::fs::metadata(folder.path().join("key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let key = first.target().key.clone();
    assert!(first.end_by(Signal::TERM).code() == Some(0) && key.is_some());
    assert_eq!(
        server_with_key(folder.path()).target().key,
        key,
        "the second start must find the key of the first"
    );
}

#[test]
fn a_listener_that_others_can_reach_always_has_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Server::command(&["--listen", "0.0.0.0:0"]);
    command.env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    let server = Server::start_command(command);
    assert!(server.target().key.is_some(), "{}", server.connect_string());
    let here = Target { host: "127.0.0.1".into(), ..server.target().clone() };
    vector_add(&here.connect_string()).must_succeed();
    must_be_turned_away(&Target { key: None, ..here }.connect_string(), "key");
}

#[test]
fn another_key_is_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with_key(folder.path());
    let key = Some(causeway_fabric::Key::generate());
    must_be_turned_away(
        &Target { key, ..server.target().clone() }.connect_string(),
        "the key is not this server's",
    );
    assert_eq!(server.workers(), [] as [u32; 0]);
    vector_add(&server.connect_string()).must_succeed();
}

#[test]
fn a_missing_and_a_needless_key_are_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with_key(folder.path());
    must_be_turned_away(&server.target().to_string(), "demands a key");
    let server = Server::start();
    let key = Some(causeway_fabric::Key::generate());
    must_be_turned_away(&Target { key, ..server.target().clone() }.connect_string(), "has no key");
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
    must_be_turned_away(&address.to_string(), "no Causeway server");
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
        Answer::Refused { text } => {
            assert!(text.contains("protocols 900 to 901") && text.contains("90.0.1"), "{text}");
            assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
        }
        other => panic!("the server answered {other:?}"),
    }
    let mut hello = hostile::hello();
    hello.offer.fingerprint ^= 1;
    match hostile::ask_for_session(server.target(), &hello).1 {
        Answer::Refused { text } => assert!(text.contains("same release"), "{text}"),
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
            Answer::Refused { text } => assert!(!text.is_empty()),
            other => panic!("the server answered {other:?} to lane {}", hello.lane),
        }
    }
    assert_eq!(hostile::ask_for_lane(server.target(), &right).1, Answer::LaneReady);
    server.must_be_well();
}
