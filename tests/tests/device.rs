//! Kernels that communicate, through Causeway. Teams come from `libcauseway_comm.so`, the kernels run in a
//! worker, and the proxies in the program's own process.

use causeway_tests::built::{causeway, cuda_program, programs_folder, source_tree};
use causeway_tests::client::through_run;
use causeway_tests::network::{CLIENT, Cable, Network, SERVER, Side};
use causeway_tests::process::{Outcome, Running, run};
use causeway_tests::server::{Server, forget_environment};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn command(server: Option<&str>, name: &str) -> Command {
    with_library(through_run(server, &cuda_program(name)))
}

fn with_library(command: Command) -> Command {
    with_libraries(command, None)
}

fn with_libraries(mut command: Command, more: Option<PathBuf>) -> Command {
    // The library lies beside the program `causeway`.
    let folders = [causeway().parent().unwrap().to_owned(), programs_folder().join("lib")];
    let folders = folders.into_iter().chain(more);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
    command
}

fn program(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    run(command(None, name).args(arguments).envs(environment.iter().copied()), LIMIT)
}

/// A team's nonce, another one each time.
fn nonce() -> String {
    static TEAMS: AtomicU32 = AtomicU32::new(0);
    let team = TEAMS.fetch_add(1, Ordering::Relaxed);
    format!("{:032x}", u128::from(std::process::id()) << 64 | u128::from(team))
}

/// Ranks in processes of their own, on one server.
fn processes(ranks: u32, mistake: Option<&str>) -> Vec<Outcome> {
    let (server, nonce) = (Server::start(), nonce());
    let start = |rank: u32| {
        let mut command = command(Some(&server.connect_string()), "device_processes");
        command.args([&nonce, &rank.to_string(), &ranks.to_string()]).args(mistake);
        Running::start(&mut command)
    };
    let mut running: Vec<Running> = (0..ranks).map(start).collect();
    let outcomes = running.iter_mut().map(|rank| rank.finish(LIMIT)).collect();
    server.must_be_well();
    outcomes
}

/// One of the PEs of a program of the SHMEM facade, as a launcher of processes starts it.
fn pe(server: Option<&str>, name: &str, job: &str, rank: u32, ranks: u32) -> Command {
    let mut command = command(server, name);
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", ranks.to_string());
    command.env("CAUSEWAY_DEVICE_NONCE", job).env("NVSHMEM_SYMMETRIC_SIZE", "4M");
    command
}

/// All PEs of such a program, on one server.
fn pes(ranks: u32, name: &str, mode: Option<&str>) -> Vec<Outcome> {
    let (server, job) = (Server::start(), nonce());
    let start = |rank| Running::start(pe(Some(&server.connect_string()), name, &job, rank, ranks).args(mode));
    let mut running: Vec<Running> = (0..ranks).map(start).collect();
    running.iter_mut().map(|pe| pe.finish(LIMIT)).collect()
}

/// Ranks in processes of their own, in turn on two hosts that have nothing in common but a network, each with
/// a server of its own.
fn on_two_hosts(network: &Network, ranks: u32, program: impl Fn(u32) -> Command) -> Vec<Running> {
    let start = |rank: u32| {
        let mut program = program(rank);
        program.env("CAUSEWAY_COMM_HOSTS", format!("{CLIENT},{SERVER}")).env("CAUSEWAY_VIA", "shm");
        let mut host = Command::new("unshare");
        host.args([
            "--mount",
            "--ipc",
            "--uts",
            "sh",
            "-c",
            "mount -t tmpfs none /dev/shm && exec \"$@\"",
            "sh",
        ]);
        host.arg(program.get_program()).args(program.get_args());
        host.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let side = if rank.is_multiple_of(2) { Side::Client } else { Side::Server };
        Running::start(&mut network.inside(side, &host))
    };
    (0..ranks).map(start).collect()
}

/// The program of ranks in processes of their own.
fn device_processes(ranks: u32, mistake: Option<&str>) -> impl Fn(u32) -> Command {
    let nonce = nonce();
    move |rank: u32| {
        let mut program = command(None, "device_processes");
        program.args([&nonce, &rank.to_string(), &ranks.to_string()]).args(mistake);
        program
    }
}

