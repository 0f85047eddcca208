//! Collective calls on memory of GPUs in unmodified MPI programs, under both MPIs, on the software GPU.

use causeway_tests::mpi::{Mpi, new_nonce};
use causeway_tests::process::run;
use causeway_tests::server::Server;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The most elements that a call has for each rank.
const MAX_SECONDS: &str = "3000";

/// From how many bytes on calls go from GPU to GPU: all that can, or none of those that the tests make.
#[derive(Debug, Clone, Copy)]
enum Way {
    Direct,
    Staged,
}

/// The MPIs that play with so many ranks: of many, which take long on few cores, one for each number.
fn players(ranks: usize) -> &'static [Mpi] {
    const BOTH: [Mpi; 2] = Mpi::ALL;
    if ranks < 5 { &BOTH } else { &BOTH[ranks % 2..][..1] }
}

/// Every so many of all combinations of a reduction, a type and an operation are tried. Gives what the ranks
/// report of the ways that messages took.
fn must_agree(server: &Server, mpi: Mpi, ranks: usize, stride: usize, way: Way) -> String {
    must_agree_with(server, mpi, ranks, stride, way, &[])
}

fn must_agree_with(
    server: &Server,
    mpi: Mpi,
    ranks: usize,
    stride: usize,
    way: Way,
    settings: &[(&str, &str)],
) -> String {
    let nonce = new_nonce();
    let mut command = mpi.command(server, ranks, Some(&nonce));
    command.envs(settings.iter().copied());
    let seed = format!("0x{}", &nonce[..15]);
    let threshold = if matches!(way, Way::Direct) { "1" } else { "1G" };
    command.env("CAUSEWAY_COMM_COLLECTIVE_THRESHOLD", threshold).env("CAUSEWAY_COMM_EXPLAIN", "1");
    command.arg(mpi.folder().join("collectives")).args([&seed, &stride.to_string(), MAX_SECONDS]);
    let outcome = run(&mut command, Duration::from_secs(300)).must_succeed();
    assert!(
        outcome.stdout.contains("\n0 of ") || outcome.stdout.starts_with("0 of "),
        "seed {seed}: {outcome}"
    );
    outcome.stderr
}

#[test]
fn collective_calls_match_host_memory() {
    let server = Server::start();
    for (ranks, stride) in [(2, 4), (3, 12), (4, 16), (5, 24), (8, 48)] {
        for &mpi in players(ranks) {
            let report = must_agree(&server, mpi, ranks, stride, Way::Staged);
            assert!(!report.contains("received by"), "{report}");
        }
    }
    server.must_be_well();
}

#[test]
fn calls_that_go_from_gpu_to_gpu_do_the_same() {
    let server = Server::start();
    for (ranks, stride) in [(2, 4), (3, 12), (4, 16), (5, 24), (8, 48), (10, 60)] {
        for &mpi in players(ranks) {
            let report = must_agree(&server, mpi, ranks, stride, Way::Direct);
            assert!(report.contains("received by"), "{report}");
            assert!(report.contains("by a kernel where they lie"), "{report}");
        }
    }
    server.must_be_well();
}

#[test]
fn unmappable_memory_makes_all_ranks_fetch() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let nonce = new_nonce();
        let seed = format!("0x{}", &nonce[..15]);
        let program = mpi.folder().join("collectives");
        let mut command = mpi.command(&server, 2, Some(&nonce));
        command.env("CAUSEWAY_COMM_COLLECTIVE_THRESHOLD", "1").env("CAUSEWAY_COMM_EXPLAIN", "1");
        command.arg(&program).args([&seed, "12", MAX_SECONDS]);
        // A third rank, which opens memory that can be exported, and no other.
        command.args([":", "-n", "1", "env", "CAUSEWAY_COMM_CHANNELS=vmm,staged"]);
        command.arg(format!("LD_PRELOAD={}", mpi.interposer().display()));
        command.arg(&program).args([&seed, "12", MAX_SECONDS]);
        let outcome = run(&mut command, Duration::from_secs(300)).must_succeed();
        assert!(
            outcome.stdout.contains("\n0 of ") || outcome.stdout.starts_with("0 of "),
            "seed {seed}: {outcome}"
        );
        assert!(outcome.stderr.contains("received by"), "{outcome}");
    }
    // Memory that no allowed channel takes, such as that of pools, goes by way of the host at all ranks.
    let settings = [("CAUSEWAY_COMM_CHANNELS", "ipc")];
    let report = must_agree_with(&server, Mpi::OpenMpi, 3, 12, Way::Direct, &settings);
    assert!(report.contains("by a kernel where they lie") && report.contains("staged through"), "{report}");
    server.must_be_well();
}

