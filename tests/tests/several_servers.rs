//! Several servers: their devices as one machine's, and the loss of one.

use causeway_api::calls::COMMANDS;
use causeway_api::calls::{self, Call as _};
use causeway_api::types::{PeerTicket, PeerTransport};
use causeway_link::{ConnectOptions, connect, describe_process};
use causeway_tests::built::{causeway, cuda_program, source_tree};
use causeway_tests::client::{by_itself, through_run};
use causeway_tests::process::{Running, run};
use causeway_tests::server::{OPEN, Server, forget_environment};
use causeway_tests::tap::Tap;
use causeway_wire::codec::{Decode as _, Decoder, Encode as _};
use causeway_wire::message::{CommandHead, Messages, WorkerMessage, begin_command};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// What names servers on a command line.
fn list(servers: &[&Server]) -> String {
    servers.iter().map(|server| server.connect_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn a_program_has_the_devices_of_all_servers_in_their_order() {
    let (first, second) = (Server::start(), server_with_devices("2"));
    let on = list(&[&first, &second]);
    let mut devices = Command::new(causeway());
    forget_environment(&mut devices);
    let listed = run(devices.args(["devices", "--on", &on]), LIMIT).must_succeed().stdout;
    let numbers: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(numbers, ["software", "no", "0", "software", "no", "1", "2"], "{listed}");
    for program in ["several_devices", "several_devices.shared"] {
        run(&mut through_run(Some(&on), &cuda_program(program)), LIMIT).must_succeed();
    }
    // Through shared memory and over TCP, and with every call waited for.
    for (variable, value) in
        [("CAUSEWAY_VIA", "tcp"), ("CAUSEWAY_SYNC", "1"), ("CUDA_VISIBLE_DEVICES", "2,0")]
    {
        let mut command = by_itself(&on, &cuda_program("several_devices"));
        run(command.env(variable, value), LIMIT).must_succeed();
    }
    for server in [first, second] {
        server.must_have_workers(0);
        server.must_be_well();
    }
}

#[test]
fn the_constructor_of_a_library_starts_cuda_on_several_servers() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let folder = tempfile::tempdir().unwrap();
    let (library, program) = (folder.path().join("library.so"), folder.path().join("program"));
    let source = source_tree().join("tests/loader/constructor.c");
    for (options, to) in [(["-shared", "-fPIC"], &library), (["-DPROGRAM", "-O1"], &program)] {
        let mut compile = Command::new("cc");
        run(compile.args(options).arg(&source).arg("-o").arg(to).arg("-ldl"), LIMIT).must_succeed();
    }
    for via in ["shm", "tcp"] {
        let mut command = through_run(Some(&list(&servers.each_ref())), &program);
        run(command.arg(&library).arg("3").env("CAUSEWAY_VIA", via), LIMIT).must_succeed();
    }
}

fn server_with_devices(count: &str) -> Server {
    let mut command = Server::command(&OPEN);
    command.env("CAUSEWAY_SOFTWARE_GPU_DEVICES", count);
    Server::start_command(command)
}

/// A server with a key that connects to servers of this host which have another one, or none.
fn locked_server(key_file: &Path) -> Server {
    let file = key_file.to_str().expect("temporary folders have plain names");
    Server::start_with(&["--listen", "127.0.0.1:0", "--key-file", file, "--peers", "127.0.0.1"])
}

#[test]
fn copies_between_servers_are_complete_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    let open = Server::start();
    let locked = locked_server(&key_file);
    for (servers, variable, value) in [
        ([&open, &locked], "CAUSEWAY_VIA", "auto"),
        ([&locked, &open], "CAUSEWAY_VIA", "tcp"),
        ([&open, &open], "CAUSEWAY_SYNC", "1"),
        ([&open, &locked], "CAUSEWAY_BETWEEN_SERVERS", "link"),
        ([&locked, &open], "CAUSEWAY_BETWEEN_SERVERS", "client"),
    ] {
        let mut command = through_run(Some(&list(&servers)), &cuda_program("peer_copies"));
        run(command.env(variable, value), LIMIT).must_succeed();
    }
    for server in [open, locked] {
        server.must_have_workers(0);
        server.must_be_well();
    }
}