#[test]
fn kernels_of_two_hosts_communicate_and_learn_of_a_lost_rank_and_a_cut_network() {
    let lay = |cable| {
        let network = Network::lay(cable);
        network.map_err(|why| eprintln!("skipped, for no network can be made here: {why}")).ok()
    };
    let finish = |mut running: Vec<Running>| -> Vec<Outcome> {
        running.iter_mut().map(|rank| rank.finish(LIMIT)).collect()
    };
    // Half a millisecond there, and half a millisecond back.
    let Some(distant) = lay(Cable::Carried { arguments: &["-d", "500", "-g"] }) else { return };
    for outcome in finish(on_two_hosts(&distant, 3, device_processes(3, None))) {
        let outcome = outcome.must_succeed();
        assert!(outcome.stdout.contains("a window in the host was used"), "{outcome}");
    }
    drop(distant);
    let Some(network) = lay(Cable::Plain { rate: None }) else { return };
    // The planes of a stencil, over TCP and by network cards, of which each process has one.
    let cards = tempfile::tempdir().expect("a temporary folder can be made");
    run(Command::new(source_tree().join("tests/softcard/build.sh")).arg(cards.path()), LIMIT).must_succeed();
    for (more, way) in [(None, "over TCP"), (Some(cards.path()), "by the RDMA device mlx5_0")] {
        let nonce = nonce();
        let program = |rank: u32| {
            let program = through_run(None, &cuda_program("device_processes"));
            let mut program = with_libraries(program, more.map(Path::to_owned));
            program.args([&nonce, &rank.to_string(), "2", "stencil"]).env("CAUSEWAY_COMM_EXPLAIN", "1");
            if more.is_some() {
                program.env("SOFTCARD_LISTEN", [CLIENT, SERVER][rank as usize]);
                program.env("CAUSEWAY_VERBS_DEVICE", "mlx5_0");
            }
            program
        };
        for outcome in finish(on_two_hosts(&network, 2, program)) {
            let outcome = outcome.must_succeed();
            assert!(outcome.stdout.contains("1680 numbers are those of one rank alone"), "{outcome}");
            assert!(outcome.stderr.contains(way), "{way}: {outcome}");
        }
    }
    for name in ["shmem_basics", "shmem_jacobi"] {
        let job = nonce();
        for outcome in finish(on_two_hosts(&network, 3, |rank| pe(None, name, &job, rank, 3))) {
            outcome.must_succeed();
        }
    }
    for outcome in finish(on_two_hosts(&network, 3, device_processes(3, Some("end")))).into_iter().take(2) {
        let outcome = outcome.must_succeed();
        assert!(outcome.stdout.contains("has ended, or its part of the team has"), "{outcome}");
    }
    let running = on_two_hosts(&network, 2, device_processes(2, Some("cut")));
    for rank in &running {
        let waits = rank.find(LIMIT, |printed| printed.contains("waits").then_some(()));
        assert!(waits.is_some(), "the kernels do not wait");
    }
    network.cut(true);
    for outcome in finish(running) {
        let outcome = outcome.must_succeed();
        let is_told =
            ["the link to rank", "has ended, or its part"].iter().any(|told| outcome.stdout.contains(told));
        assert!(is_told, "{outcome}");
    }
}

#[test]
fn ranks_in_processes_of_their_own_reach_each_others_memory() {
    for ranks in [2, 5] {
        for outcome in processes(ranks, None) {
            let outcome = outcome.must_succeed();
            assert!(outcome.stderr.contains("without NVIDIA's MPS"), "{outcome}");
        }
    }
}

#[test]
fn the_end_of_a_rank_ends_the_kernels_that_wait_and_windows_must_be_the_same() {
    let outcomes = processes(3, Some("end"));
    for outcome in outcomes.into_iter().take(2) {
        let outcome = outcome.must_succeed();
        assert!(outcome.stdout.contains("has ended, or its part of the team has"), "{outcome}");
    }
    for outcome in processes(3, Some("size")) {
        let outcome = outcome.must_succeed();
        assert!(outcome.stdout.contains("creates a different window"), "{outcome}");
    }
}

