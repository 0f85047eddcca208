//! Idle release: device memory of idle sessions goes and comes back, and that of busy ones stays.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::by_itself;
use causeway_tests::process::{Outcome, Running, eventually, run};
use causeway_tests::server::{OPEN, Server, forget_environment};
use causeway_tests::stall::Stall;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// How long a program may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

const MIB: u64 = 1 << 20;

/// `causeway` with these arguments, at a server.
fn ask(server: &Server, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    run(command.args(arguments).args(["--on", &server.connect_string()]), LIMIT)
}

/// What `causeway sessions` says of the sessions.
fn sessions(server: &Server) -> Vec<Value> {
    let text = ask(server, &["sessions", "--json"]).must_succeed().stdout;
    let status: Value = serde_json::from_str(&text).unwrap();
    status["sessions"].as_array().unwrap().clone()
}

/// The session of a program.
fn session_of(server: &Server, program: &Running) -> Value {
    let of_program = |session: &Value| session["process"] == program.pid();
    sessions(server).into_iter().find(of_program).expect("the program has a session")
}

fn number_of(server: &Server, program: &Running) -> String {
    session_of(server, program)["session"].as_str().unwrap().to_owned()
}

/// A program with so many MiB of device memory, which goes on after each pause when it gets a signal.
fn pauses(servers: &str, arguments: &[&str]) -> Running {
    let program = Running::start(by_itself(servers, &cuda_program("idle_release")).args(arguments));
    program.must_print("idle 0", LIMIT);
    program
}

fn goes_on(program: &Running, cycle: u32) {
    program.signal(Signal::USR1);
    program.must_print(&format!("right {cycle}"), LIMIT);
}

/// Bytes of memory of a process.
fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

#[test]
fn memory_of_every_kind_goes_and_comes_back_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let arguments =
        ["--idle-release", "1s", "--audit-log", audit.to_str().unwrap(), "--metrics", "127.0.0.1:0"];
    let server = Server::start_with(&[OPEN.as_slice(), &arguments].concat());
    for (via, cycles) in [("tcp", 3), ("shm", 2)] {
        let mut command = by_itself(&server.connect_string(), &cuda_program("idle_release"));
        command.args(["64", &cycles.to_string(), "0"]).env("CAUSEWAY_VIA", via);
        let mut program = Running::start(&mut command);
        for cycle in 0..cycles {
            program.must_print(&format!("idle {cycle}"), LIMIT);
            eventually("the session is released", LIMIT, || {
                session_of(&server, &program)["state"] == "released"
            });
            let worker = session_of(&server, &program)["worker"].as_u64().unwrap() as u32;
            let away = resident(worker);
            assert!(session_of(&server, &program)["released_bytes"].as_u64().unwrap() >= 64 * MIB);
            assert!(ask(&server, &["sessions"]).must_succeed().stdout.contains("ago"), "a column says so");
            goes_on(&program, cycle);
            if cycle == 0 {
                assert!(resident(worker) > away + 60 * MIB, "{away} bytes were resident");
            }
        }
        let outcome = program.finish(LIMIT).must_succeed();
        assert!(outcome.stdout.ends_with("PASS idle_release\n"), "{outcome}");
        assert!(outcome.stderr.is_empty(), "the program notices nothing: {outcome}");
    }
    server.must_log("released the device memory of the idle session: ");
    server.must_log("restored the device memory of the session: ");
    let events = std::fs::read_to_string(&audit).unwrap();
    let lines: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    assert_eq!((of("memory-released").len(), of("memory-returned").len()), (5, 5), "{events}");
    let returned = of("memory-returned")[0];
    assert!(returned["bytes"].as_u64().unwrap() >= 64 * MIB && returned["seconds_away"].as_f64().is_some());
    server.must_be_well();
}

