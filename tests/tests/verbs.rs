//! Does everything work over InfiniBand verbs, also when packets are lost, the link goes down, or a peer misbehaves?
//!
//! `make verbs-test` runs these in a guest with two hosts that have RDMA devices; elsewhere each says so and passes.

use causeway_tests::built::{self, cuda_program};
use causeway_tests::client::through_run;
use causeway_tests::network::{CLIENT, Network, SERVER, Side};
use causeway_tests::process::{Running, run};
use causeway_tests::programs::{Case, cases, run_all};
use causeway_tests::server::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

/// The two hosts, or nothing where there are no RDMA devices, which is said.
fn hosts() -> Option<Network> {
    Network::of_guest().inspect_err(|why| eprintln!("skipped: {why}")).ok()
}

/// Whether the devices are RoCE: iWARP's packets have no path MTU and lose nothing, since TCP carries them.
fn is_roce() -> bool {
    std::env::var("CAUSEWAY_GUEST_DEVICE").is_ok_and(|device| device == "rxe")
}

/// Whether there is time for everything: `make verbs-test`, not `make test`.
fn runs_all() -> bool {
    std::env::var_os("CAUSEWAY_TEST_ALL").is_some()
}

/// The programs that ask most of a link: copies of all kinds and sizes, memory that both sides reach, several sessions, many
/// commands, and ends. The others do on the device what they do over any link.
const ABOUT_LINKS: [&str; 12] = [
    "vector_add",
    "copy_sizes",
    "copies_2d_3d",
    "synchronous_copies",
    "pinned_memory",
    "managed_memory",
    "peer_copies",
    "callback_waits",
    "graphs",
    "fork_child",
    "concurrent",
    "exit_codes",
];

/// Leaves one variant of each of those.
fn keep_those_about_links(cases: &mut Vec<Case>) {
    cases.retain(|case| ABOUT_LINKS.contains(&case.program.as_str()));
    cases.dedup_by(|next, case| (&next.program, &next.arguments) == (&case.program, &case.arguments));
    for program in ABOUT_LINKS {
        assert!(cases.iter().any(|case| case.program == program), "{program} is not in the list of programs");
    }
}

/// A server on one of the hosts, as a rule the second, with a key in a folder that goes with it.
struct Far {
    server: Server,
    _folder: tempfile::TempDir,
}

impl Far {
    /// Starts it, with these variables.
    fn start(hosts: &Network, variables: &[(&str, &str)]) -> Self {
        Self::on(hosts, Side::Server, &[], variables)
    }

    /// Starts it on the host at this side, with these arguments, too.
    fn on(hosts: &Network, side: Side, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let address = if side == Side::Client { CLIENT } else { SERVER };
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let key = folder.path().join("key");
        let key = key.to_str().expect("temporary folders have plain names");
        let mut command = Server::command(&[&["--listen", address, "--key-file", key], more].concat());
        command.envs(variables.iter().copied());
        Self { server: Server::start_command(hosts.inside(side, &command)), _folder: folder }
    }

    /// A program on the first host. It goes over verbs or not at all.
    fn program(&self, hosts: &Network, name: &str, arguments: &[&str]) -> Command {
        let mut command = through_run(Some(&self.server.connect_string()), &cuda_program(name));
        command.args(arguments);
        hosts.inside(Side::Client, &command)
    }
}

/// A counter of the first host's device.
fn counter(name: &str) -> u64 {
    let device = std::env::var("CAUSEWAY_GUEST_DEVICE").expect("a guest has a device");
    let path = format!("/sys/class/infiniband/{device}1/ports/1/hw_counters/{name}");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim().parse().expect("counters are numbers")
}

#[test]
fn the_hosts_reach_each_other_by_verbs() {
    let Some(hosts) = hosts() else { return };
    let ping = |side, arguments: &[&str]| {
        let mut command = Command::new("rping");
        command.args(arguments).args(["-a", SERVER, "-C", "20", "-v"]);
        hosts.inside(side, &command)
    };
    let mut server = Running::start(&mut ping(Side::Server, &["-s"]));
    // It says nothing before somebody calls, so that the caller tries again.
    let answered = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        run(&mut ping(Side::Client, &["-c"]), LIMIT).code() == Some(0)
    });
    assert!(answered, "{}", server.finish(Duration::ZERO));
    let outcome = server.finish(LIMIT);
    assert!(outcome.stdout.contains("rdma-ping-19"), "{outcome}");
}

