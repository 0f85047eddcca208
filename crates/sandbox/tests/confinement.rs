//! Confinement of a process: what it can still do. Each test has one of its own (`examples/confined.rs`).

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use causeway_sandbox::{Mode, Part, Plan, SandboxRequest};

fn confined(arguments: &[&str]) -> Output {
    // Cargo puts examples beside the folder of the test programs.
    let tests = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let program = tests.parent().unwrap().join("examples").join("confined");
    assert!(program.exists(), "build the example first: cargo build --examples -p causeway-sandbox");
    Command::new(program).args(arguments).output().unwrap()
}

/// Whether the kernel has what confines files and system calls; if not, the test's output says so.
fn has_both() -> bool {
    let plan = Plan::make(&SandboxRequest::default()).unwrap();
    let lacking = plan.missing().iter().find(|one| matches!(one.part, Part::Files | Part::Calls));
    if let Some(missing) = lacking {
        eprintln!("not tested: {missing}");
    }
    lacking.is_none()
}

fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

#[test]
fn what_is_given_up_is_gone_and_the_rest_still_works() {
    if !has_both() {
        return;
    }
    let (writable, forbidden) = (open_folder(), open_folder());
    let text = |folder: &Path| folder.to_str().unwrap().to_owned();
    let output = confined(&[&text(writable.path()), &text(forbidden.path())]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let outcomes: HashMap<&str, &str> = said.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    for when in ["entered", "closed"] {
        let outcome = |name: &str| outcomes[format!("{when} {name}").as_str()];
        for name in ["write", "rename", "library", "status", "name", "thread"] {
            assert_eq!(outcome(name), "done", "{when} {name}");
        }
        for name in ["forbidden", "forbidden-write"] {
            assert_eq!(outcome(name), libc::EACCES.to_string(), "{when} {name}");
        }
    }
    let denied = libc::EPERM.to_string();
    assert_eq!((outcomes["closed socket"], outcomes["closed terminal"]), (denied.as_str(), denied.as_str()));
    // The driver's start may need what a session does not; its standard input is no terminal here.
    assert_ne!(outcomes["entered terminal"], denied);
}

#[test]
fn a_process_with_two_threads_is_not_confined_by_halves() {
    assert!(confined(&["threads"]).status.success());
}

#[test]
fn a_process_whose_broker_has_gone_does_not_begin() {
    assert!(confined(&["orphan"]).status.success());
}

#[test]
fn without_a_sandbox_there_is_no_confinement() {
    let plan = std::sync::Arc::new(
        Plan::make(&SandboxRequest { mode: Mode::Off, ..SandboxRequest::default() }).unwrap(),
    );
    let jail = plan.jail(causeway_sandbox::Purpose::Clients).unwrap();
    assert_eq!(jail.confinement(), None);
    assert!(plan.missing().is_empty());
}
