//! Statistics of a program (`CAUSEWAY_STATS`, `--stats`), and what they show of how calls are sent.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::through_run;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::{Server, forget_environment};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn causeway_with(arguments: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.args(arguments), LIMIT)
}

/// Runs a program with `CAUSEWAY_STATS` and returns the report.
fn statistics(server: &Server, program: &str, arguments: &[&str], folder: &Path) -> Value {
    let command = through_run(Some(&server.connect_string()), &cuda_program(program));
    statistics_of(command, arguments, folder)
}

/// The same over TCP.
fn statistics_over_tcp(server: &Server, program: &str, arguments: &[&str], folder: &Path) -> Value {
    let mut command = through_run(Some(&server.connect_string()), &cuda_program(program));
    command.env("CAUSEWAY_VIA", "tcp");
    statistics_of(command, arguments, folder)
}

fn statistics_of(mut command: Command, arguments: &[&str], folder: &Path) -> Value {
    let file = folder.join("statistics.json");
    run(command.args(arguments).env("CAUSEWAY_STATS", &file), LIMIT).must_succeed();
    let text = std::fs::read_to_string(&file).expect("the program wrote its statistics");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

#[track_caller]
fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("no number {field:?} in {report:#}"))
}

#[test]
fn statistics_of_programs_that_start_others_are_all_there() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = cuda_program("vector_add");
    let program = program.to_str().expect("the folder has a plain name");
    let twice = ["sh", "-c", "\"$0\" && \"$0\"", program];
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command
        .args(["run", "--on", "software"])
        .args(twice)
        .env("CAUSEWAY_STATS", folder.path().join("report-%p.json"));
    run(&mut command, LIMIT).must_succeed();
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder is there").count(), 2);
    let outcome =
        causeway_with(&[&["run", "--stats", "--on", "software"][..], &twice].concat()).must_succeed();
    assert!(outcome.stderr.contains("2 processes that used a GPU"), "{outcome}");
}

#[test]
fn statistics_show_that_launches_are_posted() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    // Many small launches; few of its calls need an answer.
    let report = statistics(&server, "cholesky", &[], folder.path());
    let (local, posted, called) =
        (number(&report, "local"), number(&report, "posted"), number(&report, "called"));
    assert!(posted > 10 * called && called > 0 && local > 0, "{report:#}");
    assert!(number(&report, "waits") >= 1 && number(&report, "waits") <= called + posted, "{report:#}");
    assert!(number(&report, "module_bytes") > 1000, "{report:#}");
    assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{report:#}");
    let calls = report["calls"].as_object().expect("calls by name");
    let launches = calls.iter().filter(|(name, _)| name.starts_with("cuLaunchKernel"));
    assert!(launches.filter_map(|(_, counts)| counts["posted"].as_u64()).sum::<u64>() > 100, "{report:#}");
    let sum = calls.values().flat_map(|counts| counts.as_object().expect("counts by kind").values());
    assert_eq!(sum.filter_map(Value::as_u64).sum::<u64>(), local + posted + called, "{report:#}");
}

#[test]
fn questions_about_what_is_done_need_no_server() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    // The program asks 6,000 times about idle streams, and about 1,200 times about work that it has just
    // launched.
    let report = statistics(&server, "idle_queries", &[], folder.path());
    let calls = &report["calls"];
    for name in ["cuEventQuery", "cuEventSynchronize"] {
        let called = calls[name]["called"].as_u64().unwrap_or(0);
        assert!(called < 50, "{name} waited {called} times: {report:#}");
        assert!(calls[name]["local"].as_u64().is_some_and(|local| local >= 1000), "{report:#}");
    }
    assert!(number(&report, "waits_before_first_launch") < 20, "{report:#}");
}

#[test]
fn who_has_waited_for_the_default_stream_need_not_wait_for_the_device() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    // 300 times for both, and four times while another stream is at work.
    let report = statistics(&server, "idle_queries", &["device"], folder.path());
    let calls = report["calls"].as_object().expect("calls by name");
    let (_, counts) = calls.iter().find(|(name, _)| name.starts_with("cuCtxSynchronize")).expect("it waits");
    assert!(counts["local"].as_u64() >= Some(300) && counts["called"].as_u64() == Some(4), "{report:#}");
}

