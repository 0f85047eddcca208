//! Program and server on one host: shared memory, or TCP with the reason.

use causeway_access::{Key, VsockAddress};
use causeway_connection::vsock::{VsockListener, why_no_listener};
use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::network::{Cable, Network, Side};
use causeway_tests::process::{Running, eventually, run};
use causeway_tests::server::{OPEN, Server, forget_environment, is_alive};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// What `causeway run --stats` says at the end of vector_add.
fn stats(server: &Server, via: &str) -> String {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["run", "--stats", "--via", via, "--on", &server.connect_string(), "--"]);
    command.arg(cuda_program("vector_add")).env("CAUSEWAY_CACHE_DIR", "");
    run(&mut command, LIMIT).must_succeed().stderr
}

#[test]
fn memory_is_shared_by_default_and_what_is_asked_for_is_done() {
    let server = Server::start();
    for (via, reason) in [("auto", "shm is faster"), ("shm", "only shm was requested")] {
        let said = stats(&server, via);
        assert!(said.contains(&format!("via      shm; not tcp: {reason}; not verbs: {reason}")), "{said}");
    }
    let said = stats(&server, "tcp");
    assert!(said.contains("via      tcp; not shm: only tcp was requested"), "{said}");
    server.must_have_workers(0);
    server.must_log("via=shm");
    server.must_log("via=tcp");
    let mut devices = Command::new(causeway());
    forget_environment(&mut devices);
    devices.args(["devices", "-v", "--on", &server.connect_string()]);
    let listed = run(&mut devices, LIMIT).must_succeed().stdout;
    assert!(listed.contains("\nvia shm\n") && listed.contains("\nnot via tcp: shm is faster\n"), "{listed}");
}

#[test]
fn what_cannot_be_had_is_an_error_with_its_reason() {
    let server = Server::start();
    let mut command = through_run(Some(&server.connect_string()), &cuda_program("vector_add"));
    let outcome = run(command.env("CAUSEWAY_VIA", "verbs"), LIMIT);
    assert!(outcome.code() == Some(125) && outcome.stdout.is_empty(), "{outcome}");
    let said = outcome.stderr.contains("via verbs: this machine has no RDMA device")
        || outcome.stderr.contains("via verbs: libibverbs.so.1 could not be loaded");
    assert!(said || Path::new("/sys/class/infiniband").exists(), "{outcome}");
    let mut command = by_itself(&server.connect_string(), &cuda_program("vector_add"));
    let outcome = run(command.env("CAUSEWAY_VIA", "pigeon"), LIMIT);
    assert!(
        outcome.code() == Some(1) && outcome.stderr.contains("CAUSEWAY_VIA=pigeon cannot be used"),
        "{outcome}"
    );
}

#[test]
fn an_arena_of_no_size_is_refused_at_the_start() {
    let mut command = Server::command(&OPEN);
    let refused = run(command.env("CAUSEWAY_SHM_STAGING", "plenty"), LIMIT);
    let wanted = "CAUSEWAY_SHM_STAGING=plenty cannot be used: give a size from 1M to 16G";
    assert!(refused.code() == Some(1) && refused.stderr.contains(wanted), "{refused}");
}

#[test]
fn an_arena_that_the_gpu_does_not_take_is_used_without_it() {
    for pinned in ["0", "5M"] {
        let mut command = Server::command(&OPEN);
        command.env("CAUSEWAY_SOFTWARE_GPU_PINNED", pinned);
        let server = Server::start_command(command);
        for program in ["copies_2d_3d", "pinned_memory", "concurrent"] {
            let mut command = through_run(Some(&server.connect_string()), &cuda_program(program));
            run(command.env("CAUSEWAY_VIA", "shm"), LIMIT).must_succeed();
        }
        let log = server.log();
        assert!(
            log.contains(
                "cannot register memory shared with the client with the GPU (is the limit of locked memory"
            ),
            "{pinned}: {log}"
        );
        server.must_have_workers(0);
        server.must_be_well();
    }
}

#[test]
fn programs_run_in_the_smallest_arena_and_over_tcp() {
    let mut command = Server::command(&OPEN);
    command.env("CAUSEWAY_SHM_STAGING", "1M");
    let server = Server::start_command(command);
    for program in
        ["vector_add", "pinned_memory", "concurrent", "callback_waits", "copies_2d_3d", "streams_events"]
    {
        for via in ["shm", "tcp"] {
            let mut command = through_run(Some(&server.connect_string()), &cuda_program(program));
            run(command.env("CAUSEWAY_VIA", via), LIMIT).must_succeed();
        }
    }
    server.must_have_workers(0);
    server.must_be_well();
}