#[test]
fn sources_written_for_shmem_give_the_results_that_the_host_computes() {
    for ranks in [1, 3] {
        for outcome in pes(ranks, "shmem_basics", None) {
            outcome.must_succeed();
        }
    }
    let (server, id) = (Server::start(), nonce());
    let start = |pe: &str| {
        let mut command = command(Some(&server.connect_string()), "shmem_jacobi");
        Running::start(command.env("NVSHMEM_SYMMETRIC_SIZE", "4M").args([pe, "2", &id]))
    };
    for mut pe in ["0", "1"].map(start) {
        pe.finish(LIMIT).must_succeed();
    }
}

#[test]
fn pes_that_ask_for_different_things_or_put_elsewhere_are_refused() {
    for outcome in pes(2, "shmem_basics", Some("size")) {
        let outcome = outcome.must_succeed();
        assert!(outcome.stderr.contains("something else at another PE: all have to ask"), "{outcome}");
    }
    let outcomes = pes(2, "shmem_basics", Some("outside"));
    let is_told = |outcome: &Outcome, what| outcome.code() == Some(1) && outcome.stderr.contains(what);
    assert!(is_told(&outcomes[1], "lie in the window"), "{}", outcomes[1]);
    assert!(is_told(&outcomes[0], "rank 1 has ended, or its part of the team has"), "{}", outcomes[0]);
}

#[test]
fn kernels_on_a_server_do_not_post_to_cards_of_this_machine() {
    let outcome = program("gpu_verbs", &[], &[]);
    assert!(
        outcome.stdout.starts_with("the network card: kernels of a program that `causeway run`"),
        "{outcome}"
    );
}

#[test]
fn the_examples_do_what_they_say() {
    let outcome = program("put_signal", &[], &[("CAUSEWAY_COMM_EXPLAIN", "1")]).must_succeed();
    assert_eq!(outcome.stdout, "rank 0 received 999000, rank 1 received 499500\n");
    assert!(outcome.stderr.contains("causeway: rank 1: 1 messages, 4000 bytes by direct\n"), "{outcome}");
    let outcome = program("moe_dispatch", &[], &[]).must_succeed();
    assert_eq!(outcome.stdout, "96 tokens of 4 ranks came back, 0 numbers are wrong\n");
}

#[test]
fn a_team_is_made_in_python_and_nvrtc_compiles_the_headers() {
    let mut command = with_library(through_run(None, Path::new("python3")));
    command.arg("-B").arg(source_tree().join("tests/mpi/python_team.py"));
    assert_eq!(run(&mut command, LIMIT).must_succeed().stdout, "ok\n");
}

#[test]
fn kernels_of_numba_are_linked_with_the_operations() {
    // `make test` has installed them; else this takes a while.
    let mut packages = Command::new("scripts/python-packages.sh");
    let packages = run(packages.current_dir(source_tree()), Duration::from_secs(600)).must_succeed();
    let runtime =
        std::fs::canonicalize(programs_folder().join("lib/libnvrtc.so.13")).expect("NVRTC is there");
    let cuda = runtime.ancestors().nth(2).expect("it lies in a folder of the toolkit").to_owned();
    let mut command = with_libraries(through_run(None, Path::new("python3")), Some(cuda.join("lib")));
    command.arg("-B").arg(source_tree().join("tests/mpi/numba_team.py"));
    command.arg(programs_folder().join("causeway_device.ltoir"));
    command.arg(packages.stdout.trim()).arg(cuda.ancestors().nth(2).expect("and that in one of packages"));
    command.env("CUDA_HOME", &cuda).env("CUDA_PATH", &cuda);
    assert_eq!(run(&mut command, LIMIT).must_succeed().stdout, "ok\n");
}