#[test]
fn no_byte_of_a_copy_between_servers_passes_the_client() {
    const MIB: usize = 16;
    let (first, second) = (Server::start(), Server::start());
    // What passes on the way to each server: the client's calls, and what the other server reads there, for
    // it is where the client says that the server is.
    let taps = [&first, &second].map(|server| Tap::on(server.target()));
    let on = taps.each_ref().map(|tap| tap.target().connect_string().to_string()).join(",");
    let folder = tempfile::tempdir().unwrap();
    let counts = folder.path().join("counts");
    let mut command = by_itself(&on, &cuda_program("peer_rate"));
    command.args([&MIB.to_string(), "1"]).env("CAUSEWAY_VIA", "tcp").env("CAUSEWAY_STATS", &counts);
    run(&mut command, LIMIT).must_succeed();
    let counts: Value = serde_json::from_slice(&fs::read(counts).unwrap()).unwrap();
    assert_eq!(counts["bytes_to_device"].as_u64(), Some(0), "{counts:#}");
    // Two counts of wrong words, four bytes each.
    assert_eq!(counts["bytes_from_device"].as_u64(), Some(8), "{counts:#}");
    // One copy each, from the server to the other one. By way of the client each would see two.
    for tap in &taps {
        let passed = tap.bytes_seen() >> 20;
        assert!((MIB..MIB * 3 / 2).contains(&passed), "{passed} MiB passed for {MIB} MiB each way");
    }
}

/// The counts of a program that copies 4 times 16 MiB between the devices of two servers.
fn counts_of_copies(on: &str, variables: &[(&str, &str)]) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let counts = folder.path().join("counts");
    let mut command = by_itself(on, &cuda_program("peer_rate"));
    command.args(["16", "2"]).env("CAUSEWAY_STATS", &counts).env("CAUSEWAY_LOG", "info");
    let outcome = run(command.envs(variables.iter().copied()), LIMIT).must_succeed();
    (serde_json::from_slice(&fs::read(counts).unwrap()).unwrap(), outcome.stderr)
}

/// Fails unless all of them went this way.
fn must_have_gone(counts: &Value, way: &str) {
    let between = &counts["copies"]["between_servers"];
    assert_eq!(between[way]["copies"].as_u64(), Some(4), "{counts:#}");
    assert_eq!(between[way]["bytes"].as_u64(), Some(64 << 20), "{counts:#}");
}

#[test]
fn on_one_host_devices_copy_by_themselves_or_through_memory_that_servers_share() {
    let folder = tempfile::tempdir().unwrap();
    // A server has another one at a Unix socket prove the same key.
    let key_file = folder.path().join("key");
    let (first, second) = (locked_server(&key_file), locked_server(&key_file));
    let taps = [&first, &second].map(|server| Tap::on(server.target()));
    let on = taps.each_ref().map(|tap| tap.target().connect_string().to_string()).join(",");
    let via_shm = "copies from devices of server 1 to those of server 2 go via shm";
    let by_itself = "device 1 copies directly from memory of device 0";
    for (choice, way, sentences) in
        [("auto", "device", &[via_shm, by_itself][..]), ("link", "shm", &[via_shm])]
    {
        let (counts, log) = counts_of_copies(&on, &[("CAUSEWAY_BETWEEN_SERVERS", choice)]);
        must_have_gone(&counts, way);
        let found = counts["between_servers"].as_array().expect("a list").iter().filter_map(Value::as_str);
        let found: Vec<_> = found.collect();
        for sentence in sentences {
            assert!(found.contains(sentence) && log.contains(sentence), "{found:?} {log}");
        }
        assert_eq!(found.contains(&by_itself), way == "device", "{found:?}");
    }
    for tap in &taps {
        let passed = tap.bytes_seen() >> 10;
        assert!(passed < 1024, "{passed} KiB passed over TCP for copies on one host");
    }
    for server in [first, second] {
        server.must_have_workers(0);
        server.must_be_well();
    }
}