#[test]
fn a_shared_folder_is_enough_and_without_one_the_reason_is_told() {
    let network = match Network::lay(Cable::Plain { rate: None }) {
        Ok(network) => network,
        Err(why) => return eprintln!("skipped, for no network can be made here: {why}"),
    };
    let (folder, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shared = shared.path().to_str().unwrap();
    let server = network.server(folder.path(), &["--socket-dir", shared]);
    let program = |via| {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.args(["run", "--stats", "--on", &server.connect_string(), "--"]);
        command.arg(cuda_program("vector_add")).env("CAUSEWAY_CACHE_DIR", "").env("CAUSEWAY_VIA", via);
        network.inside(Side::Client, &command)
    };
    let said = run(&mut program("auto"), LIMIT).must_succeed().stderr;
    assert!(said.contains("via      shm"), "a network of its own must not matter: {said}");
    // A container that does not see the folder.
    let hidden = |via| {
        let inner = program(via);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs none \"$0\" && exec \"$@\"", shared]);
        command.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    };
    let outcome = run(&mut hidden("auto"), LIMIT);
    if outcome.stderr.contains("unshare failed") || outcome.stderr.contains("mount:") {
        return eprintln!("skipped in part, for no folder can be hidden here: {}", outcome.stderr);
    }
    let said = outcome.must_succeed().stderr;
    assert!(
        said.contains("via      tcp; not shm: the server is on this host (its boot id is the same)"),
        "{said}"
    );
    assert!(said.contains("--socket-dir"), "{said}");
    let outcome = run(&mut hidden("shm"), LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stderr.contains(" via shm: "), "{outcome}");
}

#[test]
fn whoever_is_killed_in_the_middle_of_a_copy_does_not_leave_the_other_waiting() {
    let copying = |server: &Server| {
        let mut command = by_itself(&server.connect_string(), &cuda_program("copy_rate"));
        // More than there is time for.
        let running = Running::start(command.args(["64", "100000"]).env("CAUSEWAY_VIA", "shm"));
        running.must_print("repetition 2 begins", LIMIT);
        running
    };
    // The client first: its worker must go.
    let server = Server::start();
    copying(&server).signal(Signal::KILL);
    server.must_have_workers(0);
    // Then the worker: the client must end with an error.
    let mut program = copying(&server);
    for worker in server.workers() {
        let pid = rustix::process::Pid::from_raw(worker as i32).unwrap();
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        eventually("the worker has ended", LIMIT, || !is_alive(worker));
    }
    let outcome = program.finish(LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stdout.contains("FAIL copy_rate"), "{outcome}");
}

/// Over this machine's own loopback, where its kernel has that: `make vsock-test` runs it in a guest that does.
#[test]
fn a_vsock_carries_sessions_and_demands_the_key() {
    let address = VsockAddress { cid: VsockAddress::LOCAL, port: 100_000 + std::process::id() };
    if let Err(error) = VsockListener::bind(address) {
        return eprintln!(
            "SKIP: no loopback for vsock on this machine: {}",
            why_no_listener(address, &error)
        );
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let key = folder.path().join("key");
    let key = key.to_str().expect("temporary folders have ordinary names");
    let server = Server::start_with(&["--listen", &address.to_string(), "--key-file", key]);
    assert!(server.connect_string().ends_with(&format!("@{address}")), "{}", server.target());
    let said = stats(&server, "tcp");
    assert!(said.contains("via      tcp; not shm: only tcp was requested"), "{said}");
    // Both are on one machine.
    assert!(stats(&server, "auto").contains("via      shm"), "memory is shared");
    server.must_log(&format!("peer=vsock:{}:", VsockAddress::LOCAL));
    let refused = |on: &str| {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.args(["devices", "--on", on]).env("HOME", folder.path());
        let outcome = run(&mut command, LIMIT);
        assert_eq!(outcome.code(), Some(1), "{outcome}");
        outcome.stderr
    };
    let other_key = format!("causeway://{}@{address}", *Key::generate().to_text());
    assert!(refused(&other_key).contains("key"), "{}", refused(&other_key));
    let nobody = VsockAddress { port: address.port + 1_000_000, ..address };
    let said = refused(&format!("causeway://{}@{nobody}", *Key::generate().to_text()));
    assert!(said.contains(&format!("nothing listens at {nobody}")), "{said}");
}