#[test]
fn what_is_busy_keeps_its_memory_and_says_why() {
    let server = Server::start_with(&[OPEN.as_slice(), &["--idle-release", "1s"]].concat());
    let mut program = pauses(&server.connect_string(), &["1", "1", "0", "polls"]);
    let number = number_of(&server, &program);
    for _ in 0..4 {
        let refused = ask(&server, &["sessions", "release", &number]);
        assert!(refused.code() != Some(0), "{refused}");
        assert!(refused.stderr.contains("it is busy: a stream has unfinished work"), "{refused}");
        // Longer in all than an idle session would keep its memory.
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(sessions(&server)[0]["state"], "open");
    goes_on(&program, 0);
    program.finish(LIMIT).must_succeed();
    assert!(!server.log().contains("released the device memory"), "{}", server.log());
    server.must_be_well();
}

#[test]
fn a_session_is_released_by_hand_and_lost_connections_and_clients_do_no_harm() {
    let server = Server::start_with(&[OPEN.as_slice(), &["--resume-timeout", "5"]].concat());
    let stall = Stall::on(server.target());
    let mut command = by_itself(&stall.target().connect_string(), &cuda_program("idle_release"));
    command.args(["8", "2", "0"]).env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_RESUME_TIMEOUT", "60");
    let mut program = Running::start(&mut command);
    program.must_print("idle 0", LIMIT);
    let number = number_of(&server, &program);
    let release = || ask(&server, &["sessions", "release", &number[..8]]);
    eventually("the session is quiet", LIMIT, || release().code() == Some(0));
    let again = release();
    assert!(again.stderr.contains("its device memory has been released already"), "{again}");
    let unknown = ask(&server, &["sessions", "release", "no such session"]);
    assert!(unknown.stderr.contains("no session of "), "{unknown}");
    // Its connection is lost while the memory is away, and resumed.
    stall.cut(Duration::ZERO);
    goes_on(&program, 0);
    server.must_log("resumed after");
    // The program is killed while its memory is away.
    program.must_print("idle 1", LIMIT);
    eventually("the session is quiet", LIMIT, || release().code() == Some(0));
    program.signal(Signal::KILL);
    program.finish(LIMIT);
    // So is one over shared memory.
    let other = pauses(&server.connect_string(), &["8", "1", "0"]);
    let number = number_of(&server, &other);
    let release = || ask(&server, &["sessions", "release", &number]);
    eventually("the session is quiet", LIMIT, || release().code() == Some(0));
    drop(other);
    eventually("the sessions have ended", LIMIT, || sessions(&server).is_empty());
    server.must_be_well();
}

/// A server with a small device and clients, one of whom has limits.
fn with_clients(folder: &std::path::Path, arguments: &[&str], limits: &[&str]) -> (Server, String, String) {
    let key = folder.join("key").to_str().unwrap().to_owned();
    let listen = ["--listen", "127.0.0.1:0", "--key-file", &key, "--idle-release", "1s"];
    let mut command = Server::command(&[listen.as_slice(), arguments].concat());
    command.env("CAUSEWAY_SOFTWARE_GPU_MEMORY", "256M");
    let server = Server::start_command(command);
    let address = server.target().endpoint.to_string();
    let add = |name: &str, limits: &[&str]| {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.args(["client", "--key-file", &key, "add", name, "--address", &address]).args(limits);
        command.env("HOME", folder).env_remove("XDG_CONFIG_HOME");
        run(&mut command, LIMIT).must_succeed().stdout.trim().to_owned()
    };
    let (ada, bob) = (add("ada", limits), add("bob", &[]));
    (server, ada, bob)
}

/// A program that has so many MiB, and stays.
fn holds(server: &str, mebibytes: &str) -> Running {
    let mut command = by_itself(server, &cuda_program("memory_use"));
    let program = Running::start(command.args([mebibytes, "holds"]));
    program.must_print("done", LIMIT);
    program
}

#[test]
fn others_have_the_memory_meanwhile_and_limits_count_it_still() {
    let folder = tempfile::tempdir().unwrap();
    let (server, ada, bob) = with_clients(folder.path(), &[], &["--device-memory", "180M"]);
    let mut first = pauses(&ada, &["100", "1", "0"]);
    server.must_log("released the device memory");
    let seen = run(by_itself(&ada, &cuda_program("memory_use")).arg("80"), LIMIT).must_succeed().stdout;
    assert!(seen.contains("80 MiB: cudaErrorMemoryAllocation"), "its limit counts what is released: {seen}");
    let second = holds(&bob, "150");
    assert!(second.stdout().contains("150 MiB: cudaSuccess"), "{}", second.stdout());
    // It waits until the other's is released, too.
    goes_on(&first, 0);
    first.finish(LIMIT).must_succeed();
    assert!(server.log().matches("released the device memory").count() >= 2, "{}", server.log());
    server.must_be_well();
}

#[test]
fn a_program_waits_for_its_memory_as_long_as_was_said_and_idle_sessions_end_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    let (server, ada, bob) =
        with_clients(folder.path(), &["--idle-return-timeout", "1s"], &["--idle-timeout", "4s"]);
    let mut first = pauses(&bob, &["100", "1", "0"]);
    server.must_log("released the device memory");
    // It is never quiet.
    let second =
        Running::start(by_itself(&bob, &cuda_program("idle_release")).args(["130", "1", "0", "polls"]));
    second.must_print("idle 0", LIMIT);
    first.signal(Signal::USR1);
    let outcome = first.finish(LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stdout.contains("FAIL idle_release"), "{outcome}");
    assert!(
        outcome.stderr.contains("did not come back within 1 s (--idle-return-timeout)")
            && outcome.stderr.contains("all sessions use"),
        "{outcome}"
    );
    let mut idle = pauses(&ada, &["4", "1", "0"]);
    server.must_log("it was idle for the maximum time of its client's sessions (idle-timeout)");
    idle.signal(Signal::USR1);
    let outcome = idle.finish(LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stderr.contains("`idle-timeout`"), "{outcome}");
    goes_on(&second, 0);
}