#[test]
fn where_servers_do_not_reach_each_other_copies_go_by_way_of_the_client() {
    let (first, second) = (Server::start(), Server::start());
    // A session and its one lane come through, and nothing after them.
    let taps = [&first, &second].map(|server| Tap::for_connections(server.target(), 2));
    let on = taps.each_ref().map(|tap| tap.target().connect_string().to_string()).join(",");
    let (counts, log) = counts_of_copies(&on, &[("CAUSEWAY_VIA", "tcp"), ("CAUSEWAY_LANES", "1")]);
    must_have_gone(&counts, "client");
    let says = "server 2 cannot copy from devices of server 1";
    assert_eq!(log.matches(says).count(), 1, "{log}");
    for server in [first, second] {
        server.must_have_workers(0);
        server.must_be_well();
    }
}

#[test]
fn a_server_that_is_lost_in_the_middle_of_copies_fails_them_and_no_more() {
    for lost in [0, 1] {
        let (first, second) = (Server::start(), Server::start());
        let mut command = by_itself(&list(&[&first, &second]), &cuda_program("peer_rate"));
        let mut running = Running::start(command.args(["16", "100000"]));
        running.must_print("to_device_0", LIMIT);
        for worker in [&first, &second][lost].workers() {
            let worker = Pid::from_raw(worker.cast_signed()).expect("a process has a number");
            kill_process(worker, Signal::KILL).expect("it is there");
        }
        let outcome = running.finish(LIMIT);
        assert!(outcome.code() == Some(1) && outcome.stdout.contains("FAIL peer_rate"), "{outcome}");
        // The other server's worker ends with its client and by itself.
        let other = [second, first].into_iter().nth(lost).unwrap();
        other.must_have_workers(0);
        other.must_be_well();
    }
}

#[test]
fn one_server_may_be_named_twice_and_each_has_its_own_key() {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    let open = Server::start();
    let locked = locked_server(&key_file);
    assert!(locked.target().key.is_some() && open.target().key.is_none());
    let on = list(&[&open, &locked, &open]);
    run(&mut through_run(Some(&on), &cuda_program("several_devices")), LIMIT).must_succeed();
    open.must_be_well();
    locked.must_be_well();
}

#[test]
fn a_wrong_server_in_the_list_is_named_before_the_program_starts() {
    let server = Server::start();
    let program = cuda_program("several_devices");
    let (silent, no_port) = ("nothing listens at 127.0.0.1:1", "`port` in `host:port` is no port");
    for (wrong, says, library_error) in [
        ("127.0.0.1:1", silent, silent),
        ("", "--on has an empty entry, between two commas or at an end", "the server's address is empty"),
        ("host:port", no_port, no_port),
    ] {
        let on = format!("{},{wrong}", server.connect_string());
        let outcome = run(&mut through_run(Some(&on), &program), LIMIT);
        assert!(outcome.code() == Some(125) && outcome.stdout.is_empty(), "{outcome}");
        assert!(outcome.stderr.contains(says), "{outcome}");
        // Without `causeway run` the library says it, and the program finds no device.
        let outcome = run(&mut by_itself(&on, &program), LIMIT);
        assert!(outcome.code() == Some(1) && outcome.stderr.contains(library_error), "{outcome}");
    }
    server.must_have_workers(0);
}