#[test]
fn every_program_does_what_it_must() {
    let Some(hosts) = hosts() else { return };
    let only = std::env::var("CAUSEWAY_TEST_ONLY").unwrap_or_default();
    let mut cases = cases();
    if !runs_all() {
        keep_those_about_links(&mut cases);
    }
    cases.retain(|case| !case.needs_gpu && !case.needs_same_host && case.title().contains(&only));
    assert!(!cases.is_empty(), "no program has {only:?} in its title");
    let far = Far::start(&hosts, &[("CAUSEWAY_SOFTWARE_GPU_DEVICES", "2")]);
    run_all(&cases, 1, LIMIT, |case| {
        let mut command = through_run(Some(&far.server.connect_string()), &case.path());
        command.args(&case.arguments);
        hosts.inside(Side::Client, &command)
    });
    far.server.must_be_well();
}

#[test]
fn random_copies_are_right_with_every_setting() {
    let Some(hosts) = hosts() else { return };
    // Of both ends' values the smaller ones count.
    let most = [("CAUSEWAY_VERBS_QUEUE_PAIRS", "4"), ("CAUSEWAY_VERBS_DEPTH", "256")];
    let far = Far::start(&hosts, &most);
    let mtus: &[&str] = if is_roce() { &["256", "512", "1024", "2048", "4096"] } else { &["4096"] };
    let mut seed = 1;
    for queue_pairs in ["1", "2", "4"] {
        for mtu in mtus {
            for depth in ["1", "2", "16", "128", "256"] {
                // A few of them are enough to find what is broken for good.
                seed += 1;
                if !runs_all() && seed % 7 != 0 {
                    continue;
                }
                let arguments = [seed.to_string(), "40".to_owned()];
                let mut program =
                    far.program(&hosts, "random_copies", &arguments.each_ref().map(String::as_str));
                program.env("CAUSEWAY_VERBS_QUEUE_PAIRS", queue_pairs);
                program.env("CAUSEWAY_VERBS_DEPTH", depth).env("CAUSEWAY_VERBS_MTU", mtu);
                let outcome = run(&mut program, LIMIT);
                let setting = format!("{queue_pairs} queue pairs, depth {depth}, MTU {mtu}");
                assert_eq!(outcome.code(), Some(0), "{setting}: {outcome}");
            }
        }
    }
    // Less staging than the worker has: it must not keep what the client needs back.
    let mut program = far.program(&hosts, "copy_rate", &["8", "1"]);
    run(program.env("CAUSEWAY_VERBS_STAGING", "2M"), LIMIT).must_succeed();
    far.server.must_be_well();
}

/// What the counts of a program say of copies of pinned memory, in both directions: bytes by this path, and by staging.
fn pinned_copies(hosts: &Network, far: &Far, variables: &[(&str, &str)], path: &str) -> [[u64; 2]; 2] {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let counts = folder.path().join("counts.json");
    let mut program = far.program(hosts, "pinned_copies", &["4", "2"]);
    program.env("CAUSEWAY_STATS", &counts).envs(variables.iter().copied());
    run(&mut program, LIMIT).must_succeed();
    let text = fs::read_to_string(&counts).expect("the program has written its counts");
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    ["to_device", "from_device"].map(|direction| {
        let bytes = |path: &str| report["copies"][direction][path]["bytes"].as_u64();
        [path, "staged"].map(|path| bytes(path).unwrap_or_else(|| panic!("{path} is missing: {text}")))
    })
}

#[test]
fn pinned_memory_is_moved_where_it_is_and_with_gpudirect_straight_to_the_device() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[("CAUSEWAY_VERBS_SIGNAL_INTERVAL", "1")]);
    let off = ("CAUSEWAY_GPUDIRECT", "off");
    for how in ["write", "read"] {
        let counts = pinned_copies(&hosts, &far, &[off, ("CAUSEWAY_VERBS_TO_DEVICE", how)], "registered");
        for [registered, staged] in counts {
            assert!(registered > 0 && staged == 0, "{how}: {counts:?}");
        }
    }
    let counts = pinned_copies(&hosts, &far, &[], "gpudirect");
    for [direct, _] in counts {
        assert!(direct > 0, "{counts:?}");
    }
    // Staging is used again at once: whoever took bytes before they came would find those of the piece before. Soft-iWARP
    // completes what follows a read before the read, and the server's requests all have completions.
    let few = [off, ("CAUSEWAY_VERBS_STAGING", "1M"), ("CAUSEWAY_VERBS_QUEUE_PAIRS", "1")];
    for _ in 0..if is_roce() { 1 } else { 3 } {
        pinned_copies(&hosts, &far, &few, "registered");
    }
    far.server.must_have_workers(0);
    far.server.must_be_well();
}

