//! `causeway bench`: several targets, its files, and targets that fail.

use causeway_tests::built::{causeway, client_library};
use causeway_tests::process::{Outcome, Running, run};
use causeway_tests::server::{Server, forget_environment};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.arg("bench").args(arguments).env("CAUSEWAY_CACHE_DIR", "");
    command
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

fn json(folder: &Path, kind: &str) -> Value {
    let path = folder.join(kind).with_extension("json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

/// How many times of a case were measured on a target.
fn samples(run: &Value, case: usize, target: usize) -> usize {
    let times = &run["cases"][case]["outcomes"][target]["measured"]["samples"]["done_us"];
    times.as_array().map_or(0, Vec::len)
}

#[track_caller]
fn must_fail(outcome: &Outcome, words: &[&str]) {
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    for word in words {
        assert!(outcome.stderr.contains(word), "nothing is said of {word:?}: {outcome}");
    }
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
}

#[test]
fn copies_are_measured_on_two_servers_in_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let (plain, keyed) = (Server::start(), Server::start_with_key(&key));
    let out = folder.path().join("new/results");
    let secret = keyed.connect_string();
    let mut command = bench(&["copy", "--on", &plain.connect_string(), "--on", &secret, "--out", text(&out)]);
    command.args(["--quick", "--sizes", "1,4K,1M", "--repetitions", "7"]);
    let outcome = run(&mut command, LIMIT).must_succeed();
    for word in
        ["pageable to the device", "pinned from the device, 16 in a row", "1 MiB", "GB/s", "software GPU"]
    {
        assert!(outcome.stdout.contains(word), "nothing is said of {word:?}: {outcome}");
    }
    let run = json(&out, "copy");
    assert_eq!(run["cases"].as_array().map(Vec::len), Some(8 * 3));
    for case in 0..7 * 3 {
        for target in 0..2 {
            assert_eq!(samples(&run, case, target), 7, "{}", run["cases"][case]);
        }
    }
    // The software GPU is one device.
    assert!(run["cases"][21]["outcomes"][0]["refused"]["reason"].is_string(), "{}", run["cases"][21]);
    for name in ["copy.csv", "copy-bandwidth.svg", "copy-latency.svg"] {
        let content = std::fs::read(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let begins = match name.rsplit('.').next() {
            Some("svg") => content.starts_with(b"<svg "),
            _ => content.starts_with(b"case,bytes,"),
        };
        assert!(begins, "{name} is no such file");
        let word = secret.trim_start_matches("causeway://").split('@').next().unwrap();
        assert!(!String::from_utf8_lossy(&content).contains(word), "{name} holds the key");
    }
    let whole = std::fs::read_to_string(out.join("copy.json")).unwrap();
    assert!(whole.contains("causeway://...@127.0.0.1"), "the command line is kept without the key");
    assert!(!whole.contains(&secret) && !outcome.stdout.contains(&secret), "{outcome}");
    plain.must_have_workers(0);
    keyed.must_have_workers(0);
}

#[test]
fn waits_and_launches_are_measured_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, cases, word) in [("latency", 8, "query an idle stream"), ("launch", 5, "4 KiB")] {
        let mut command = bench(&[kind, "--quick", "--repetitions", "3", "--out", text(folder.path())]);
        let outcome = run(&mut command, LIMIT).must_succeed();
        assert!(outcome.stdout.contains(word), "{outcome}");
        let run = json(folder.path(), kind);
        assert_eq!(run["cases"].as_array().map(Vec::len), Some(cases), "{run:#}");
        assert!((0..cases).all(|case| samples(&run, case, 0) == 3), "{run:#}");
    }
}

#[test]
fn copies_between_two_devices_are_measured() {
    let mut command = bench(&["copy", "--memory", "peer", "--sizes", "8,64K", "--repetitions", "3"]);
    let outcome = run(command.env("CAUSEWAY_SOFTWARE_GPU_DEVICES", "2"), LIMIT).must_succeed();
    assert!(
        outcome.stdout.contains("from device to device") && outcome.stdout.contains("64 KiB"),
        "{outcome}"
    );
    assert!(!outcome.stdout.contains("not measured"), "{outcome}");
}

#[test]
fn copies_from_one_server_to_another_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Server::start(), Server::start());
    let on = format!("{},{}", one.connect_string(), other.connect_string());
    let arguments =
        ["copy", "--memory", "peer", "--sizes", "8,64K,1M", "--repetitions", "3", "--on", &on, "--out"];
    let outcome = run(bench(&arguments).arg(folder.path()), LIMIT).must_succeed();
    assert!(!outcome.stdout.contains("not measured"), "{outcome}");
    let results = json(folder.path(), "copy");
    assert_eq!(results["targets"].as_array().map(Vec::len), Some(1), "{results:#}");
    assert!((0..3).all(|case| samples(&results, case, 0) == 3), "{results:#}");
    // One that is not there is said of both.
    let on = format!("{},127.0.0.1:1", one.connect_string());
    let outcome = run(&mut bench(&["copy", "--memory", "peer", "--sizes", "8", "--on", &on]), LIMIT);
    must_fail(&outcome, &["127.0.0.1:1: "]);
    one.must_have_workers(0);
    other.must_have_workers(0);
}

