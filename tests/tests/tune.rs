//! `causeway tune`: plans for copies, and errors in them.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::through_run;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::{Server, forget_environment};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn tune(configuration: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.arg("tune").args(arguments).env("XDG_CONFIG_HOME", configuration), LIMIT)
}

fn profiles(configuration: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(configuration.join("causeway/profiles")) else { return Vec::new() };
    entries.map(|entry| entry.expect("the folder can be read").path()).collect()
}

/// Runs a program that copies; with `--stats`.
fn copy(server: &Server, configuration: &Path, pipeline: Option<&str>) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command
        .args(["run", "--stats", "--on", &server.connect_string(), "--"])
        .arg(cuda_program("copies_2d_3d"));
    command.env("XDG_CONFIG_HOME", configuration).envs(pipeline.map(|text| ("CAUSEWAY_PIPELINE", text)));
    run(&mut command, LIMIT)
}

#[test]
fn the_software_gpu_is_not_tuned_unnoticed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let measured = tune(folder.path(), &["--quick"]).must_succeed();
    assert!(measured.stderr.contains("no server is named: this is a private one"), "{measured}");
    let named = tune(folder.path(), &["--quick", "--on", "software"]).must_succeed();
    assert!(!named.stderr.contains("no server is named"), "{named}");
}

#[test]
fn what_is_measured_is_kept_and_used_and_can_be_damaged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start();
    let none = tune(folder.path(), &["--show"]).must_succeed();
    assert!(none.stdout.contains("There are no profiles"), "{none}");

    let on = server.connect_string();
    let measured = tune(folder.path(), &["--on", &on, "--quick"]).must_succeed();
    for part in ["to-device", "from-device", "256K", "4M", "built-in", "GB/s", "Stored in"] {
        assert!(measured.stdout.contains(part), "no {part:?}: {measured}");
    }
    let files = profiles(folder.path());
    assert_eq!(files.len(), 1, "{files:?}");

    let shown = tune(folder.path(), &["--show"]).must_succeed();
    let table = measured.stdout.split("\n\n").nth(1).expect("a table");
    assert!(shown.stdout.contains(table), "{shown}\nis not\n{measured}");

    let used = copy(&server, folder.path(), None).must_succeed();
    assert!(used.stderr.contains("plans of: profile "), "{used}");
    let preferred = copy(&server, folder.path(), Some("2x64K, 2 lanes, 3 threads")).must_succeed();
    assert!(preferred.stderr.contains("plans of: CAUSEWAY_PIPELINE, profile "), "{preferred}");

    std::fs::write(&files[0], "{ half of a pro").expect("the profile can be written");
    let damaged = copy(&server, folder.path(), None).must_succeed();
    assert!(damaged.stderr.contains("is damaged") && damaged.stderr.contains("causeway tune"), "{damaged}");
    assert!(damaged.stderr.contains("plans of: built-in"), "{damaged}");
    let shown = tune(folder.path(), &["--show"]).must_succeed();
    assert!(shown.stderr.contains("is damaged"), "{shown}");
}

#[test]
fn mistakes_are_told_before_anything_is_done() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start();
    let refused = copy(&server, folder.path(), Some("4x1M, 99 lanes"));
    assert_eq!(refused.code(), Some(125), "{refused}");
    assert!(refused.stderr.contains("requests 99 lanes; it must be from 1 to 32"), "{refused}");

    // The library by itself refuses, too.
    let mut direct = through_run(Some(&server.connect_string()), Path::new("/usr/bin/env"));
    direct.arg("CAUSEWAY_PIPELINE=fast").arg(cuda_program("copies_2d_3d"));
    let refused = run(direct.env("XDG_CONFIG_HOME", folder.path()), LIMIT);
    assert!(refused.code() != Some(0) && refused.stderr.contains("CAUSEWAY_PIPELINE: `fast`"), "{refused}");

    let nobody = tune(folder.path(), &["--on", "127.0.0.1:1", "--quick"]);
    assert!(nobody.code() == Some(1) && nobody.stderr.contains("nothing listens"), "{nobody}");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("the file can be written");
    let unwritable = tune(&file, &["--on", &server.connect_string(), "--quick"]);
    assert!(unwritable.code() == Some(1) && unwritable.stderr.contains("cannot write"), "{unwritable}");
    assert!(profiles(folder.path()).is_empty());
}