/// So that several links of a process are set up quickly on one slow processor.
const SMALL_STAGING: (&str, &str) = ("CAUSEWAY_VERBS_STAGING", "4M");

/// A server on each host, with these variables for the second. Both hosts are one machine with one file system, so that neither
/// has a socket in a folder by which the other would find that out.
fn on_both_hosts(hosts: &Network, variables: &[(&str, &str)]) -> [Far; 2] {
    let apart = ["--socket-dir", "/nonexistent"];
    [(Side::Client, &[][..]), (Side::Server, variables)]
        .map(|(side, variables)| Far::on(hosts, side, &apart, &[&[SMALL_STAGING], variables].concat()))
}

/// A program on the first host with the devices of both servers.
fn with_both(hosts: &Network, servers: &[Far; 2], name: &str, variables: &[(&str, &str)]) -> Command {
    let on = servers.each_ref().map(|server| server.server.connect_string()).join(",");
    let mut program = through_run(Some(&on), &cuda_program(name));
    program.envs([SMALL_STAGING]).envs(variables.iter().copied());
    hosts.inside(Side::Client, &program)
}

#[test]
fn servers_copy_between_their_devices_by_verbs() {
    let Some(hosts) = hosts() else { return };
    let servers = on_both_hosts(&hosts, &[]);
    let not_encrypted = "not verbs: what goes over verbs is not encrypted";
    for (via, between, way, says) in [
        ("verbs", "auto", "verbs", "go via verbs; not shm: the server is on"),
        ("tcp", "verbs", "verbs", "go via verbs"),
        ("auto", "link", "tcp", not_encrypted),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let counts = folder.path().join("counts.json");
        let counts_file = counts.to_str().expect("temporary folders have plain names");
        let variables = [("CAUSEWAY_VIA", via), ("CAUSEWAY_BETWEEN_SERVERS", between)];
        let told = [("CAUSEWAY_STATS", counts_file), ("CAUSEWAY_LOG", "info")];
        let mut program = with_both(&hosts, &servers, "peer_rate", &[&variables[..], &told].concat());
        let outcome = run(program.args(["4", "2"]), LIMIT).must_succeed();
        let text = fs::read_to_string(&counts).expect("the program has written its counts");
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let bytes = report["copies"]["between_servers"][way]["bytes"].as_u64();
        assert_eq!(bytes, Some(16 << 20), "{via} {between}: {text}");
        // Two counts of wrong words in each repetition, four bytes each.
        assert_eq!(
            (&report["bytes_to_device"], &report["bytes_from_device"]),
            (&0.into(), &16.into()),
            "{text}"
        );
        assert_eq!(outcome.stderr.matches(says).count(), 2, "{via} {between}: {outcome}");
    }
    for Far { server, .. } in &servers {
        server.must_have_workers(0);
        server.must_be_well();
    }
}

/// Bytes that came to a server from the other one, all and by GPUDirect, as its log has them for each of its workers.
fn came_from_the_other(far: &Far) -> Vec<[u64; 2]> {
    far.server.must_have_workers(0);
    let log = far.server.log();
    let told = log.lines().filter_map(|line| {
        let (all, rest) = line.split_once(" bytes came from another server, ")?;
        let number = |text: &str| text.rsplit(' ').next()?.parse().ok();
        Some([number(all)?, number(rest.split_once(" of them by GPUDirect")?.0)?])
    });
    told.collect()
}