#[test]
fn targets_that_are_not_there_do_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start();
    let on = format!("127.0.0.1:1,{}", server.connect_string());
    let mut command =
        bench(&["latency", "--native", "--on", &on, "--repetitions", "3", "--out", text(folder.path())]);
    let outcome = run(command.env("CAUSEWAY_DRIVER", "/no/such/libcuda.so"), LIMIT);
    must_fail(&outcome, &["native: ", "/no/such/libcuda.so", "127.0.0.1:1: "]);
    let results = json(folder.path(), "latency");
    assert_eq!((samples(&results, 0, 0), samples(&results, 0, 1), samples(&results, 0, 2)), (0, 0, 3));
    assert!(results["targets"][0]["error"].is_string() && results["targets"][2]["trouble"].is_null());

    // With nothing else there are no results, and Causeway's library is not taken for NVIDIA's.
    let mut command = bench(&["latency", "--native"]);
    let outcome = run(command.env("CAUSEWAY_DRIVER", client_library()), LIMIT);
    must_fail(&outcome, &["Causeway's own client"]);
    assert_eq!(outcome.stdout, "");
}

#[test]
fn a_target_that_ends_in_the_middle_is_told_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (steady, dying) = (Server::start(), Server::start());
    let mut command = bench(&["copy", "--memory", "pinned", "--direction", "to", "--sizes", "4K,8K"]);
    command.args([
        "--on",
        &steady.connect_string(),
        "--on",
        &dying.connect_string(),
        "--repetitions",
        "2000",
    ]);
    let mut running = Running::start(command.args(["--out", text(folder.path())]));
    dying.must_have_workers(1);
    for worker in dying.workers() {
        let worker =
            i32::try_from(worker).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
        // It may have ended, if the run was over already; then the test fails below.
        let _ = rustix::process::kill_process(worker, rustix::process::Signal::KILL);
    }
    let outcome = running.finish(LIMIT);
    must_fail(&outcome, &[&dying.target().to_string()]);
    let results = json(folder.path(), "copy");
    assert!(results["targets"][1]["error"].is_string(), "{outcome}");
    for case in 0..2 {
        assert_eq!((samples(&results, case, 0), samples(&results, case, 1)), (2000, 0), "{outcome}");
    }
}

#[test]
fn mistakes_are_told_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let outcome = run(&mut bench(&["launch", "--out", text(&file.join("results"))]), LIMIT);
    must_fail(&outcome, &["cannot create the folder", "file/results"]);
    let outcome = run(&mut bench(&["copy", "--sizes", "8,many"]), LIMIT);
    assert!(outcome.code() == Some(2) && outcome.stderr.contains("\"many\" is not a size"), "{outcome}");
    must_fail(
        &run(&mut bench(&["copy", "--memory", "async", "--sizes", "1G"]), LIMIT),
        &["nothing to measure"],
    );
    must_fail(&run(&mut bench(&["latency", "--on", "host:port"]), LIMIT), &["port"]);
}

#[test]
fn plans_by_size_are_compared_with_fixed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut command =
        bench(&["pipeline", "--sizes", "64K,1M", "--memory", "pinned", "--via", "tcp", "--repetitions", "6"]);
    command.args(["--fixed", "1x256K, 1 lane", "--fixed", "4x1M, 2 lanes", "--out", text(folder.path())]);
    let outcome = run(&mut command, LIMIT).must_succeed();
    for word in ["software GPU tcp", "1 MiB pinned to the device", "ahead on average", "required are 0"] {
        assert!(outcome.stdout.contains(word), "nothing is said of {word:?}: {outcome}");
    }
    let results = json(folder.path(), "pipeline");
    assert_eq!(results["targets"].as_array().map(Vec::len), Some(3), "{results:#}");
    for target in 0..3 {
        assert_eq!(results["targets"][target]["module"], "tcp", "{results:#}");
    }
    assert_eq!(results["comparisons"].as_array().map(Vec::len), Some(4), "{results:#}");
    assert_eq!(results["verdicts"].as_array().map(Vec::len), Some(1), "{results:#}");
    let outcome = run(&mut bench(&["pipeline", "--fixed", "many lanes"]), LIMIT);
    assert!(outcome.code() == Some(2) && outcome.stderr.contains("many lanes"), "{outcome}");
}

#[test]
fn each_way_to_a_server_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut command = bench(&["latency", "--on", &server.connect_string(), "--via", "tcp,shm,verbs"]);
    let outcome = run(command.args(["--repetitions", "3", "--out", text(folder.path())]), LIMIT);
    // This machine has no card for it.
    must_fail(&outcome, &["verbs"]);
    let results = json(folder.path(), "latency");
    for (target, module) in ["tcp", "shm"].into_iter().enumerate() {
        assert_eq!(results["targets"][target]["module"], module, "{outcome}");
        assert!(results["targets"][target]["error"].is_null(), "{outcome}");
        assert_eq!(samples(&results, 0, target), 3, "{outcome}");
    }
    assert!(results["targets"][2]["error"].is_string(), "{outcome}");
    server.must_have_workers(0);
}
