//! Floods of log lines: a bounded log that counts what is missing.

use causeway_access::Key;
use causeway_connection::noise::Handshake;
use causeway_tests::hostile;
use causeway_tests::process::eventually;
use causeway_tests::server::Server;
use causeway_wire::handshake::{Preface, Protection};
use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Callers with wrong keys.
const CALLERS: u64 = 1000;

/// Knocks with a key that is not the server's, until it is turned away.
fn knock_with_wrong_key(server: &Server) {
    let mut stream = hostile::dial(server.target());
    let preface = Preface::by_key(Protection::Encrypted).to_bytes();
    let proof = Handshake::client(&Key::generate(), &preface).write();
    stream.write_all(&[&preface[..], &proof].concat()).expect("the connection is open");
    let mut answer = Vec::new();
    // How the server ends the connection does not matter.
    let _ = stream.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("the key is not this server's"));
}

/// How many lines a line says were left out, if it does.
fn left_out(line: &str) -> Option<u64> {
    let (before, _) = line
        .split_once(" line")
        .filter(|(_, rest)| rest.contains("like this") && rest.contains("left out"))?;
    before.rsplit(' ').next()?.replace(',', "").parse().ok()
}

#[test]
fn a_thousand_wrong_keys_are_a_few_lines_and_a_count() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let file = file.to_str().expect("temporary folders have plain names");
    let server = Server::start_with(&["--listen", "127.0.0.1:0", "--key-file", file]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..CALLERS / 8).for_each(|_| knock_with_wrong_key(&server)));
        }
    });
    // Nobody comes any more, and the server goes on.
    eventually("the log says what is missing", LIMIT, || {
        server.log().lines().any(|line| left_out(line).is_some())
    });
    let ended = server.end_by(Signal::TERM).must_succeed();
    let (told, written): (Vec<_>, Vec<_>) = ended
        .stderr
        .lines()
        .filter(|line| line.contains("a different key"))
        .partition(|line| left_out(line).is_some());
    let missing: u64 = told.iter().filter_map(|line| left_out(line)).sum();
    assert_eq!(written.len() as u64 + missing, CALLERS, "{ended}");
    assert!(missing > CALLERS / 2 && ended.stderr.len() < 100_000, "{ended}");
}