#[test]
fn between_servers_cards_move_bytes_from_device_to_device_where_they_reach_them() {
    let Some(hosts) = hosts() else { return };
    let variables = [("CAUSEWAY_VIA", "tcp"), ("CAUSEWAY_BETWEEN_SERVERS", "verbs")];
    const BYTES: u64 = 4 << 20;
    for (second, expected) in [("auto", [BYTES; 2]), ("off", [BYTES, 0])] {
        let servers = on_both_hosts(&hosts, &[("CAUSEWAY_GPUDIRECT", second)]);
        run(with_both(&hosts, &servers, "peer_rate", &variables).args(["4", "1"]), LIMIT).must_succeed();
        for (server, direct) in servers.iter().zip(expected) {
            assert_eq!(came_from_the_other(server), [[BYTES, direct]], "the second's GPUDirect is {second}");
        }
        if second == "auto" || runs_all() {
            run(&mut with_both(&hosts, &servers, "peer_copies", &variables), LIMIT).must_succeed();
        }
    }
}

#[test]
fn where_verbs_between_servers_are_insisted_on_and_cannot_be_had_the_client_carries_copies() {
    let Some(hosts) = hosts() else { return };
    let servers = on_both_hosts(&hosts, &[("CAUSEWAY_VERBS_DEVICE", "nothing")]);
    let variables = [("CAUSEWAY_VIA", "tcp"), ("CAUSEWAY_BETWEEN_SERVERS", "verbs")];
    let outcome =
        run(with_both(&hosts, &servers, "peer_rate", &variables).args(["4", "1"]), LIMIT).must_succeed();
    assert_eq!(outcome.stderr.matches("cannot be reached via verbs").count(), 2, "{outcome}");
}

#[test]
fn a_server_with_a_wrong_key_ends_that_session_and_the_program_hears_of_it() {
    let Some(hosts) = hosts() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let hostile = hostile_library(folder.path());
    let far =
        Far::start(&hosts, &[("LD_PRELOAD", hostile.to_str().expect("temporary folders have plain names"))]);
    for direct in ["off", "auto"] {
        let mut program = far.program(&hosts, "pinned_copies", &["4", "50"]);
        let outcome = run(program.env("CAUSEWAY_GPUDIRECT", direct), LIMIT);
        assert_eq!(outcome.code(), Some(1), "{direct}: {outcome}");
        assert!(outcome.stdout.contains("FAIL pinned_copies"), "{direct}: {outcome}");
        far.server.must_have_workers(0);
    }
    far.server.must_be_well();
}

#[test]
fn packets_that_are_lost_or_overtaken_change_no_byte() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[("CAUSEWAY_VERBS_QUEUE_PAIRS", "4")]);
    for how in [&["loss", "0.2%"][..], &["delay", "300us", "reorder", "95%", "50%"]] {
        for side in [Side::Client, Side::Server] {
            hosts.disturb(side, how);
        }
        // Of the settings those that make packets many, requests few, and parts cross.
        let settings = [("2", "128", "4096"), ("1", "1", "1024"), ("4", "16", "256")];
        for (queue_pairs, depth, mtu) in settings.into_iter().take(if runs_all() { 3 } else { 1 }) {
            let mut program = far.program(&hosts, "random_copies", &["7", "24", "512"]);
            program.env("CAUSEWAY_VERBS_QUEUE_PAIRS", queue_pairs);
            program.env("CAUSEWAY_VERBS_DEPTH", depth).env("CAUSEWAY_VERBS_MTU", mtu);
            let outcome = run(&mut program, LIMIT);
            assert_eq!(
                outcome.code(),
                Some(0),
                "{how:?}, {queue_pairs} queue pairs, {depth}, {mtu}: {outcome}"
            );
        }
        for side in [Side::Client, Side::Server] {
            hosts.disturb(side, &[]);
        }
    }
    far.server.must_be_well();
}

#[test]
fn a_link_that_is_down_for_a_moment_is_survived() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let mut copying = Running::start(&mut far.program(&hosts, "copy_rate", &["16", "6"]));
    copying.must_print("to_device", LIMIT);
    hosts.cut(true);
    std::thread::sleep(Duration::from_millis(100));
    hosts.cut(false);
    copying.finish(LIMIT).must_succeed();
}

#[test]
fn a_link_that_stays_down_ends_the_session_and_not_the_server() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let mut copying = Running::start(&mut far.program(&hosts, "copy_rate", &["16", "1000"]));
    copying.must_print("to_device", LIMIT);
    hosts.cut(true);
    let outcome = copying.finish(LIMIT);
    hosts.cut(false);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stdout.contains("FAIL copy_rate"), "{outcome}");
    far.server.must_have_workers(0);
    run(&mut far.program(&hosts, "vector_add", &[]), LIMIT).must_succeed();
    far.server.must_be_well();
}

