//! Moves of sessions to another server, or into a file and back.

use std::fs;
use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use causeway_access::Target;
use causeway_api::calls::COMMANDS;
use causeway_connection::exchange::Exchange;
use causeway_link::{ConnectOptions, connect_status, describe_process};
use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::by_itself;
use causeway_tests::process::{Outcome, Running, eventually, run};
use causeway_tests::server::{OPEN, Server, forget_environment};
use causeway_wire::codec::{Decoder, Encode as _};
use causeway_wire::moves::{MoveReply, MoveRequest};
use causeway_wire::status::{Reply, StatusRequest};
use rustix::process::Signal;

/// How long anything may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// How often a session goes from one server to the other.
const MOVES: usize = 12;

/// A program that works until the file is there.
fn working(server: &Server, end: &Path, how: &str) -> Running {
    started("moved_session", server, end, how)
}

fn started(program: &str, server: &Server, end: &Path, how: &str) -> Running {
    let mut command = by_itself(&server.connect_string(), &cuda_program(program));
    command.env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_LANES", "3").env("CAUSEWAY_RESUME_TIMEOUT", "60");
    let running = Running::start(command.arg(end).arg(how));
    running.must_print("running", LIMIT);
    running
}

fn command(arguments: &[&str], server: &Server) -> Command {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(arguments).arg("--on").arg(server.connect_string());
    command
}

/// The one session of a server.
fn session(server: &Server) -> String {
    let list = run(&mut command(&["sessions", "--json"], server), LIMIT).must_succeed().stdout;
    let server: serde_json::Value = serde_json::from_str(&list).unwrap();
    let [session] = &server["sessions"].as_array().unwrap()[..] else { panic!("one session: {list}") };
    session["session"].as_str().unwrap().to_owned()
}

/// Waits until a server has no session. It may have a process that watches its GPUs.
fn must_be_left(server: &Server) {
    let list = || run(&mut command(&["sessions"], server), LIMIT).must_succeed().stdout;
    eventually("the server has no session", LIMIT, || list().contains(": 0 of "));
}

fn moved(from: &Server, to: &str) -> Outcome {
    run(&mut command(&["move", &session(from), to], from), LIMIT)
}

fn ends_well(mut program: Running, end: &Path) {
    fs::write(end, "").unwrap();
    program.finish(LIMIT).must_succeed();
}

#[test]
fn a_session_goes_to_and_fro_while_its_program_works() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let key = folder.path().join("key");
    let first = Server::start_with(&OPEN);
    let second = Server::start_with_key(&key);
    let keyed = second.connect_string();
    let program = working(&first, &end, "");
    for number in 0..MOVES {
        let (from, to) = if number % 2 == 0 { (&first, &keyed) } else { (&second, &first.connect_string()) };
        let outcome = moved(from, to);
        assert_eq!(outcome.code(), Some(0), "move {number}: {outcome}");
        assert!(
            outcome.stdout.contains("has moved to") && outcome.stdout.contains("a pause of"),
            "{outcome}"
        );
        must_be_left(from);
    }
    ends_well(program, &end);
    first.must_be_well();
    second.must_be_well();
}

#[test]
fn an_idle_session_moves_too() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let (first, second) = (Server::start_with(&OPEN), Server::start_with(&OPEN));
    let program = working(&first, &end, "idle");
    moved(&first, &second.connect_string()).must_succeed();
    must_be_left(&first);
    ends_well(program, &end);
}

#[test]
fn a_session_stays_where_it_is_when_it_cannot_move() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let first = Server::start_with(&OPEN);
    let refusals = |program: Running, cases: &[(&Server, &str)]| {
        for (to, text) in cases {
            let outcome = moved(&first, &to.connect_string());
            assert_eq!(outcome.code(), Some(1), "{outcome}");
            assert!(outcome.stderr.contains(text) && outcome.stderr.contains("was not moved"), "{outcome}");
        }
        ends_well(program, &end);
        fs::remove_file(&end).unwrap();
    };
    let other = Server::start_with(&[OPEN.as_slice(), &["--resume-timeout", "0"]].concat());
    let mut small = Server::command(&OPEN);
    small.env("CAUSEWAY_SOFTWARE_GPU_MEMORY", "1M");
    let small = Server::start_command(small);
    refusals(
        working(&first, &end, ""),
        &[(&other, "does not resume sessions"), (&small, "does not resume the session")],
    );
    // What cannot be carried is refused before anything is done.
    refusals(working(&first, &end, "refused"), &[(&small, "a CUDA array")]);
    first.must_be_well();
}

