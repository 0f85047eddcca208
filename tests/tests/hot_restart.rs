//! Restart of a server in place, by SIGHUP: sessions go on, and new ones come to the new server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::by_itself;
use causeway_tests::process::{Running, eventually, run};
use causeway_tests::server::{OPEN, Server, children_of, forget_environment, is_alive, leave_terminal};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(60);

/// A server that SIGHUP restarts: one that no terminal ends by it.
fn server_with(arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Server {
    let mut command = Server::command(arguments);
    leave_terminal(&mut command);
    prepare(&mut command);
    Server::start_command(command)
}

/// Restarts a server that has been restarted so often before, and waits until the new one serves.
fn restart(server: &Server, before: usize) {
    server.signal(Signal::HUP);
    let replaced = || server.log().matches("a new server accepts connections").count() > before;
    eventually("a new server serves", LIMIT, replaced);
}

/// A program that works until the file is there, and does then what the action says.
fn working(servers: &str, action: &str, file: &Path, variables: &[(&str, &str)]) -> Running {
    let mut command = by_itself(servers, &cuda_program("over_a_restart"));
    let running = Running::start(command.arg(action).arg(file).envs(variables.iter().copied()));
    running.must_print("running", LIMIT);
    running
}

fn must_serve(server: &str) {
    run(&mut by_itself(server, &cuda_program("first_kernel")), LIMIT).must_succeed();
}

/// The programs of the open sessions.
fn sessions(server: &Server) -> String {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.args(["sessions", "--on"]).arg(server.connect_string()), LIMIT).must_succeed().stdout
}

/// The server's processes but its workers, the first one excepted, as deep as they started each other.
fn brokers(parent: u32) -> Vec<u32> {
    let is_broker = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == b"serve"))
    };
    let own: Vec<_> = children_of(parent).into_iter().filter(is_broker).collect();
    let further = own.iter().flat_map(|pid| brokers(*pid)).collect::<Vec<_>>();
    [own, further].concat()
}

#[test]
fn sessions_go_on_over_restarts_and_new_ones_come_to_the_new_server() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("socket").display());
    let listen = format!("127.0.0.1:0,{socket}");
    let server = server_with(&["--listen", &listen, "--insecure-no-key"], |_| ());
    let end = folder.path().join("end");
    let mut programs = vec![
        working(&server.connect_string(), "work", &end, &[("CAUSEWAY_VIA", "tcp"), ("CAUSEWAY_LANES", "2")]),
        working(&server.connect_string(), "ipc", &end, &[("CAUSEWAY_VIA", "shm")]),
    ];
    for before in 0..2 {
        restart(&server, before);
        // At both kinds of sockets, which another process has now.
        must_serve(&server.connect_string());
        must_serve(&socket);
        programs.push(working(&server.connect_string(), "ipc", &end, &[]));
        assert_eq!(
            sessions(&server).matches("over_a_restart").count(),
            programs.len(),
            "{}",
            sessions(&server)
        );
    }
    assert_eq!(brokers(server.pid()).len(), 2);
    fs::write(&end, "").unwrap();
    for mut program in programs {
        program.finish(LIMIT).must_succeed();
    }
    server.must_log("the sessions of this server have ended, and another one serves");
    must_serve(&socket);
    let brokers = brokers(server.pid());
    let outcome = server.end_by(Signal::TERM);
    assert_eq!(outcome.code(), Some(0), "{outcome}");
    assert!(!brokers.into_iter().any(is_alive) && !folder.path().join("socket").exists());
}

#[test]
fn servers_copy_to_each_other_when_either_has_been_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let with_key = ["--listen", "127.0.0.1:0", "--key-file", key.to_str().unwrap()];
    let servers = [server_with(&with_key, |_| ()), server_with(&with_key, |_| ())];
    let list = servers.each_ref().map(Server::connect_string).join(",");
    for way in ["tcp", "auto"] {
        let end = folder.path().join(way);
        let mut program = working(&list, "peer", &end, &[("CAUSEWAY_BETWEEN_SERVERS", way)]);
        for server in &servers {
            restart(server, server.log().matches("a new server accepts connections").count());
        }
        fs::write(&end, "").unwrap();
        let outcome = program.finish(LIMIT).must_succeed();
        assert!(!outcome.stderr.contains("causeway:"), "{outcome}");
    }
    for server in servers {
        assert_eq!(server.end_by(Signal::TERM).code(), Some(0));
    }
}

#[test]
fn a_new_server_that_does_not_come_up_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, end) = (folder.path().join("config.toml"), folder.path().join("end"));
    fs::write(&file, "[serve]\nmax-sessions = 7\n").unwrap();
    let server = server_with(&OPEN, |command| {
        command.env("CAUSEWAY_CONFIG", &file);
    });
    let mut program = working(&server.connect_string(), "work", &end, &[]);
    fs::write(&file, "[serve]\nmax-sessions = \"many\"\n").unwrap();
    server.signal(Signal::HUP);
    server.must_log("cannot restart, this server continues: the new server did not start");
    must_serve(&server.connect_string());
    fs::write(&file, "[serve]\nmax-sessions = 1\n").unwrap();
    restart(&server, 0);
    // The session that is left counts among those of the new server.
    let refused = run(&mut by_itself(&server.connect_string(), &cuda_program("first_kernel")), LIMIT);
    assert!(refused.stderr.contains("it already serves 1 sessions"), "{refused}");
    fs::write(&end, "").unwrap();
    program.finish(LIMIT).must_succeed();
    eventually("the session's slot is free", LIMIT, || {
        run(&mut by_itself(&server.connect_string(), &cuda_program("first_kernel")), LIMIT).code() == Some(0)
    });
    assert_eq!(server.end_by(Signal::TERM).code(), Some(0));
}

#[test]
fn a_server_that_is_stopped_ends_the_sessions_of_those_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with(&OPEN, |_| ());
    let mut program = working(&server.connect_string(), "work", &folder.path().join("never"), &[]);
    restart(&server, 0);
    let workers = server.workers();
    assert_eq!(server.end_by(Signal::TERM).code(), Some(0));
    assert_eq!(program.finish(LIMIT).code(), Some(1));
    assert!(!workers.into_iter().any(is_alive));
}

#[test]
fn a_session_whose_memory_is_released_goes_on_over_a_restart() {
    let server = server_with(&[OPEN.as_slice(), &["--idle-release", "1s"]].concat(), |_| ());
    let mut command = by_itself(&server.connect_string(), &cuda_program("idle_release"));
    let mut program = Running::start(command.args(["4", "1", "0"]));
    program.must_print("idle 0", LIMIT);
    server.must_log("released the device memory of the idle session");
    restart(&server, 0);
    must_serve(&server.connect_string());
    program.signal(Signal::USR1);
    program.finish(LIMIT).must_succeed();
}