#[test]
fn a_peer_that_posts_no_receives_is_waited_for_and_not_stormed() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let mut running = Running::start(&mut far.program(&hosts, "many_launches", &["20000", "1"]));
    running.must_print("begins", LIMIT);
    far.server.must_have_workers(1);
    let worker = Pid::from_raw(far.server.workers()[0] as i32).expect("processes have numbers above 0");
    kill_process(worker, Signal::STOP).expect("the worker is there");
    // Long enough for a program that nothing holds back to be done.
    std::thread::sleep(Duration::from_secs(3));
    let has_ended = running.has_exited();
    let refused = is_roce().then(|| counter("rcvd_rnr_err"));
    kill_process(worker, Signal::CONT).expect("the worker is there");
    let outcome = running.finish(LIMIT).must_succeed();
    assert!(!has_ended, "the program must have been held back: {outcome}");
    assert_eq!(refused.unwrap_or(0), 0, "messages were sent for which there was no receive");
}

/// Queue pairs of the first host's device that belong to processes.
fn queue_pairs(hosts: &Network) -> usize {
    let mut rdma = Command::new("rdma");
    rdma.args(["resource", "show", "qp"]);
    let outcome = run(&mut hosts.inside(Side::Client, &rdma), LIMIT).must_succeed();
    let device = std::env::var("CAUSEWAY_GUEST_DEVICE").expect("a guest has a device");
    let own = format!("link {device}1/");
    outcome.stdout.lines().filter(|line| line.starts_with(&own) && line.contains(" pid ")).count()
}

#[test]
fn many_sessions_at_a_time_have_queue_pairs_of_their_own() {
    let Some(hosts) = hosts() else { return };
    let small = ("CAUSEWAY_VERBS_STAGING", "1M");
    let far = Far::start(&hosts, &[small, ("CAUSEWAY_SOFTWARE_GPU_MEMORY", "64M")]);
    let count = if runs_all() { 200 } else { 16 };
    let mut standing = Vec::new();
    for _ in 0..count {
        let mut program = far.program(&hosts, "copy_rate", &["1", "2"]);
        let program = Running::start(program.env(small.0, small.1));
        // It has its session then; it goes on when all the others have theirs, too.
        program.must_print("begins", LIMIT);
        program.signal(Signal::STOP);
        standing.push(program);
    }
    far.server.must_have_workers(count);
    let queue_pairs = queue_pairs(&hosts);
    assert!(queue_pairs >= 2 * count, "{count} sessions have {queue_pairs} queue pairs");
    // All of them copy to and fro at the same time, and check every byte.
    for program in &standing {
        program.signal(Signal::CONT);
    }
    for mut program in standing {
        program.finish(LIMIT).must_succeed();
    }
    far.server.must_have_workers(0);
    far.server.must_be_well();
    println!("note: {count} sessions at a time, with {queue_pairs} queue pairs on the first host's device");
}

#[test]
fn a_port_that_tcp_has_in_use_is_left_to_it() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    // rdma_cm chooses by chance, whatever TCP has of them.
    let _taken = [Side::Client, Side::Server].map(|side| hosts.leave_ports(side, 41_000..41_400, 5));
    for _ in 0..12 {
        run(&mut far.program(&hosts, "vector_add", &[]), LIMIT).must_succeed();
    }
    far.server.must_be_well();
}

/// What is preloaded into a hostile process, compiled into a folder.
fn hostile_library(folder: &Path) -> PathBuf {
    let hostile = folder.join("wrong_key.so");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&hostile);
    run(compile.arg(built::source_tree().join("tests/verbs/wrong_key.c")), LIMIT).must_succeed();
    hostile
}