/// The lines of a rank's report that count collective calls.
fn lines_of_calls(report: &str, rank: usize) -> Vec<&str> {
    let begin = format!("causeway: rank {rank}: ");
    let lines = report.lines().filter_map(|line| line.strip_prefix(&begin));
    lines.filter(|line| line.contains(" calls of ")).collect()
}

#[test]
fn report_names_the_algorithm_of_each_call() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        // Two ranks of one host, and the same with another one alone on its own.
        for hosts in [&[1, 1][..], &[1, 1, 2]] {
            let settings = [("CAUSEWAY_COMM_EXPLAIN", "1"), ("CAUSEWAY_COMM_COLLECTIVE_THRESHOLD", "1000")];
            let seed = u64::from_str_radix(&new_nonce()[..4], 16).expect("a nonce has hexadecimal digits");
            let count = 4000 + seed % 1000;
            let arguments = [count.to_string()];
            let arguments = arguments.each_ref().map(String::as_str);
            let mut command = mpi.command_on_hosts(&server, hosts, &settings, "call_report", &arguments);
            let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
            let (bytes, one_host) = (4 * count, hosts.len() == 2);
            let of_hosts = |direct: &str, between: &str| if one_host { direct } else { between }.to_owned();
            let leads = "in two levels between 2 hosts, as this one's leader, by the MPI between leaders";
            let short = "staged through host memory: it is shorter than CAUSEWAY_COMM_COLLECTIVE_THRESHOLD";
            let short_between = "staged through host memory: between 2 hosts, it is shorter than 16 times \
                                 CAUSEWAY_COMM_COLLECTIVE_THRESHOLD";
            let later = "staged through host memory: non-blocking and persistent calls are always staged";
            let alone = "staged through host memory: the ranks are on 2 hosts, and are alone there or have no \
                         two levels for this call";
            let in_host = of_hosts(
                "staged through host memory: a rank has memory in the host's, or with gaps, or does not reach \
                 the others",
                "staged through host memory: between 2 hosts, a rank that shares its host has memory in the \
                 host's, or with gaps",
            );
            let direct = "from GPU to GPU";
            // The same call, whole and as a quarter of it, and then as other forms and from other memory.
            let quarter = of_hosts(direct, short_between);
            let wanted = [
                format!("1 calls of MPI_Allreduce, 8 bytes, {short}"),
                format!("1 calls of MPI_Allreduce, {} bytes, {}", 2 * bytes, in_host),
                format!("3 calls of MPI_Allreduce, {} bytes, {}", 6 * bytes, of_hosts(direct, leads)),
                format!("1 calls of MPI_Allreduce, {} bytes, {quarter}", 2 * (count / 4) * 4),
                format!("2 calls of MPI_Allreduce, {} bytes, {later}", 4 * bytes),
                format!(
                    "1 calls of MPI_Alltoall, {} bytes, {}",
                    2 * bytes * hosts.len() as u64,
                    of_hosts(direct, alone)
                ),
            ];
            let mut found = lines_of_calls(&outcome.stderr, 0);
            found.sort_unstable();
            // The two ways of one host are one line.
            let mut wanted: Vec<_> = if one_host {
                let sum = 6 * bytes + 2 * (count / 4) * 4;
                let whole = format!("4 calls of MPI_Allreduce, {sum} bytes, {direct}");
                [&wanted[..2], &[whole], &wanted[4..]].concat()
            } else {
                wanted.to_vec()
            };
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{count} elements, {hosts:?}: {outcome}");
        }
    }
    server.must_be_well();
}

/// Ranks of several hosts, in turns and side by side, alone and with others.
#[test]
fn leaders_speak_for_the_ranks_of_their_hosts() {
    let server = Server::start();
    let hosts: [&[u8]; 6] = [
        &[1, 1, 2, 2],
        &[1, 2, 1, 2, 3],
        &[1, 2, 2, 2],
        &[1, 2, 3, 3, 2, 1],
        &[1, 2, 1],
        &[1, 1, 2, 3, 3, 2, 1, 1],
    ];
    // Each MPI has each of them, now or in another run.
    let first = usize::from(new_nonce().ends_with(['0', '2', '4', '6', '8', 'a', 'c', 'e']));
    for (at, hosts) in hosts.into_iter().enumerate() {
        let mpi = Mpi::ALL[(at + first) % 2];
        let seed = format!("0x{}", &new_nonce()[..15]);
        // In one of them ranks fetch, since they open no memory.
        let channels = if at == 3 { "staged" } else { "ipc,vmm,staged" };
        let settings = [
            ("CAUSEWAY_COMM_COLLECTIVE_THRESHOLD", "1"),
            ("CAUSEWAY_COMM_EXPLAIN", "1"),
            ("CAUSEWAY_COMM_CHANNELS", channels),
        ];
        // Some of them are longer than a piece.
        let arguments = [&seed, "0", "200000", "60"];
        let mut command = mpi.command_on_hosts(&server, hosts, &settings, "collectives", &arguments);
        let outcome = run(&mut command, Duration::from_secs(300)).must_succeed();
        assert!(
            outcome.stdout.lines().any(|line| line == "0 of 61 calls are wrong"),
            "seed {seed}, {hosts:?}: {outcome}"
        );
        let count = hosts.iter().max().expect("there are hosts");
        let led = format!("in two levels between {count} hosts, as this one's leader, by the MPI");
        assert!(outcome.stderr.contains(&led), "seed {seed}, {hosts:?}: {outcome}");
    }
    server.must_be_well();
}

