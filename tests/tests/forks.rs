//! Forks of processes together with their sessions: the child has the GPU's state beside its parent, and what
//! cannot be forked is refused.

use std::process::Command;
use std::time::Duration;

use causeway_tests::built::{causeway, cuda_program, source_tree};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Running, eventually, run};
use causeway_tests::server::{OPEN, Server, forget_environment};
use rustix::process::Signal;

/// The sessions of a server, as JSON.
fn sessions(server: &Server) -> Vec<serde_json::Value> {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["sessions", "--json", "--on"]).arg(server.connect_string());
    let list = run(&mut command, LIMIT).must_succeed().stdout;
    let server: serde_json::Value = serde_json::from_str(&list).unwrap();
    server["sessions"].as_array().unwrap().clone()
}

/// Waits until a server has no session. It may have a worker that is ready for the next one.
fn must_be_left(server: &Server) {
    eventually("the server has no session", LIMIT, || sessions(server).is_empty());
}

/// How long anything may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

fn forking(server: &Server, via: &str, how: &[&str]) -> Command {
    let mut command = by_itself(&server.connect_string(), &cuda_program("forked_session"));
    command.env("CAUSEWAY_VIA", via).env("CAUSEWAY_LANES", "3").env("CAUSEWAY_FORK", "1");
    command.args(how);
    command
}

#[test]
fn children_go_on_with_the_state_of_their_parents() {
    let folder = tempfile::tempdir().unwrap();
    // With a key, the connections of children are encrypted by keys of their own.
    let keyed = Server::start_with_key(&folder.path().join("key"));
    run(&mut forking(&keyed, "tcp", &[]), LIMIT).must_succeed();
    must_be_left(&keyed);
    let open = Server::start_with(&OPEN);
    run(&mut forking(&open, "shm", &[]), LIMIT).must_succeed();
    // A session that is resumed can be forked, too.
    run(forking(&open, "tcp", &[]).env("CAUSEWAY_FORK", "0").env("CAUSEWAY_RESUME_TIMEOUT", "2"), LIMIT)
        .must_succeed();
    must_be_left(&open);
    for server in [keyed, open] {
        server.must_be_well();
    }
}

#[test]
fn what_cannot_be_forked_is_refused_and_goes_on() {
    let server = Server::start_with(&OPEN);
    let refused = |server: &Server, why: &str| {
        run(&mut forking(server, "tcp", &["refused", why]), LIMIT).must_succeed();
    };
    run(forking(&server, "tcp", &["refused", "CAUSEWAY_FORK=1"]).env_remove("CAUSEWAY_FORK"), LIMIT)
        .must_succeed();
    refused(&Server::start_with(&[OPEN.as_slice(), &["--max-sessions", "1"]].concat()), "--max-sessions");
    run(&mut forking(&server, "shm", &["refused", "MADV_DONTFORK"]), LIMIT).must_succeed();
    run(&mut forking(&server, "shm", &["left_out"]), LIMIT).must_succeed();
    // Two children, and later two more, beside their parent.
    let three = Server::start_with(&[OPEN.as_slice(), &["--max-sessions", "3"]].concat());
    run(&mut forking(&three, "tcp", &["limit", "2", "--max-sessions"]), LIMIT).must_succeed();
    // Where memory is missing, the child learns that.
    let mut small = Server::command(&OPEN);
    small.env("CAUSEWAY_SOFTWARE_GPU_MEMORY", "10M");
    let small = Server::start_command(small);
    run(&mut forking(&small, "tcp", &["full"]), LIMIT).must_succeed();
    must_be_left(&small);
    server.must_be_well();
}

#[test]
fn limits_of_a_client_count_its_forks() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let server = Server::start_with_key(&key);
    let address = server.target().endpoint.to_string();
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["client", "add", "ada", "--device-memory", "20M", "--address", &address, "--key-file"]);
    command.arg(key).env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME");
    let ada = run(&mut command, LIMIT).must_succeed().stdout;
    // The program has 8 MiB: that is enough for one child at a time.
    run(forking(&server, "tcp", &["limit", "1", "device-memory"]).env("CAUSEWAY_ON", ada.trim()), LIMIT)
        .must_succeed();
    server.must_be_well();
}