#[test]
fn a_client_with_a_wrong_key_ends_its_own_session_alone() {
    let Some(hosts) = hosts() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let hostile = hostile_library(folder.path());
    let far = Far::start(&hosts, &[]);
    let mut honest = Running::start(&mut far.program(&hosts, "copy_rate", &["8", "12"]));
    honest.must_print("to_device", LIMIT);
    let outcome = run(far.program(&hosts, "copy_rate", &["8", "1000"]).env("LD_PRELOAD", &hostile), LIMIT);
    assert_eq!(outcome.code(), Some(1), "{outcome}");
    assert!(outcome.stdout.contains("FAIL copy_rate"), "{outcome}");
    // iWARP's cards end the connection and say no more to the one that asked.
    assert!(!is_roce() || outcome.stderr.contains("does not allow access to the memory"), "{outcome}");
    honest.finish(LIMIT).must_succeed();
    far.server.must_have_workers(0);
    far.server.must_be_well();
}

#[test]
fn without_room_for_locked_memory_the_limit_is_named() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let limited = |kibibytes: u64, via: &str| {
        let program = far.program(&hosts, "vector_add", &[]);
        // Without the capability that lifts the limit.
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit"]);
        command
            .arg(format!("--memlock={}", kibibytes << 10))
            .arg(program.get_program())
            .args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        run(command.env("CAUSEWAY_VIA", via), LIMIT)
    };
    let refused = limited(64, "verbs");
    assert_ne!(refused.code(), Some(0), "{refused}");
    assert!(refused.stderr.contains("ulimit -l"), "{refused}");
    // The limit that most systems set, and one with room for everything.
    limited(8 << 10, "verbs").must_succeed();
    limited(64 << 10, "verbs").must_succeed();
    far.server.must_be_well();
}

#[test]
fn the_benchmark_measures_every_operation() {
    let Some(hosts) = hosts() else { return };
    let bench = |side, arguments: &[&str]| {
        let mut command = Command::new(built::causeway());
        command.args(["bench", "verbs"]).args(arguments);
        hosts.inside(side, &command)
    };
    let far = Running::start(&mut bench(Side::Server, &["--listen"]));
    far.must_print("listening", LIMIT);
    // iWARP's queue pairs are not joined by numbers: only links are measured there. Here all ends share one processor, on which
    // round trips between threads that look take long; of links only the bandwidth is measured.
    if is_roce() {
        let words =
            ["--through", "verbs", "--repetitions", "2", "--sizes", "64,64K", "--sweep", "default,both"];
        let outcome =
            run(&mut bench(Side::Client, &[&["--to", SERVER], &words[..]].concat()), LIMIT).must_succeed();
        for words in ["RDMA read, bandwidth", "RDMA write, latency", "2 x 128", "64 KiB"] {
            assert!(outcome.stdout.contains(words), "{words} is missing: {outcome}");
        }
        assert!(!outcome.stdout.contains("not measured"), "{outcome}");
    }
    let words = ["--through", "links", "--repetitions", "1", "--sizes", "64K", "--quantity", "bandwidth"];
    let words = [&["--to", SERVER, "--sweep", "default", "--operation", "send,write"], &words[..]].concat();
    let outcome = run(&mut bench(Side::Client, &words), LIMIT).must_succeed();
    for words in ["messages of a link, bandwidth", "memory of a link, bandwidth", "64 KiB"] {
        assert!(outcome.stdout.contains(words), "{words} is missing: {outcome}");
    }
    assert!(!outcome.stdout.contains("not measured"), "{outcome}");
}

#[test]
fn doctor_finds_the_devices_of_both_hosts() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let mut doctor = Command::new(built::causeway());
    doctor.args(["doctor", "--json", "--via", "tcp", "--on", &far.server.connect_string()]);
    let outcome = run(&mut hosts.inside(Side::Client, &doctor), LIMIT);
    let report: Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    for host in ["here", "there"] {
        let facts = &report[host]["facts"];
        let devices = facts["rdma"]["devices"].as_array().expect("there is a list");
        assert!(
            !devices.is_empty()
                && devices.len() == facts["live"]["verbs"]["devices"].as_array().map_or(0, Vec::len)
        );
        for device in devices {
            let port = &device["ports"][0];
            assert_eq!(
                (&port["state"], &port["link_layer"]),
                (&"ACTIVE".into(), &"Ethernet".into()),
                "{report:#}"
            );
        }
        let findings = report[host]["findings"].as_array().expect("there is a list");
        let is_told = |finding: &Value| {
            finding["text"].as_str().is_some_and(|text| text.contains("is active: Ethernet"))
        };
        assert!(findings.iter().any(is_told), "{report:#}");
    }
    assert_eq!(report["problems"], 0, "{report:#}");
}
