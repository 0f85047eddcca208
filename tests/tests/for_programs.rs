//! Output for programs: JSON, completions and manual pages say what people are shown.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::through_run;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::forget_environment;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A command of a user who has nothing in this folder but what the command puts there.
fn causeway_in(folder: &tempfile::TempDir, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.args(arguments).env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME"), LIMIT)
}

/// What a command prints as JSON, and nothing but that.
#[track_caller]
fn json(folder: &tempfile::TempDir, arguments: &[&str]) -> Value {
    let outcome = causeway_in(folder, arguments).must_succeed();
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {outcome}"))
}

#[test]
fn what_is_read_is_printed_as_json_too() {
    let folder = tempfile::tempdir().unwrap();
    let devices = json(&folder, &["devices", "--json", "--on", "software,software"]);
    let numbers: Vec<_> =
        devices["servers"].as_array().unwrap().iter().map(|one| &one["devices"][0]["number"]).collect();
    assert_eq!(numbers, [0, 1], "{devices:#}");
    assert_eq!(devices["servers"][0]["devices"][0]["name"], "Causeway software GPU");

    let functions = json(&folder, &["api", "--json"]);
    let missing = json(&folder, &["api", "--json", "--not-supported"]);
    let of = |list: &Value, supported: bool| {
        list.as_array().unwrap().iter().filter(|one| one["is_supported"] == supported).count()
    };
    assert!(of(&functions, true) > 100 && of(&missing, true) == 0);
    assert_eq!(of(&functions, false), of(&missing, false));

    assert_eq!(json(&folder, &["key", "list", "--json"])["servers"].as_array().map(Vec::len), Some(0));
    assert_eq!(json(&folder, &["tune", "--show", "--json"])["profiles"].as_array().map(Vec::len), Some(0));
    assert_eq!(json(&folder, &["config", "show", "--json"])["files"].as_array().map(Vec::len), Some(0));
    let run = json(&folder, &["bench", "launch", "--quick", "--json"]);
    assert!(run["cases"].as_array().is_some_and(|cases| !cases.is_empty()), "{run:#}");
    assert_eq!(run["targets"][0]["name"], "software GPU");
}

#[test]
fn statistics_are_json_with_everything_that_was_counted() {
    let mut command = through_run(None, &cuda_program("vector_add"));
    let program =
        command.get_args().map(ToOwned::to_owned).skip_while(|word| *word != "--").collect::<Vec<_>>();
    let mut with_json = Command::new(causeway());
    forget_environment(&mut with_json);
    with_json.args(["run", "--stats", "--json", "--on", "software"]).args(program);
    for (name, value) in command.get_envs() {
        with_json.env(name, value.unwrap_or_default());
    }
    let outcome = run(&mut with_json, LIMIT).must_succeed();
    let report: Value =
        serde_json::from_str(&outcome.stderr).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    assert!(report["called"].as_u64() > Some(0) && report["processes"] == 1, "{report:#}");
    // Without statistics there is nothing to print.
    let outcome = run(command.env("CAUSEWAY_STATS", ""), LIMIT).must_succeed();
    assert!(outcome.stderr.is_empty(), "{outcome}");
}

#[test]
fn shells_and_manuals_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = causeway_in(&folder, &["completions", shell]).must_succeed().stdout;
        for word in ["run", "serve", "doctor", "config", "key-file"] {
            assert!(script.contains(word), "{shell} knows nothing of {word}");
        }
        for hidden in ["try-driver", "tune-here"] {
            assert!(!script.contains(hidden), "{shell} is told of {hidden}, which nobody types");
        }
    }
    // Bash completes by what it was given.
    let script = folder.path().join("causeway.bash");
    fs::write(&script, causeway_in(&folder, &["completions", "bash"]).stdout).unwrap();
    let ask = format!(
        ". {}; COMP_WORDS=(causeway doc); COMP_CWORD=1; _causeway causeway doc causeway; echo \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let completed = run(Command::new("bash").args(["-c", &ask]), LIMIT).must_succeed();
    assert_eq!(completed.stdout.trim(), "doctor", "{completed}");

    let pages = folder.path().join("man1");
    causeway_in(&folder, &["man", pages.to_str().unwrap()]).must_succeed();
    for (page, words) in [
        ("causeway.1", "causeway\\-run"),
        ("causeway-serve.1", "\\-\\-listen"),
        ("causeway-key-add.1", "key"),
    ] {
        let text = fs::read_to_string(pages.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.starts_with(".ie") && text.contains(words), "{page}: {text}");
    }
    assert!(!pages.join("causeway-worker.1").exists());
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let outcome = causeway_in(&folder, &["man", file.to_str().unwrap()]);
    assert!(
        outcome.code() == Some(1) && outcome.stderr.contains("cannot write the manual pages to"),
        "{outcome}"
    );
}