#[test]
fn a_session_stays_when_the_other_server_dies_on_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let (first, second) = (Server::start_with(&OPEN), Server::start_with(&OPEN));
    let program = working(&first, &end, "");
    let (name, to) = (session(&first), second.connect_string());
    // Whenever that is: what is there already is not yet the session's.
    second.kill();
    let outcome = run(&mut command(&["move", &name, &to], &first), LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    // Its program cannot go to an address without a server.
    let third = Server::start_with(&OPEN);
    let mut to_nowhere =
        command(&["move", &name, &third.connect_string(), "--address", "127.0.0.1:9"], &first);
    let outcome = run(to_nowhere.arg("--wait").arg("60"), LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stderr.contains("could not connect"), "{outcome}");
    must_be_left(&third);
    moved(&first, &third.connect_string()).must_succeed();
    ends_well(program, &end);
}

/// How much of a state goes to a server before that is killed: less than any program's here has.
const PART: u64 = 100 << 10;

#[test]
fn a_session_stays_when_the_other_server_is_killed_while_its_state_comes() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let (first, second) = (Server::start_with(&OPEN), Server::start_with(&OPEN));
    let program = working(&first, &end, "");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let behind = second.target().endpoint.to_string();
    let relay = listener.local_addr().unwrap().to_string();
    let to = second.connect_string().replace(&port(&behind), &port(&relay));
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first connection asks how the server is, the second one brings the session.
            for bytes in [u64::MAX, PART] {
                let mut from = listener.accept().unwrap().0;
                let mut server = TcpStream::connect(&behind).unwrap();
                let (mut replies, mut back) = (server.try_clone().unwrap(), from.try_clone().unwrap());
                scope.spawn(move || std::io::copy(&mut replies, &mut back));
                std::io::copy(&mut (&mut from).take(bytes), &mut server).unwrap();
                if bytes == PART {
                    second.kill();
                }
                let _ = (from.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
            }
        });
        run(&mut command(&["drain", "--no-wait", "--to", &to], &first), LIMIT)
    });
    assert!(outcome.stdout.contains("was not moved"), "{outcome}");
    assert!(outcome.code() == Some(1) && outcome.stderr.contains("1 of 1 sessions have not"), "{outcome}");
    let third = Server::start_with(&OPEN);
    moved(&first, &third.connect_string()).must_succeed();
    ends_well(program, &end);
}

fn is_draining(server: &Server) -> bool {
    run(&mut command(&["sessions"], server), LIMIT).must_succeed().stdout.contains("draining")
}

#[test]
fn a_drained_server_moves_its_sessions_and_waits_for_those_that_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let key = folder.path().join("key");
    let (first, second) = (Server::start_with(&OPEN), Server::start_with_key(&key));
    let drain = |to: &str| command(&["drain", "--to", to], &first);
    let programs = [working(&first, &end, ""), working(&first, &end, "idle")];
    let stays = working(&first, &folder.path().join("other end"), "refused");

    // Before anything is changed.
    let draining = Server::start_with(&OPEN);
    let waits = working(&draining, &end, "idle");
    run(&mut command(&["drain", "--no-wait"], &draining), LIMIT).must_succeed();
    let no_key = format!("causeway://{}?insecure-no-key", second.target().endpoint);
    for (to, text) in [
        (first.connect_string(), "is the server to be drained"),
        (draining.connect_string(), "is being drained itself"),
        (no_key, "key"),
        ("causeway://127.0.0.1:9?insecure-no-key".to_owned(), "127.0.0.1:9"),
        (format!("unix:{}", end.display()), "not a network address"),
    ] {
        let outcome = run(&mut drain(&to), LIMIT);
        assert!(outcome.code() == Some(1) && outcome.stderr.contains(text), "{to}: {outcome}");
        assert!(!is_draining(&first), "{to}: {outcome}");
    }

    let mut drained = Running::start(&mut drain(&second.connect_string()));
    drained.must_print("session", LIMIT);
    eventually("the others have moved", LIMIT, || {
        run(&mut command(&["sessions"], &second), LIMIT).must_succeed().stdout.contains(": 2 of ")
    });
    fs::write(folder.path().join("other end"), "").unwrap();
    let mut stays = stays;
    stays.finish(LIMIT).must_succeed();
    let outcome = drained.finish(LIMIT);
    let (text, why) = (&outcome.stdout, &outcome.stderr);
    assert!(text.matches("has moved to").count() == 2 && text.contains("a CUDA array"), "{outcome}");
    assert!(text.contains("the server has ended") && why.contains("1 of 3 sessions have not"), "{outcome}");
    assert_eq!(outcome.code(), Some(1), "{outcome}");

    // What has moved moves on, and the exit status says that all have.
    let third = Server::start_with(&OPEN);
    run(&mut command(&["drain", "--to", &third.connect_string()], &second), LIMIT).must_succeed();
    eventually("the second server ends", LIMIT, || second.has_ended());
    fs::write(&end, "").unwrap();
    for mut program in programs.into_iter().chain([waits]) {
        program.finish(LIMIT).must_succeed();
    }
    third.must_be_well();
}