#[test]
fn strided_datatypes_match_host_memory() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        for ranks in [2, 3] {
            let nonce = new_nonce();
            let mut command = mpi.command(&server, ranks, Some(&nonce));
            let seed = format!("0x{}", &nonce[..15]);
            command.arg(mpi.folder().join("datatypes")).args([&seed, "100"]);
            // A test that fails prints it.
            println!("{} {ranks} ranks, seed {seed}", mpi.name());
            let outcome = run(&mut command, Duration::from_secs(300)).must_succeed();
            assert!(outcome.stdout.contains("0 of 100 rounds"), "seed {seed}: {outcome}");
        }
    }
    server.must_be_well();
}

/// Messages under way while all ranks make another call, and details of the standard.
#[test]
fn messages_conform_to_the_standard() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        for ranks in [2, 3] {
            let nonce = new_nonce();
            let mut command = mpi.command(&server, ranks, Some(&nonce));
            let seed = format!("0x{}", &nonce[..15]);
            command.arg(mpi.folder().join("conformance")).args([&seed, "4"]);
            let outcome = run(&mut command, Duration::from_secs(300)).must_succeed();
            assert!(outcome.stdout.contains("0 ranks found faults"), "seed {seed}: {outcome}");
        }
    }
    server.must_be_well();
}

/// One place to send from and to receive in, and messages that end within an element.
#[test]
fn errors_match_those_of_host_memory() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let nonce = new_nonce();
        let mut command = mpi.command(&server, 3, Some(&nonce));
        let seed = format!("0x{}", &nonce[..15]);
        command.arg(mpi.folder().join("aliased_buffers")).args([&seed, "60"]);
        let outcome = run(&mut command, Duration::from_secs(300)).must_succeed();
        assert!(outcome.stdout.contains("0 ranks found faults"), "seed {seed}: {outcome}");
    }
    server.must_be_well();
}

#[test]
fn fortran_has_the_same_calls() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        for interface in ["mpif", "f08"] {
            let mut command = mpi.command(&server, 3, Some(&new_nonce()));
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            command.arg(mpi.folder().join(format!("fortran_{interface}"))).arg(folder.path().join("file"));
            let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
            assert_eq!(outcome.stdout.matches("fortran: ok").count(), 3, "{interface}: {outcome}");
        }
    }
}

/// What an MPI's Fortran does without the interposer (docs/src/reference/limits/communication.md).
const FORTRAN_ALONE: &str = "\
    mpi_cart_create mpi_cart_sub mpi_dist_graph_create mpi_dist_graph_create_adjacent mpi_graph_create";
/// With Open MPI these, too.
const OPEN_MPI_FORTRAN_ALONE: &str = "\
    mpi_comm_spawn mpi_comm_spawn_multiple mpi_ialltoallw mpi_ineighbor_alltoallw mpi_neighbor_alltoallw \
    mpi_pack_external mpi_unpack_external";

