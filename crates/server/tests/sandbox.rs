//! Sandbox of a worker that runs foreign code.
//!
//! A broker starts one that tries (`examples/hostile_worker.rs`). What the machine of the test cannot give is
//! skipped, and said.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use causeway_link::{ConnectError, ConnectOptions, Session, connect, describe_process};
use causeway_sandbox::{Mode, Part, Plan, SandboxRequest, UserRange};
use causeway_server::broker::{Broker, BrokerConfig, GpuChoice, RunningBroker, StartError};
use causeway_wire::handshake::{ClientHello, CommandTable};

const COMMANDS: CommandTable = CommandTable::new(&[0xfeed]);

/// Users that no other test has.
fn users() -> UserRange {
    UserRange::new(2_100_100_000, 2_100_100_063).unwrap()
}

/// Everything that there is.
fn wanted() -> SandboxRequest {
    SandboxRequest { users: users(), ..SandboxRequest::default() }
}

fn config(sandbox: SandboxRequest) -> BrokerConfig {
    // Cargo puts examples beside the folder of the test programs.
    let tests = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let worker_program = tests.parent().unwrap().join("examples").join("hostile_worker");
    assert!(worker_program.exists(), "build the example first: cargo build --examples -p causeway-server");
    BrokerConfig {
        listen: Some((Ipv4Addr::LOCALHOST, 0).into()),
        worker_program,
        worker_arguments: Vec::new(),
        gpu: GpuChoice::Cpu,
        sandbox,
        ..BrokerConfig::new(COMMANDS)
    }
}

fn broker() -> RunningBroker {
    Broker::start(config(wanted())).unwrap()
}

/// The parts of the sandbox that this machine cannot give. Those of what `broker` starts are the same.
fn missing() -> Vec<Part> {
    Plan::make(&wanted()).unwrap().missing().iter().map(|one| one.part).collect()
}

/// Whether a part is there; if not, the test's output says that something was not tested.
fn has(part: Part, what: &str) -> bool {
    let plan = Plan::make(&wanted()).unwrap();
    let missing = plan.missing().iter().find(|one| one.part == part);
    if let Some(missing) = missing {
        eprintln!("not tested: {what}: {missing}");
    }
    missing.is_none()
}

fn open(broker: &RunningBroker, program: &str) -> Result<Session, ConnectError> {
    let hello = ClientHello { program: program.into(), ..describe_process(COMMANDS, Vec::new()) };
    connect(broker.target(), hello, &ConnectOptions::default())
}

/// What a worker says of its attempts: each one's name, and how it ended.
fn attempts(broker: &RunningBroker, program: &str) -> Vec<(String, String)> {
    let session = open(broker, program).unwrap();
    let told = String::from_utf8(session.welcome.snapshot.clone()).unwrap();
    let attempts: Vec<_> = told
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, outcome)| (name.to_owned(), outcome.trim().to_owned()))
        .collect();
    assert!(!attempts.is_empty(), "the worker has tried something: {told}");
    attempts
}

#[track_caller]
fn none_may_succeed(attempts: &[(String, String)]) {
    for (name, outcome) in attempts {
        assert_ne!(outcome, "done", "`{name}` has succeeded: {attempts:?}");
    }
}

/// A file that everybody may read and change, so that nothing but the sandbox keeps a worker from it.
fn open_file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "secret").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    (folder, file)
}

