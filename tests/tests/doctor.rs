//! `causeway doctor` on the machine where the tests run, alone and with a server, whatever that machine has.

use causeway_access::Key;
use causeway_link::{ConnectOptions, connect_diagnosis};
use causeway_tests::built::causeway;
use causeway_tests::hostile::{self, Random};
use causeway_tests::process::{Outcome, eventually, run};
use causeway_tests::server::{OPEN, Server, forget_environment};
use causeway_wire::codec::Encode as _;
use causeway_wire::diagnosis::DiagnosisRequest;
use causeway_wire::handshake::Opening;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(100);

fn doctor(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.arg("doctor").args(arguments), LIMIT)
}

/// The report as JSON; the exit code must say the same as its count of problems.
#[track_caller]
fn report(arguments: &[&str]) -> Value {
    let outcome = doctor(&[arguments, &["--json"]].concat());
    let report: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    let problems = report["problems"].as_u64().unwrap_or_else(|| panic!("no count of problems: {outcome}"));
    assert_eq!(outcome.code(), Some(i32::from(problems > 0)), "{outcome}");
    report
}

fn findings(of: &Value) -> impl Iterator<Item = &str> {
    of["findings"].as_array().expect("there is a list").iter().filter_map(|finding| finding["text"].as_str())
}

#[test]
fn this_machine_is_told_of_in_words_and_as_json() {
    let report = report(&[]);
    assert!(findings(&report["here"]).any(|text| text.contains("RDMA") || text.contains("libibverbs")));
    let words = doctor(&[]);
    assert!(words.stdout.contains("problem") && words.stderr.is_empty(), "{words}");
    let host = report["here"]["facts"]["machine"]["host"].as_str().expect("machines have names");
    assert!(words.stdout.contains(&format!("\nThis machine: {host}")), "{words}");
    assert!(words.stdout.starts_with("  note     No server is named"), "{words}");
}

#[test]
fn two_processes_hear_which_channels_messages_between_them_have() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let word = format!("{:?}", folder.path());
    let doctor = |more: &[&str]| {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.env("CAUSEWAY_SOCKET_DIR", folder.path()).args(["doctor", "--rendezvous", &word]).args(more);
        run(&mut command, LIMIT)
    };
    let (words, report) = std::thread::scope(|scope| {
        let other = scope.spawn(|| doctor(&["--json"]));
        (doctor(&[]), other.join().expect("it does not panic"))
    });
    let words = words.must_succeed();
    let first = "The other process is in the same container. Its processors are at ";
    for line in [first, "\n  vmm      yes\n", "\n  staged   yes\n"] {
        assert!(words.stdout.contains(line), "{line:?}: {words}");
    }
    // That no hosts are named is said, and is no problem.
    assert!(words.stdout.contains("\n  tcp      no: ") && words.stdout.contains("No problem."), "{words}");
    let report = report.must_succeed();
    let report: Value =
        serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {report}"));
    let has = |name: &str| {
        let mut channels = report["channels"].as_array().expect("there is a list").iter();
        channels.find(|channel| channel["channel"] == name).expect("each is told of")["has"].clone()
    };
    assert!(report["came"] == true && has("staged") == true && has("rdma") == false, "{report:#}");
    let left = std::fs::read_dir(folder.path()).expect("the folder is there").count();
    assert_eq!(left, 0, "nothing is left in the folder");
}

#[test]
fn a_server_tells_of_its_machine_with_and_without_a_key() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let key = folder.path().join("key");
    let key = key.to_str().expect("temporary folders have simple names");
    for arguments in [&OPEN[..], &["--listen", "127.0.0.1:0", "--key-file", key]] {
        let server = Server::start_with(arguments);
        let report = report(&["--on", &server.connect_string()]);
        // Both are this machine.
        assert_eq!(report["here"]["facts"]["machine"], report["there"]["facts"]["machine"], "{report:#}");
        assert_eq!(report["way"]["facts"]["used"], "shm", "{report:#}");
        // The first thing is a program that was really run.
        assert_eq!(report["program"]["facts"]["outcome"], "ran", "{report:#}");
        assert_eq!(report["program"]["facts"]["device"], "Causeway software GPU", "{report:#}");
        assert!(
            report["way"]["facts"]["round_trip"]["min_seconds"].as_f64().is_some_and(|time| time > 0.0),
            "{report:#}"
        );
        assert!(findings(&report["way"]).any(|text| text.starts_with("Sessions use shm and")));
        assert!(findings(&report["way"]).any(|text| text.starts_with("Sessions cannot use verbs: ")));
        let words = doctor(&["--on", &server.connect_string(), "--via", "tcp"]);
        assert!(
            words.stdout.contains("Sessions use tcp") && words.stdout.contains("cannot use shm"),
            "{words}"
        );
        assert!(words.stdout.starts_with("  ok       A CUDA program of this machine runs on"), "{words}");
        server.must_have_workers(0);
        server.must_be_well();
    }
}