#[test]
fn the_initiator_can_be_forced() {
    let environment = [
        ("CAUSEWAY_COMM_EXPLAIN", "1"),
        ("CAUSEWAY_DEVICE_EXPLAIN", "1"),
        ("CAUSEWAY_DEVICE_INITIATOR", "proxy"),
    ];
    let outcome = program("put_signal", &[], &environment).must_succeed();
    assert_eq!(outcome.stdout, "rank 0 received 999000, rank 1 received 499500\n");
    assert!(outcome.stderr.contains("causeway: rank 0: 1 messages, 4000 bytes by proxy\n"), "{outcome}");
    let decided = "rank 0: 1 messages of 2049 to 4096 bytes by blocks, by proxy: ";
    assert!(outcome.stderr.contains(&format!("causeway: {decided}the peer's memory is not")), "{outcome}");
    let outcome = program("put_signal", &[], &[("CAUSEWAY_DEVICE_INITIATOR", "gpu")]);
    assert!(
        outcome.code() == Some(1) && outcome.stdout.contains("CAUSEWAY_DEVICE_INITIATOR=gpu"),
        "{outcome}"
    );
}

#[test]
fn without_common_memory_no_team_is_made() {
    let outcome = program("put_signal", &[], &[("CAUSEWAY_VIA", "tcp")]);
    let told = outcome.stdout.contains("don't follow each other's writes in pinned memory");
    assert!(outcome.code() == Some(1) && told, "{outcome}");
}

/// What `causeway bench device` has told and written.
fn bench(words: &[&str], out: &Path) -> (Outcome, serde_json::Value) {
    let mut command = Command::new(causeway());
    forget_environment(&mut command);
    command.args(["bench", "device", "--quick", "--runs", "1", "--program"]);
    command.arg(cuda_program("causeway_device_bench")).arg("--out").arg(out).args(words);
    let outcome = run(&mut command, LIMIT);
    let text = std::fs::read_to_string(out.join("device.json")).unwrap_or("null".to_owned());
    (outcome, serde_json::from_str(&text).expect("the results are JSON"))
}

#[test]
fn all_kinds_are_measured_and_what_must_hold_is_judged() {
    let out = tempfile::tempdir().expect("a temporary folder can be made");
    let (outcome, results) = bench(&[], out.path());
    let outcome = outcome.must_succeed();
    let records = results["records"].as_array().expect("there are records");
    let ways = |what: &str| -> BTreeSet<&str> {
        let of = records.iter().filter(|record| record["what"] == what);
        of.filter_map(|record| record["way"].as_str()).collect()
    };
    let latency = ["chosen", "direct", "host transfer", "hybrid", "proxy", "proxy, host memory"];
    assert_eq!(ways("latency"), latency.into());
    let stencil = ["by the kernel", "compute alone", "kernel, synchronise, send", "two kernels by turns"];
    assert_eq!(ways("stencil"), stencil.into());
    for (what, count) in
        [("flight", 3), ("queue", 3), ("rate_by_threads", 3), ("verbs_post", 2), ("atomic_cas", 2)]
    {
        assert_eq!(ways(what).len(), count, "{what}: {results:#}");
    }
    assert!(
        outcome.stdout.contains("what must hold") && outcome.stdout.contains("barrier of two"),
        "{outcome}"
    );
    // The software GPU has no counter of energy, which is said.
    assert!(outcome.stdout.contains("not measured, causeway auto: energy"), "{outcome}");
    let picture = std::fs::read_to_string(out.path().join("device-flight.svg")).expect("there is a picture");
    assert!(picture.contains("8 messages in flight"), "{picture}");
}

#[test]
fn a_target_without_common_memory_is_told_and_others_are_measured() {
    let out = tempfile::tempdir().expect("a temporary folder can be made");
    let (outcome, results) = bench(&["--via", "tcp,shm", "--kind", "barrier"], out.path());
    let told = outcome.stderr.contains("don't follow each other's writes in pinned memory");
    assert!(outcome.code() == Some(1) && told, "{outcome}");
    assert_eq!(results["records"].as_array().map(Vec::len), Some(3), "{results:#}");
    assert!(outcome.stdout.contains("causeway shm direct"), "{outcome}");
}