#[test]
fn a_fork_is_a_session_that_names_its_parent_and_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let (end, audit) = (folder.path().join("end"), folder.path().join("audit.jsonl"));
    let options = ["--audit-log", audit.to_str().unwrap()];
    let server = Server::start_with(&[OPEN.as_slice(), &options].concat());
    let program = Running::start(&mut forking(&server, "tcp", &["wait", end.to_str().unwrap()]));
    program.must_print("forked", LIMIT);
    let open = sessions(&server);
    let [child] = &open.iter().filter(|session| !session["parent"].is_null()).collect::<Vec<_>>()[..] else {
        panic!("one fork: {open:?}")
    };
    let [parent] = &open.iter().filter(|session| session["parent"].is_null()).collect::<Vec<_>>()[..] else {
        panic!("one parent: {open:?}")
    };
    assert_eq!(child["parent"], parent["session"]);
    assert_ne!(child["process"], parent["process"]);
    let lines = std::fs::read_to_string(&audit).unwrap();
    let begun: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["event"] == "session-begins")
        .collect();
    assert_eq!((begun.len(), &begun[1]["parent"]), (2, &parent["session"]));
    // The parent dies without a word. Its child goes on, and says so.
    let process = parent["process"].as_u64().unwrap();
    let process = rustix::process::Pid::from_raw(process as i32).unwrap();
    rustix::process::kill_process(process, Signal::KILL).unwrap();
    std::fs::write(&end, "").unwrap();
    program.must_print("the child is well", LIMIT);
    must_be_left(&server);
    server.must_be_well();
}

/// A Python program that forks beside a thread that keeps the interpreter's lock in its CUDA calls.
const PYTHON: &str = r#"
import ctypes, os, threading
import causeway_gpu

try:
    causeway_gpu.fork()
    exit("it has forked without a driver")
except causeway_gpu.CausewayError as refusal:
    assert "after the first use of CUDA" in str(refusal), refusal
assert causeway_gpu.stats() == {}
library = "libcuda.so.1"
cuda, keeps_lock = ctypes.CDLL(library), ctypes.PyDLL(library)
check = lambda status: status == 0 or exit(f"error {status}")
hooks = []
os.register_at_fork(
    before=lambda: hooks.append("before"),
    after_in_parent=lambda: hooks.append("parent"),
    after_in_child=lambda: hooks.append("child"),
)
try:
    causeway_gpu.fork()
    exit("it has forked without a session")
except causeway_gpu.CausewayError as refusal:
    assert "no session" in str(refusal) and hooks == ["before", "parent"], (refusal, hooks)
check(cuda.cuInit(0))
context, memory, other = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
SIZE = 1 << 20
for address in memory, other:
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(SIZE)))


def put(data):
    check(cuda.cuMemcpyHtoD_v2(memory, data, ctypes.c_size_t(SIZE)))


def found():
    data = ctypes.create_string_buffer(SIZE)
    check(cuda.cuMemcpyDtoH_v2(data, memory, ctypes.c_size_t(SIZE)))
    return data.raw


ends = False


def work():
    check(keeps_lock.cuCtxSetCurrent(context))
    while not ends:
        check(keeps_lock.cuMemsetD8_v2(other, 7, ctypes.c_size_t(SIZE)))
        check(keeps_lock.cuCtxSynchronize())


thread = threading.Thread(target=work)
thread.start()
for round in range(3):
    before = os.urandom(SIZE)
    put(before)
    hooks.clear()
    child = causeway_gpu.fork()
    if child == 0:
        assert hooks == ["before", "child"] and found() == before
        mine = os.urandom(SIZE)
        put(mine)
        assert found() == mine
        os._exit(0)
    assert hooks == ["before", "parent"]
    after = os.urandom(SIZE)
    put(after)
    assert os.waitpid(child, 0)[1] == 0 and found() == after
ends = True
thread.join()
assert causeway_gpu.stats(), "the driver that `causeway run` has brought counts nothing"
assert causeway_gpu.session.foreign_driver() is None, causeway_gpu.session.foreign_driver()
print("PASS")
"#;

#[test]
fn python_forks_beside_a_thread_that_keeps_its_lock() {
    let server = Server::start_with(&OPEN);
    for via in ["tcp", "shm"] {
        // The package has no driver of its own here: that of `causeway run` is the one.
        let mut command = through_run(Some(&server.connect_string()), std::path::Path::new("python3"));
        command.args(["-c", PYTHON]).env("PYTHONPATH", source_tree().join("packaging/python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("CAUSEWAY_FORK", "1").env("CAUSEWAY_VIA", via);
        let outcome = run(&mut command, LIMIT).must_succeed();
        assert!(outcome.stdout.contains("PASS"), "{outcome}");
    }
    must_be_left(&server);
    server.must_be_well();
}
