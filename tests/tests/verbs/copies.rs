//! Programs and their copies over verbs.

use crate::setup::{Far, LIMIT, hosts, is_roce, runs_all};
use causeway_tests::built::causeway;
use causeway_tests::client::through_run;
use causeway_tests::network::{Network, SERVER, Side};
use causeway_tests::process::{Running, eventually, run};
use causeway_tests::programs::{Case, cases, run_all};
use causeway_tests::server::forget_environment;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// How long random programs may take, all together.
const MODEL_LIMIT: Duration = Duration::from_secs(1200);

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

/// The programs that ask most of a link: copies of all kinds and sizes, memory that both sides reach, several
/// sessions, many commands, and ends. The others do on the device what they do over any link.
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
        // What a program says must be its own, so that the key is not in the address.
        let mut command = through_run(Some(&far.server.target().address()), &case.path());
        command.args(&case.arguments).env("CAUSEWAY_KEY_FILE", far.key_file());
        hosts.inside(Side::Client, &command)
    });
    far.server.must_be_well();
}

#[test]
fn random_programs_are_in_order() {
    let Some(hosts) = hosts() else { return };
    let delays = ("CAUSEWAY_TEST_DELAYS", "60:1500");
    let far = Far::start(&hosts, &[("CAUSEWAY_SOFTWARE_GPU_DEVICES", "2"), delays]);
    let model = causeway().with_file_name("causeway-model");
    let seeds = std::env::var("CAUSEWAY_MODEL_SEEDS");
    let seeds = seeds.unwrap_or_else(|_| if runs_all() { "6000..9000" } else { "6000..6200" }.to_owned());
    let mut command = through_run(Some(&far.server.connect_string()), &model);
    // One processor has to do for both hosts.
    command.args(["--seeds", &seeds, "--limit", "60"]).envs([delays]);
    run(&mut hosts.inside(Side::Client, &command), MODEL_LIMIT).must_succeed();
    far.server.must_be_well();
}

#[test]
fn random_copies_are_right_with_every_setting() {
    let Some(hosts) = hosts() else { return };
    // Of both ends' values the smaller ones count.
    let most = [("CAUSEWAY_VERBS_QUEUE_PAIRS", "4"), ("CAUSEWAY_VERBS_QUEUE_DEPTH", "256")];
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
                program.env("CAUSEWAY_VERBS_QUEUE_DEPTH", depth).env("CAUSEWAY_VERBS_MTU", mtu);
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

/// What the counts of a program say of copies of pinned memory, in both directions: bytes by this path, and
/// by staging.
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

/// What a server says of GPUDirect of its one session.
fn direct_of(hosts: &Network, far: &Far) -> (String, Value) {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["sessions", "--json", "--on", &far.server.connect_string()]);
    let outcome = run(&mut hosts.inside(Side::Client, &command), LIMIT).must_succeed();
    let told: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let session = &told["sessions"][0];
    (session["session"].as_str().unwrap_or_default().to_owned(), session["gpudirect"].clone())
}

#[test]
fn gpudirect_of_a_session_is_switched_while_it_copies() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[]);
    let mut copying = Running::start(&mut far.program(&hosts, "pinned_copies", &["1", "100000"]));
    let number = |direct: &Value, field: &str| direct[field].as_u64().unwrap_or(0);
    eventually("cards copy, and the server says how much", LIMIT, || {
        let (_, direct) = direct_of(&hosts, &far);
        direct["on"] == true
            && number(&direct, "bytes_to_device") > 0
            && number(&direct, "bytes_from_device") > 0
    });
    let (session, _) = direct_of(&hosts, &far);
    let switch = |state: &str| {
        let mut command = Command::new(causeway());
        forget_environment(&mut command);
        command.args(["sessions", "gpudirect", "--on", &far.server.connect_string(), &session, state]);
        // On the server's host, whose user the kernel knows.
        let outcome = run(&mut hosts.inside(Side::Server, &command), LIMIT).must_succeed();
        assert!(outcome.stdout.contains(&format!("is {state}, from its next copy on")), "{outcome}");
    };
    switch("off");
    // What was in flight ends by itself.
    eventually("nothing goes by GPUDirect any more, and all is staged", LIMIT, || {
        let [(_, before), (_, after)] = [direct_of(&hosts, &far), direct_of(&hosts, &far)];
        let same = |field| number(&before, field) == number(&after, field);
        after["on"] == false
            && same("bytes_to_device")
            && same("bytes_from_device")
            && number(&after, "staged_bytes_to_device") > number(&before, "staged_bytes_to_device")
    });
    let (_, off) = direct_of(&hosts, &far);
    switch("on");
    eventually("cards copy again", LIMIT, || {
        let (_, now) = direct_of(&hosts, &far);
        number(&now, "bytes_to_device") > number(&off, "bytes_to_device")
            && number(&now, "bytes_from_device") > number(&off, "bytes_from_device")
    });
    copying.signal(Signal::KILL);
    let _ = copying.finish(LIMIT);
    eventually("the session ends", LIMIT, || direct_of(&hosts, &far).0.is_empty());
    // The process that looks at the devices for `causeway sessions` stays.
    far.server.must_have_workers(1);
    far.server.must_be_well();
}

#[test]
fn pinned_memory_is_moved_where_it_is_and_with_gpudirect_straight_to_the_device() {
    let Some(hosts) = hosts() else { return };
    let far = Far::start(&hosts, &[("CAUSEWAY_VERBS_SIGNAL_INTERVAL", "1")]);
    let off = ("CAUSEWAY_GPUDIRECT", "off");
    for how in ["write", "read"] {
        let counts = pinned_copies(&hosts, &far, &[off, ("CAUSEWAY_VERBS_TO_DEVICE", how)], "registered");
        let [[to_device, staged], [from_device, _]] = counts;
        // A card would not wait for an earlier copy to the same memory: what overlaps one comes by way of
        // staging.
        assert!(to_device > 0 && staged == 0 && from_device > 0, "{how}: {counts:?}");
    }
    let counts = pinned_copies(&hosts, &far, &[], "gpudirect");
    for [direct, _] in counts {
        assert!(direct > 0, "{counts:?}");
    }
    // Staging is used again at once: whoever took bytes before they came would find those of the piece
    // before. Soft-iWARP completes what follows a read before the read, and the server's requests all have
    // completions.
    let few = [off, ("CAUSEWAY_VERBS_STAGING", "1M"), ("CAUSEWAY_VERBS_QUEUE_PAIRS", "1")];
    for _ in 0..if is_roce() { 1 } else { 3 } {
        pinned_copies(&hosts, &far, &few, "registered");
    }
    far.server.must_have_workers(0);
    far.server.must_be_well();
}