/// The functions that a library exports.
fn functions_of(library: &Path) -> BTreeSet<String> {
    let mut command = Command::new("nm");
    let listed =
        run(command.args(["-D", "--defined-only"]).arg(library), Duration::from_secs(60)).must_succeed();
    listed.stdout.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

#[test]
fn fortran_does_not_go_past_the_interposer() {
    for mpi in Mpi::ALL {
        let mut theirs = BTreeSet::new();
        for interface in ["mpif", "f08"] {
            let program = mpi.folder().join(format!("fortran_{interface}"));
            let needed = run(Command::new("ldd").arg(program), Duration::from_secs(60)).must_succeed();
            let paths = needed.stdout.split_whitespace().filter(|word| word.contains("/libmpi"));
            theirs.extend(paths.flat_map(|path| functions_of(Path::new(path))));
        }
        let ours = functions_of(&mpi.interposer());
        let names = ours.iter().filter(|name| name.starts_with("MPI_"));
        let names: BTreeSet<_> = names.map(|name| name.trim_end_matches("_c").to_lowercase()).collect();
        let (mut past, mut entries) = (BTreeSet::new(), 0);
        for name in &names {
            let symbols = match mpi {
                Mpi::OpenMpi => vec![format!("{name}_"), format!("o{name}_f")],
                // Its other entries call the functions in C.
                Mpi::Mpich => vec![format!("{name}_f08_")],
            };
            for symbol in symbols.iter().filter(|symbol| theirs.contains(*symbol)) {
                entries += 1;
                if !ours.contains(symbol) {
                    past.insert(name.as_str());
                }
            }
        }
        assert!(entries > 40, "{mpi:?} has {entries} entries of Fortran");
        let mut alone: BTreeSet<_> = FORTRAN_ALONE.split_whitespace().collect();
        if mpi == Mpi::OpenMpi {
            alone.extend(OPEN_MPI_FORTRAN_ALONE.split_whitespace());
        }
        assert_eq!(
            past, alone,
            "{mpi:?}: calls that Fortran makes without the interposer, and those that are known"
        );
    }
}

/// Minutes long: `cargo test -p causeway-tests --test mpi_collectives -- --ignored`.
#[test]
#[ignore = "minutes long"]
fn all_combinations_agree_with_up_to_sixteen_ranks() {
    let server = Server::start();
    for ranks in [2, 3, 4, 5, 8, 16] {
        for mpi in Mpi::ALL {
            let stride = if ranks > 8 { 8 } else { 1 };
            must_agree(&server, mpi, ranks, stride, Way::Staged);
            must_agree(&server, mpi, ranks, stride, Way::Direct);
        }
    }
}

#[test]
fn ranks_that_call_differently_are_told() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        mpi.must_play(&server, 3, "lengths");
        for (scene, ranks, well) in [("checked", 2, 2), ("death_in_call", 2, 1)] {
            let mut command = mpi.command(&server, ranks, Some(&new_nonce()));
            command.env("CAUSEWAY_COMM_CHECK", "1").arg(mpi.folder().join("scenes")).arg(scene);
            let outcome = run(&mut command, Duration::from_secs(120));
            // What the launcher makes of ranks that end like this is its own affair.
            assert_eq!(outcome.stdout.matches(&format!("{scene}: ok")).count(), well, "{outcome}");
        }
    }
}

/// Messages are under way while ranks are in collective calls, one-sided ones and those of files, or come late.
#[test]
fn messages_beside_other_calls_have_all_their_bytes() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        for (ranks, rounds, threads, who) in
            [(2, "6", "0", "all"), (3, "4", "0", "all"), (2, "2", "2", "all"), (2, "4", "0", "some")]
        {
            let (nonce, folder) = (new_nonce(), tempfile::tempdir().expect("a temporary folder can be made"));
            let mut command = mpi.command(&server, ranks, Some(&nonce));
            let seed = format!("0x{}", &nonce[..15]);
            command.arg(mpi.folder().join("random_calls")).args([&seed, rounds, threads]);
            command.arg(folder.path()).arg(who);
            let outcome = run(&mut command, Duration::from_secs(300));
            assert!(outcome.stdout.contains("0 things are wrong"), "seed {seed}, {ranks} ranks: {outcome}");
            outcome.must_succeed();
        }
    }
    server.must_be_well();
}

#[test]
fn rank_without_gpu_receives_from_gpu() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        for form in [None, Some("persistent"), Some("probed"), Some("at_once")] {
            let mut command = mpi.command(&server, 2, Some(&new_nonce()));
            command.arg(mpi.folder().join("one_gpu")).args(form);
            let outcome = run(&mut command, Duration::from_secs(120));
            assert!(outcome.stdout.contains("0 messages are wrong"), "{form:?}: {outcome}");
            outcome.must_succeed();
        }
    }
    server.must_be_well();
}

#[test]
fn one_sided_calls_take_buffers_and_windows_on_gpus() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        // With all ways of calls; with three ranks, windows of which one has memory of the host or none, and which are dynamic.
        for (ranks, arguments) in
            [(2, vec![]), (3, vec!["4", "5", "5"]), (3, vec!["4", "6", "6"]), (3, vec!["4", "7", "7"])]
        {
            let mut command = mpi.command(&server, ranks, Some(&new_nonce()));
            let outcome =
                run(command.arg(mpi.folder().join("windows")).args(&arguments), Duration::from_secs(240));
            assert_eq!(
                outcome.stdout.matches(": 0 things are wrong").count(),
                ranks,
                "{arguments:?}: {outcome}"
            );
            outcome.must_succeed();
        }
    }
    server.must_be_well();
}