#[test]
fn the_key_file_is_out_of_reach() {
    let (_folder, file) = open_file();
    let broker = broker();
    let text = format!("key {}", file.display());
    if has(Part::Files, "files that everybody may read") {
        none_may_succeed(&attempts(&broker, &text));
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(file.parent().unwrap(), std::fs::Permissions::from_mode(0o700)).unwrap();
    if has(Part::Files, "private files") || has(Part::Users, "files of the server's user") {
        none_may_succeed(&attempts(&broker, &text));
    }
}

#[test]
fn neither_the_broker_nor_another_worker_is_traced() {
    let broker = broker();
    if missing().contains(&Part::Calls) {
        return eprintln!("not tested: tracing, for there is no filter of system calls");
    }
    let other = open(&broker, "itself").unwrap();
    let status = String::from_utf8(other.welcome.snapshot.clone()).unwrap();
    let worker = status.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap().trim().to_owned();
    for process in [worker, std::process::id().to_string()] {
        none_may_succeed(&attempts(&broker, &format!("trace {process}")));
    }
}

#[test]
fn no_socket_is_opened() {
    if has(Part::Calls, "sockets") {
        none_may_succeed(&attempts(&broker(), "open"));
    }
}

#[test]
fn no_program_is_started() {
    if !has(Part::Calls, "programs") {
        return;
    }
    let attempts = attempts(&broker(), "program");
    let (threads, others): (Vec<_>, Vec<_>) = attempts.into_iter().partition(|(name, _)| name == "thread");
    none_may_succeed(&others);
    assert_eq!(threads[0].1, "done", "a worker needs threads");
}

#[test]
fn a_worker_has_no_rights_but_a_users() {
    let broker = broker();
    let (one, other) = (open(&broker, "itself").unwrap(), open(&broker, "itself").unwrap());
    let status = |session: &Session| String::from_utf8(session.welcome.snapshot.clone()).unwrap();
    let of = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (one, other) = (status(&one), status(&other));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(of(&one, set), ["0000000000000000"], "{set}");
    }
    assert_eq!(of(&one, "NoNewPrivs"), ["1"]);
    if has(Part::Calls, "the filter of system calls") {
        assert_eq!(of(&one, "Seccomp"), ["2"]);
    }
    if has(Part::Users, "users of workers") {
        assert_eq!(of(&one, "CapBnd"), ["0000000000000000"]);
        let numbers = |text: &str, name| {
            of(text, name).iter().map(|number| number.parse().unwrap()).collect::<Vec<u32>>()
        };
        for name in ["Uid", "Gid"] {
            let (first, second) = (numbers(&one, name), numbers(&other, name));
            assert!(
                first.iter().all(|number| (users().first()..=users().last()).contains(number)),
                "{first:?}"
            );
            assert_ne!(first, second, "each worker has a user of its own");
        }
    }
}

#[test]
fn a_worker_that_uses_up_its_memory_is_ended() {
    if !has(Part::Memory, "memory") {
        return;
    }
    let small = SandboxRequest { session_memory: 64 << 20, ..wanted() };
    let broker = Broker::start(config(small)).unwrap();
    let told = |bytes: u64| {
        let mut session = open(&broker, &format!("memory {bytes}")).unwrap();
        let told = session.receiver.recv().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        told.map_err(|error| error.to_string())
    };
    assert_eq!(told(1 << 20), Ok("memory: done\n".to_owned()));
    assert!(told(256 << 20).is_err(), "its end is the session's");
}

#[test]
fn a_server_that_requires_everything_says_what_is_missing() {
    let required = SandboxRequest { mode: Mode::Require, users: users(), ..wanted() };
    match (Broker::start(config(required)), missing().as_slice()) {
        (Ok(broker), []) => none_may_succeed(&attempts(&broker, "open")),
        (Err(error @ StartError::Sandbox(_)), [_, ..]) => {
            assert!(error.to_string().contains("--sandbox require"), "{error}");
        }
        (outcome, missing) => panic!("{missing:?} are missing, but the broker: {:?}", outcome.map(drop)),
    }
}

#[test]
fn without_a_sandbox_everything_can_be_done() {
    let (_folder, file) = open_file();
    let broker = Broker::start(config(SandboxRequest { mode: Mode::Off, ..wanted() })).unwrap();
    let attempts = attempts(&broker, &format!("key {}", file.display()));
    let done = |name: &str| attempts.iter().any(|(tried, outcome)| tried == name && outcome == "done");
    // So what the other tests see fail is what these attempts do.
    assert!(["read", "write", "remove", "leave"].into_iter().all(done), "{attempts:?}");
}
