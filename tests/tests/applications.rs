//! Applications of `bench/apps`: their results, and the report of what was measured.
//!
//! Here they run through the server on the software GPU, at small sizes and with kernels of their own in
//! place of NVIDIA's libraries.

use causeway_tests::built;
use causeway_tests::process::run;
use causeway_tests::server::forget_environment;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

const APPLICATIONS: [&str; 5] = ["cublas", "cufft", "fdtd3d", "cholesky", "molecules"];

/// The compiled applications, beside the folder of the test programs.
fn applications_folder() -> PathBuf {
    let folder = built::programs_folder().with_file_name("apps");
    assert!(folder.is_dir(), "{} is not there: run `make apps`", folder.display());
    folder
}

/// `python3` in the folder of `gpu_test`, which measures them, and leaves nothing there nor in folders of the
/// user.
fn python(caches: &Path) -> Command {
    let mut command = Command::new("python3");
    forget_environment(&mut command);
    command.arg("-B").current_dir(built::source_tree().join("tools"));
    command.env("XDG_CACHE_HOME", caches).env("CAUSEWAY_CACHE_DIR", "");
    command.env("LD_LIBRARY_PATH", built::programs_folder().join("lib"));
    command
}

#[test]
fn every_application_runs_over_every_transport_and_is_in_the_report() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let report = folder.path().join("report");
    let mut command = python(folder.path());
    command
        .args(["gpu_test/apps", "--small", "--no-native", "--gpu", "cpu", "--causeway"])
        .arg(built::causeway());
    command.arg("--programs").arg(applications_folder()).arg("--report").arg(&report);
    run(&mut command, LIMIT).must_succeed();

    let text = std::fs::read_to_string(report.with_extension("md")).expect("the report is written");
    assert!(text.contains("cuFFT: transform of n x n complex numbers"), "{text}");
    let json = std::fs::read_to_string(report.with_extension("json")).expect("the numbers are written");
    let data: serde_json::Value = serde_json::from_str(&json).expect("the numbers are JSON");
    let ways = data["ways"].as_array().expect("the ways are a list");
    let runs = data["runs"].as_array().expect("the runs are a list");
    assert_eq!(data["ways"], serde_json::json!(["tcp", "shm"]));
    for way in ways {
        for application in APPLICATIONS {
            let of_this = |run: &&serde_json::Value| run["app"] == application && run["way"] == *way;
            let seconds: Vec<_> = runs.iter().filter(of_this).map(|run| run["seconds"].as_f64()).collect();
            assert!(!seconds.is_empty(), "{application} was not run over {way}");
            assert!(
                seconds.iter().all(|seconds| seconds.is_some_and(|seconds| seconds > 0.0)),
                "{seconds:?}"
            );
        }
    }
}

#[test]
fn an_application_that_fails_is_a_failure_of_the_measurement() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let applications = folder.path().join("apps");
    std::fs::create_dir(&applications).expect("a folder can be made in a new one");
    std::os::unix::fs::symlink("/bin/false", applications.join("molecules")).expect("a link can be made");
    let mut command = python(folder.path());
    command
        .args(["gpu_test/apps", "molecules", "--small", "--no-native", "--gpu", "cpu", "--causeway"])
        .arg(built::causeway());
    command.arg("--programs").arg(&applications).arg("--report").arg(folder.path().join("report"));
    let outcome = run(&mut command, LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stdout.contains("FAIL molecules, "), "{outcome}");
}

#[test]
fn the_report_computes_overheads_from_pairs() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let words = ["-m", "unittest", "discover", "-s", "gpu_test/tests", "-t", "."];
    run(python(folder.path()).args(words), LIMIT).must_succeed();
}