#[test]
fn variables_of_code_and_memory_that_kernels_share_with_the_program_go_along() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Server::start_with(&OPEN), Server::start_with(&OPEN));
    for how in ["asked", "stored", "pinned"] {
        let (end, file) = (folder.path().join(format!("end {how}")), folder.path().join(how));
        let program = started("moved_variables", &first, &end, how);
        moved(&first, &second.connect_string()).must_succeed();
        moved(&second, &first.connect_string()).must_succeed();
        // Its key is that of the first server, and it came here with a ticket.
        let path = file.to_str().unwrap();
        run(&mut command(&["checkpoint", &session(&first), path], &first), LIMIT).must_succeed();
        run(&mut command(&["restore", path], &first), LIMIT).must_succeed();
        moved(&first, &second.connect_string()).must_succeed();
        ends_well(program, &end);
        must_be_left(&second);
    }
}

#[test]
fn a_session_comes_back_from_a_file_after_its_server_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (end, file) = (folder.path().join("end"), folder.path().join("session"));
    let path = file.to_str().unwrap();
    let first = Server::start_with(&OPEN);
    let listen = first.target().endpoint.to_string();
    let program = working(&first, &end, "");
    run(&mut command(&["checkpoint", &session(&first), path], &first), LIMIT).must_succeed();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    must_be_left(&first);
    // A trial of its file is no session.
    let log = first.log();
    assert_eq!(log.matches(" started ").count(), 1, "{log}");
    assert!(
        log.contains("the trial of a session's state is over") && !log.contains("another server"),
        "{log}"
    );
    program.signal(Signal::STOP);
    first.kill();
    drop(first);
    let again = Server::start_with(&["--listen", &listen, "--insecure-no-key"]);
    let restore = |file: &str| run(&mut command(&["restore", file], &again), LIMIT);

    // A file that others can read, or is damaged, or cut short, is refused.
    let bytes = fs::read(&file).unwrap();
    let other = folder.path().join("other");
    let write = |bytes: &[u8], mode: u32| {
        fs::write(&other, bytes).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |text: &str| {
        let outcome = restore(other.to_str().unwrap());
        assert!(outcome.code() == Some(1) && outcome.stderr.contains(text), "{text}: {outcome}");
    };
    write(&bytes, 0o644);
    refused("not private to this user");
    write(&bytes[..bytes.len() - 1], 0o600);
    refused("truncated");
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    write(&damaged, 0o600);
    refused("does not resume the session");
    write(b"something else", 0o600);
    refused("not a session's state");
    // Nor does its program look for it at another port.
    let elsewhere = Server::start_with(&OPEN);
    let outcome = run(&mut command(&["restore", path], &elsewhere), LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stderr.contains("the program of this session"), "{outcome}");

    restore(path).must_succeed();
    program.signal(Signal::CONT);
    ends_well(program, &end);
}

#[test]
fn a_session_that_needs_most_of_the_memory_goes_into_a_file_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (end, file) = (folder.path().join("end"), folder.path().join("session"));
    let mut server = Server::command(&OPEN);
    // The program gets 4 MiB of it, and so would the trial.
    server.env("CAUSEWAY_SOFTWARE_GPU_MEMORY", "6MiB");
    let server = Server::start_command(server);
    let program = started("moved_variables", &server, &end, "");
    let path = file.to_str().unwrap();
    run(&mut command(&["checkpoint", &session(&server), path], &server), LIMIT).must_succeed();
    server.must_log("out of device memory");
    run(&mut command(&["restore", path], &server), LIMIT).must_succeed();
    ends_well(program, &end);
}

#[test]
fn the_driver_finds_mmap_in_the_servers_program() {
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(causeway()), LIMIT).must_succeed();
    let names: Vec<_> = listed.stdout.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert!(["mmap", "mmap64"].iter().all(|name| names.contains(name)), "{}", listed.stdout);
}