#[test]
fn when_a_server_is_lost_its_devices_fail_and_the_others_go_on() {
    let (first, second) = (Server::start(), Server::start());
    for (lost, server) in [("1", &second), ("0", &first)] {
        let mut command = through_run(Some(&list(&[&first, &second])), &cuda_program("several_devices"));
        let mut running = Running::start(command.args(["loses", lost]));
        running.must_print("ready", LIMIT);
        for worker in server.workers() {
            let worker = Pid::from_raw(worker.cast_signed()).expect("a process has a number");
            // The spare worker is among them; the server starts another.
            kill_process(worker, Signal::KILL).expect("it is there");
        }
        let outcome = running.finish(LIMIT).must_succeed();
        let says = format!("concerns devices of server {}", lost.parse::<usize>().unwrap() + 1);
        assert!(outcome.stderr.contains(&says), "{outcome}");
    }
}

/// What a server's worker says of a way to another server, asked for by a client that has made up the ticket.
fn way_to(server: &Server, address: &str) -> PeerTransport {
    let hello = describe_process(COMMANDS, Vec::new());
    let mut session = connect(server.target(), hello, &ConnectOptions::default()).unwrap();
    let request = calls::peer_connect {
        peer: 0,
        address,
        via: "tcp",
        in_clear: false,
        boot_id: "",
        sockets: "",
        ticket: PeerTicket::default(),
    };
    let head = CommandHead { call: 1, thread: 1, context: 0, opcode: calls::peer_connect::OPCODE as u16 };
    let asked = session.link.send(|out| {
        let open = begin_command(out, &head);
        request.encode(out);
        open.finish(out);
    });
    asked.unwrap();
    loop {
        let body = session.receiver.recv().unwrap();
        for message in Messages::<WorkerMessage<'_>>::new(body) {
            if let WorkerMessage::Reply { call: 1, payload, .. } = message.unwrap() {
                let way = PeerTransport::decode(&mut Decoder::new(payload)).unwrap();
                session.link.close();
                return way;
            }
        }
    }
}

/// The sockets that a server names to its clients on this host.
fn names_of_sockets(server: &Server) -> Vec<String> {
    let hello = describe_process(COMMANDS, Vec::new());
    let session = connect(server.target(), hello, &ConnectOptions::default()).unwrap();
    session.link.close();
    assert!(!session.welcome.locality.sockets.is_empty(), "it listens at sockets");
    session.welcome.locality.sockets
}

/// A server is no way to find out what there is in its network.
#[test]
fn a_client_cannot_have_a_server_connect_to_what_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with_key(&folder.path().join("key"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = listener.local_addr().unwrap().to_string();
    let nothing_there = "127.0.0.1:1".to_owned();
    let [told, told_of_nothing] = [&there, &nothing_there].map(|address| {
        let way = way_to(&server, &format!("causeway://{address}"));
        assert!(way.via.is_empty() && way.reason.contains("does not connect to"), "{way:?}");
        way.reason.replace(address, "ADDRESS")
    });
    assert_eq!(told, told_of_nothing, "what listens and what does not is told in the same words");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the server has connected");
    let socket = way_to(&server, "unix:/var/run/docker.sock");
    assert!(socket.reason.contains("does not connect to a socket of this name"), "{socket:?}");
    // A server of the same user with another key, at the socket that it names to its own clients.
    let other = Server::start_with_key(&folder.path().join("other"));
    for name in names_of_sockets(&other) {
        let socket = way_to(&server, &format!("unix:{name}"));
        assert!(socket.reason.contains("does not connect to a socket of this name"), "{socket:?}");
    }
    other.must_be_well();
    server.must_be_well();
}

#[test]
fn servers_with_one_key_reach_each_other_without_being_told_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ["first", "second", "third"].map(|name| folder.path().join(name));
    let first = Server::start_with_key(&keys[0]);
    fs::copy(&keys[0], &keys[1]).unwrap();
    let same = Server::start_with_key(&keys[1]);
    let other = Server::start_with_key(&keys[2]);
    for (second, way) in [(&same, "tcp"), (&other, "client")] {
        let (counts, _) = counts_of_copies(&list(&[&first, second]), &[("CAUSEWAY_BETWEEN_SERVERS", "tcp")]);
        must_have_gone(&counts, way);
    }
}