#[test]
fn a_long_pageable_copy_over_shared_memory_does_not_wait_for_the_device() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    // 12 copies; whoever asks how far one is waits for it.
    for (arguments, waits) in [(&["alone"][..], Some(12)), (&["alone", "unasked"], None)] {
        let report = statistics(&server, "synchronous_copies", arguments, folder.path());
        assert_eq!(report["copies"]["to_device"]["staged"]["copies"], 12, "{report:#}");
        assert_eq!(report["round_trips"]["all"]["stream_synchronize"].as_u64(), waits, "{report:#}");
    }
}

#[test]
fn waits_ask_for_changes_of_mirrored_memory_only_where_there_are_some() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    // 40 waits, of which the server says each time that no kernel has written there; a first one before them.
    let report = statistics_over_tcp(&server, "mirrored_waits", &["idle"], folder.path());
    let trips = |report: &Value, name: &str| report["round_trips"]["all"][name].as_u64().unwrap_or(0);
    let waits = |report: &Value| -> u64 {
        let kinds = ["stream", "event", "context"];
        kinds.iter().map(|kind| trips(report, &format!("{kind}_synchronize_mirrored"))).sum()
    };
    assert!(waits(&report) >= 40, "{report:#}");
    assert!(trips(&report, "mirror_changes") <= 5, "{report:#}");
    // Three threads find 40 numbers each that kernels wrote.
    let report = statistics_over_tcp(&server, "mirrored_waits", &[], folder.path());
    assert!(waits(&report) >= 40 && trips(&report, "mirror_changes") >= 40, "{report:#}");
}

#[test]
fn statistics_count_the_bytes_copied() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let report = statistics(&server, "long_run", &["0"], folder.path());
    // One round: 50,000 numbers of 4 bytes there and back.
    assert_eq!(number(&report, "bytes_to_device"), 200_000, "{report:#}");
    assert_eq!(number(&report, "bytes_from_device"), 200_000, "{report:#}");
}

#[test]
fn programs_run_with_every_call_waiting() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    for program in ["vector_add", "streams_events", "graphs", "cholesky", "concurrent"] {
        let file = folder.path().join(program);
        let mut command = through_run(Some(&server.connect_string()), &cuda_program(program));
        run(command.env("CAUSEWAY_SYNC", "1").env("CAUSEWAY_STATS", &file), LIMIT).must_succeed();
        let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(number(&report, "posted"), 0, "{program}: {report:#}");
    }
}

#[test]
fn copies_are_counted_by_what_carried_them_and_pageable_memory_is_warned_of() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (via, transfers) in [("shm", "staged"), ("tcp", "tcp")] {
        let file = folder.path().join(via);
        let mut command = through_run(Some(&server.connect_string()), &cuda_program("copy_overlap"));
        command.env("CAUSEWAY_VIA", via).env("CAUSEWAY_STATS", &file);
        run(&mut command, LIMIT).must_succeed();
        let report: Value = serde_json::from_slice(&std::fs::read(&file).expect("a report")).expect("JSON");
        let bytes = |direction: &str, path: &str| number(&report["copies"][direction][path], "bytes");
        for direction in ["to_device", "from_device"] {
            let parts =
                ["gpudirect", "zero_copy", "with_commands", transfers].map(|path| bytes(direction, path));
            assert_eq!(
                parts.iter().sum::<u64>(),
                number(&report, &format!("bytes_{direction}")),
                "{report:#}"
            );
            // Pinned memory of a program on the server's host is the server's, too. There is no network card.
            assert_eq!((parts[0], parts[1] > 0), (0, via == "shm"), "{report:#}");
            assert!(parts[2] > 0 && parts[3] > 0 && bytes(direction, "pageable") > 0, "{report:#}");
        }
    }
    let on = server.connect_string();
    let program = cuda_program("copy_overlap");
    let outcome =
        causeway_with(&["run", "--stats", "--on", &on, "--", program.to_str().expect("a simple name")]);
    let told = outcome.must_succeed().stderr;
    assert!(told.contains("warning: ") && told.contains("pageable memory"), "{told}");
}