#[test]
fn a_server_that_is_not_there_or_has_another_key_is_a_problem_and_not_a_failure() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let server = Server::start_with_key(&folder.path().join("key"));
    let mut wrong = server.target().clone();
    wrong.key = Some(Key::generate());
    for on in ["127.0.0.1:1", &wrong.connect_string()] {
        let report = report(&["--on", on]);
        assert!(report["there"].is_null(), "{report:#}");
        assert!(
            findings(&report["way"]).any(|text| text.starts_with("The server opens no session")),
            "{report:#}"
        );
        assert_eq!(report["program"]["facts"]["outcome"], "no_session", "{report:#}");
        let words = doctor(&["--on", on]);
        assert!(words.stdout.starts_with("  PROBLEM  No CUDA program can run at"), "{words}");
        let (_, end) =
            words.stdout.split_once("\nWhat to do:\n  1. ").unwrap_or_else(|| panic!("no advice: {words}"));
        assert!(!end.trim().is_empty(), "{words}");
    }
    assert_eq!(doctor(&["--on", "no:such:address"]).code(), Some(2));
}

#[test]
fn of_several_servers_each_is_looked_at_and_every_way_between_them() {
    let (first, second) = (Server::start(), Server::start());
    let on = [&first, &second].map(Server::connect_string).join(",");
    let told = report(&["--on", &on]);
    assert_eq!(told["servers"].as_array().map(Vec::len), Some(2), "{told:#}");
    let ways = told["between"]["facts"].as_array().expect("there is a list");
    let used: Vec<_> = ways.iter().map(|way| way["used"].as_str()).collect();
    assert_eq!(used, [Some("shm"); 2], "{told:#}");
    assert_ne!(ways[0]["from"], ways[1]["from"], "{told:#}");
    let words = doctor(&["--on", &on, "--via", "tcp"]);
    assert!(words.stdout.contains("The paths between the servers"), "{words}");
    assert_eq!(words.stdout.matches("over tcp; not shm: only tcp was requested").count(), 2, "{words}");
    // One that is not there has its own finding, and no way.
    let told = report(&["--on", &format!("{},127.0.0.1:1", first.connect_string())]);
    assert_eq!(told["between"]["facts"].as_array().map(Vec::len), Some(0), "{told:#}");
    assert!(told["servers"][1]["there"].is_null() && told["problems"].as_u64() > Some(0), "{told:#}");
    for server in [first, second] {
        server.must_have_workers(0);
        server.must_be_well();
    }
}

#[test]
fn questions_that_make_no_sense_end_their_own_diagnosis_only() {
    let server = Server::start();
    let mut random = Random::new(11);
    for length in [0, 1, 9, 100, 70_000] {
        let mut connection = hostile::authenticated(server.target());
        connection
            .send_handshake(|out| Opening::encode_diagnosis(&hostile::hello(), out))
            .expect("the connection is open");
        let question = hostile::frame(1, &random.bytes(length));
        // The server may have ended the connection before it has read them all.
        let _ = connection.outgoing.send(&question);
        assert!(hostile::is_ended_by_peer(&mut connection), "{length} bytes were taken for a question");
    }
    eventually("the processes have ended", LIMIT, || server.workers().is_empty());
    server.must_be_well();
}

#[test]
fn only_so_many_of_one_peer_are_answered_at_a_time() {
    let server = Server::start();
    let ask = || connect_diagnosis(server.target(), &hostile::hello(), &ConnectOptions::default());
    let mut held: Vec<_> = (0..2).map(|_| ask().expect("there is room")).collect();
    let refusal = ask().expect_err("there is no room").to_string();
    assert!(refusal.contains("2 diagnoses for 127.0.0.1") && refusal.contains("try again"), "{refusal}");
    let echo =
        held[0].request(LIMIT, |out| DiagnosisRequest::Echo(b"there?").encode(out)).expect("it is answered");
    assert_eq!(echo.as_deref(), Some(&b"there?"[..]));
    drop(held);
    eventually("there is room again", LIMIT, || ask().is_ok());
}
