//! Deduplicated uploads (`CAUSEWAY_DEDUP=on`), whatever becomes of the cache.

use causeway_tests::built::cuda_program;
use causeway_tests::client::by_itself;
use causeway_tests::process::run;
use causeway_tests::server::{OPEN, Server};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// What `upload_again 8` copies to the device: four times 8 MiB, once 40 bytes less, and 2 MiB.
const COPIED: u64 = (4 * (8 << 20)) + (8 << 20) - 40 + (2 << 20);

fn server(folder: &Path, more: &[&str]) -> Server {
    let cache = folder.join("cache");
    let cache = cache.to_str().expect("temporary folders have plain names");
    let address = if more.contains(&"--key-file") { &OPEN[..2] } else { &OPEN[..] };
    Server::start_with(&[address, &["--cache-dir", cache], more].concat())
}

/// Runs the program on 8 MiB made from `seed`; how many of the bytes that it copied were not sent.
#[track_caller]
fn not_sent(server: &Server, folder: &Path, seed: &str, dedup: &str) -> u64 {
    let counts = folder.join("counts");
    let mut command = by_itself(&server.connect_string(), &cuda_program("upload_again"));
    command.args(["8", seed]).env("CAUSEWAY_DEDUP", dedup).env("CAUSEWAY_STATS", &counts);
    run(&mut command, LIMIT).must_succeed();
    // What is kept for later sessions is written when the program has gone.
    server.must_have_workers(0);
    let counts: Value = serde_json::from_slice(&fs::read(counts).expect("it has counted")).expect("JSON");
    assert_eq!(counts["bytes_to_device"], COPIED, "{counts:#}");
    counts["bytes_not_sent"].as_u64().expect("spared bytes are counted")
}

/// The files in the cache that are large enough to be pieces of copies.
fn pieces(folder: &Path) -> Vec<PathBuf> {
    let identities = fs::read_dir(folder.join("cache")).into_iter().flatten().flatten();
    let files = identities.flat_map(|identity| fs::read_dir(identity.path()).into_iter().flatten().flatten());
    let large = files.filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() >= 1 << 20));
    large.map(|file| file.path()).collect()
}

#[test]
fn the_second_session_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    assert!(not_sent(&server, folder.path(), "1", "on") < COPIED);
    assert_eq!(not_sent(&server, folder.path(), "1", "on"), COPIED);
    // Other data are sent, and by then known as well.
    assert!(not_sent(&server, folder.path(), "2", "on") < COPIED);
    assert_eq!(not_sent(&server, folder.path(), "2", "on"), COPIED);
    server.must_be_well();
}

#[test]
fn it_is_off_unless_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    for dedup in ["off", "", "0"] {
        assert_eq!(not_sent(&server, folder.path(), "1", dedup), 0);
    }
    assert!(pieces(folder.path()).is_empty());
}

#[test]
fn damaged_pieces_are_noticed_and_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    not_sent(&server, folder.path(), "1", "on");
    let kept = pieces(folder.path());
    assert!(kept.len() >= 2, "{kept:?}");
    for piece in &kept {
        let mut bytes = fs::read(piece).unwrap();
        bytes[12_345] ^= 1;
        fs::write(piece, bytes).unwrap();
    }
    // The program compares every byte that is on the device.
    assert!(not_sent(&server, folder.path(), "1", "on") < COPIED);
    server.must_log("discarded: its content is not what it was");
    assert_eq!(not_sent(&server, folder.path(), "1", "on"), COPIED);
}

#[test]
fn a_full_cache_makes_room_and_results_stay_right() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &["--cache-size", "9M"]);
    for seed in ["1", "2", "1"] {
        not_sent(&server, folder.path(), seed, "on");
        let kept: u64 = pieces(folder.path()).iter().map(|piece| fs::metadata(piece).unwrap().len()).sum();
        assert!(kept <= 9 << 20, "{kept} bytes");
    }
    server.must_be_well();
}

#[test]
fn without_a_cache_everything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start();
    assert_eq!(not_sent(&server, folder.path(), "1", "on"), 0);
    assert_eq!(not_sent(&server, folder.path(), "1", "on"), 0);
}

#[test]
fn another_identity_sends_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mine = server(folder.path(), &["--key-file", &key("mine")]);
    let first = not_sent(&mine, folder.path(), "1", "on");
    let theirs = server(folder.path(), &["--key-file", &key("theirs")]);
    let second = not_sent(&theirs, folder.path(), "1", "on");
    // Who finds what another identity left sends nothing at all.
    assert!(first < COPIED && second < COPIED, "{first} {second}");
    assert_eq!(not_sent(&mine, folder.path(), "1", "on"), COPIED);
}