#[test]
fn a_program_that_lost_its_connection_meanwhile_hears_where_its_session_is() {
    let folder = tempfile::tempdir().unwrap();
    let (end, file) = (folder.path().join("end"), folder.path().join("session"));
    let server = Server::start_with(&OPEN);
    let mut program = by_itself(&server.connect_string(), &cuda_program("moved_session"));
    program.envs([
        ("CAUSEWAY_VIA", "tcp"),
        ("CAUSEWAY_RESUME_TIMEOUT", "60"),
        ("CAUSEWAY_KEEPALIVE_TIMEOUT", "2"),
    ]);
    let program = Running::start(program.arg(&end));
    program.must_print("running", LIMIT);
    let path = file.to_str().unwrap();
    let mut checkpoint = Running::start(&mut command(&["checkpoint", &session(&server), path], &server));
    // Between that and the end of the session there is a trial of the file.
    server.must_log("the session is held");
    checkpoint.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(5));
    checkpoint.signal(Signal::CONT);
    checkpoint.finish(LIMIT).must_succeed();
    // It looks for its session while that is nowhere.
    std::thread::sleep(Duration::from_secs(1));
    run(&mut command(&["restore", path], &server), LIMIT).must_succeed();
    ends_well(program, &end);
}

/// A connection that asks a server, as `causeway move` does.
fn conversation(target: &Target) -> Exchange {
    connect_status(target, &describe_process(COMMANDS, Vec::new()), &ConnectOptions::default()).unwrap()
}

fn asked(conversation: &mut Exchange, request: StatusRequest) -> Reply {
    conversation.send(|out| request.encode(out)).unwrap();
    let reply = conversation.receive(Some(LIMIT)).unwrap().expect("an answer");
    Decoder::new(&reply).value().unwrap()
}

/// What a request about a move is refused for.
fn refusal(conversation: &mut Exchange, request: MoveRequest) -> String {
    match asked(conversation, StatusRequest::Move(request)) {
        Reply::Move(MoveReply::Refused { text }) | Reply::Refused { text } => text.to_string(),
        other => panic!("refused: {other:?}"),
    }
}

#[test]
fn a_session_never_moves_to_less_protection() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let (keyed, open) = (Server::start_with_key(&folder.path().join("key")), Server::start_with(&OPEN));
    let program = working(&keyed, &end, "");
    let outcome = moved(&keyed, &open.connect_string());
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    must_be_left(&open);
    assert_eq!(session(&keyed).len(), 8, "it is where it began");
    ends_well(program, &end);
}

#[test]
fn what_is_no_state_keeps_neither_slot_nor_bytes() {
    let server = Server::start_with(&[OPEN[0], OPEN[1], OPEN[2], "--max-sessions", "1"]);
    let target: Target = server.connect_string().parse().unwrap();
    let mut caller = conversation(&target);
    let take_up = || StatusRequest::Move(MoveRequest::TakeUp);
    assert!(matches!(asked(&mut caller, take_up()), Reply::Move(MoveReply::Done)));
    let garbage = || MoveRequest::Write { bytes: vec![7; 1 << 20] };
    let first = refusal(&mut caller, garbage());
    assert!(first.contains("not a session's state"), "{first}");
    let second = refusal(&mut caller, garbage());
    assert!(second.contains("no session is expected"), "{second}");
    // The only slot is free, though the caller is still there.
    let mut other = conversation(&target);
    assert!(matches!(asked(&mut other, take_up()), Reply::Move(MoveReply::Done)));
    server.must_be_well();
}

#[test]
fn a_replaced_key_opens_nothing_on_old_connections() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let server = Server::start_with_key(&key);
    let target: Target = server.connect_string().parse().unwrap();
    let mut caller = conversation(&target);
    assert!(matches!(asked(&mut caller, StatusRequest::Status), Reply::Status(_)));
    fs::remove_file(&key).unwrap();
    let why = refusal(&mut caller, MoveRequest::TakeUp);
    assert!(why.contains("key has been replaced"), "{why}");
    assert!(caller.receive(Some(LIMIT)).unwrap().is_none(), "the conversation is over");
}

#[test]
fn whoever_takes_all_status_slots_does_not_shut_out_the_owner() {
    let server = Server::start_with(&OPEN);
    let target: Target = server.connect_string().parse().unwrap();
    let mut callers: Vec<_> = (0..16).map(|_| conversation(&target)).collect();
    let Reply::Status(status) = asked(&mut callers[0], StatusRequest::Status) else { panic!("the status") };
    let hello = describe_process(COMMANDS, Vec::new());
    assert!(connect_status(&target, &hello, &ConnectOptions::default()).is_err(), "all slots are taken");
    let mut drain = Command::new(causeway());
    forget_environment(&mut drain);
    // Its own sockets, at which the kernel says who is there.
    drain.args(["drain", "--no-wait", "--on"]).arg(format!("unix:{}", status.sockets[0]));
    let drained = run(&mut drain, LIMIT).must_succeed();
    assert!(drained.stdout.contains("remaining sessions: 0"), "{drained}");
    drop(callers);
}
