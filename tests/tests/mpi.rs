//! Messages between GPUs in unmodified MPI programs, under both MPIs, on the software GPU.

use causeway_tests::built::{causeway, client_library_folder, source_tree};
use causeway_tests::mpi::{Mpi, new_nonce};
use causeway_tests::process::run;
use causeway_tests::server::{OPEN, Server, forget_environment};
use std::time::Duration;

#[test]
fn random_messages_match_host_memory() {
    let server = Server::start();
    // Not under MPICH, whose ranks sometimes hang in Finalize (docs/src/guides/mpi-containers.md).
    for ranks in [2, 4] {
        let report = Mpi::OpenMpi.must_exchange(&server, ranks, 4, &[], &[]);
        assert!(report.contains("received by vmm"), "{report}");
    }
    server.must_be_well();
}

/// Minutes long: `cargo test -p causeway-tests --test mpi -- --ignored`. Waits park: there are fewer cores.
#[test]
#[ignore = "minutes long"]
fn sixteen_ranks_exchange_by_every_channel_under_both_mpis() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        for channel in ["staged", "vmm", "ipc"] {
            let report = mpi.must_exchange(&server, 16, 3, &[("CAUSEWAY_COMM_CHANNELS", channel)], &[]);
            assert!(report.contains(&format!("received by {channel}: there is no other")), "{report}");
        }
    }
    server.must_be_well();
}

#[test]
fn every_channel_moves_every_kind_of_memory() {
    let server = Server::start();
    for channel in ["staged", "vmm", "ipc"] {
        // One message in fourteen is long enough and of memory that `ipc` takes: three rounds may have none.
        let report = Mpi::OpenMpi.must_exchange(&server, 2, 20, &[("CAUSEWAY_COMM_CHANNELS", channel)], &[]);
        assert!(report.contains(&format!("received by {channel}: there is no other")), "{report}");
        for other in ["staged", "vmm", "ipc"].iter().filter(|other| **other != channel) {
            assert!(!report.contains(&format!("received by {other}")), "{report}");
        }
    }
}

#[test]
fn traffic_is_what_the_senders_calls_say() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let mut command = mpi.command(&server, 2, Some(&new_nonce()));
        command.env("CAUSEWAY_COMM_EXPLAIN", "1").env("CAUSEWAY_COMM_TRACE", "5");
        let outcome = run(command.arg(mpi.folder().join("scenes")).arg("traffic"), Duration::from_secs(120));
        let received = |rank: u32, traffic: &str| {
            let (one, other) = (format!("rank {rank} and "), format!("bound by {traffic})"));
            let lines = outcome.stderr.lines().filter(|line| line.contains(&one) && line.contains(&other));
            let count = |line: &str| line.split(": ").nth(2)?.split(' ').next()?.parse::<u64>().ok();
            lines.filter_map(count).sum::<u64>()
        };
        let counts = [0, 1].map(|rank| ["latency", "bandwidth"].map(|traffic| received(rank, traffic)));
        // The fifth MPI_Isend says so, whatever its receiver does; MPI_Send never does.
        assert_eq!(counts, [[20, 0], [4, 16]], "{outcome}");
    }
    server.must_be_well();
}

/// A driver whose memory the processor reaches through a BAR, with the kernel module that maps it.
fn gpu_with_a_bar(folder: &std::path::Path) -> std::path::PathBuf {
    let library = folder.join("libcuda.so.1");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).arg(&library);
    compiler.arg(source_tree().join("crates/comm/tests/channels/fake_gpu.c")).args(["-ldl", "-lpthread"]);
    run(&mut compiler, Duration::from_secs(60)).must_succeed();
    library
}

#[test]
fn short_messages_through_the_bar_make_no_copy_of_the_gpus_engines() {
    const ROUNDS: u64 = 1000;
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a temporary folder can be made"));
    let library = gpu_with_a_bar(folder.path());
    for mpi in Mpi::ALL {
        let mut command = mpi.command_of_ours(&server, 2, &[]);
        // A copy takes longer than the processor, as on a GPU, however busy the machine is.
        command
            .env("FAKE_GPU_GDRDRV", "1")
            .env("FAKE_GPU_COPY_US", "20000")
            .env("CAUSEWAY_COMM_EXPLAIN", "1");
        // The MPIs would write code of theirs over the mmap that stands for the kernel module's.
        command.env("OMPI_MCA_memory", "^patcher").env("UCX_MEM_EVENTS", "n").env("LD_PRELOAD", &library);
        command.arg(mpi.folder().join("short_messages")).arg(ROUNDS.to_string());
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        assert_eq!(outcome.stdout.matches("short_messages: ok").count(), 2, "{outcome}");
        let number = |text: &str| text.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let copies: u64 =
            outcome.stderr.lines().filter_map(|line| number(line.split_once("copies: ")?.1)).sum();
        let reported = |path: &str| -> u64 {
            let lines = outcome.stderr.lines().filter(|line| line.contains(path));
            lines.filter_map(|line| number(line.split(": ").nth(2)?)).sum()
        };
        let read = reported("sent with the MPI: short, and read through the GPU's BAR");
        let written = reported("received by bar");
        // The report is what happened: the engines have copied the others, at each end.
        assert_eq!(
            copies,
            2 * ROUNDS - read + (2 * ROUNDS - written),
            "{read} read, {written} written: {outcome}"
        );
        assert!(copies * 100 <= 2 * ROUNDS, "{copies} copies: {outcome}");
    }
}

#[test]
fn ranks_that_enter_other_containers_twice_lose_nothing() {
    let namespaces = ["--uts", "--ipc", "true"];
    let tried = std::process::Command::new("unshare").args(namespaces).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("not tested: this needs root, and unshare with namespaces");
        return;
    }
    let server = Server::start();
    let report = Mpi::OpenMpi.must_exchange(&server, 3, 16, &[("RANDOM_MESSAGES_MOVE", "1")], &[]);
    assert!(!report.contains("unshare: "), "{report}");
    // Each of the three finds both others anew.
    assert_eq!(report.matches("the peer is in another container of this host").count(), 6, "{report}");
    assert!(report.contains("received by vmm"), "{report}");
    server.must_be_well();
}

#[test]
fn ranks_that_share_nothing_of_a_host_have_tcp() {
    let server = Server::start();
    let settings = [("CAUSEWAY_COMM_CHANNELS", "tcp"), ("CAUSEWAY_COMM_HOSTS", "localhost")];
    let report = Mpi::OpenMpi.must_exchange(&server, 2, 20, &settings, &[]);
    assert!(report.contains("received by tcp: there is no other"), "{report}");
    // With nearer channels it is not taken, and without hosts it is not there.
    let hosts = [("CAUSEWAY_COMM_HOSTS", "localhost")];
    let report = Mpi::OpenMpi.must_exchange(&server, 2, 4, &hosts, &[]);
    assert!(!report.contains("tcp") && report.contains("received by vmm"), "{report}");
    let report = Mpi::OpenMpi.must_exchange(&server, 2, 4, &[("CAUSEWAY_COMM_CHANNELS", "tcp")], &[]);
    assert!(!report.contains("received by"), "{report}");
    server.must_be_well();
}

/// What makes a container of its own around a rank: namespaces, and a `/dev/shm`.
const CONTAINER: [&str; 12] = [
    "unshare",
    "--ipc",
    "--pid",
    "--uts",
    "--mount",
    "--mount-proc",
    "--fork",
    "--kill-child",
    "sh",
    "-c",
    "mount -t tmpfs tmpfs /dev/shm && exec \"$@\"",
    "sh",
];

#[test]
fn containers_with_a_shared_folder_have_all_channels_but_one() {
    let tried = std::process::Command::new("unshare").args(&CONTAINER[1..7]).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        eprintln!("not tested: this needs root, and unshare with namespaces of its own");
        return;
    }
    let (server, folder) = (Server::start(), tempfile::tempdir().expect("a temporary folder can be made"));
    let folder = folder.path().to_str().expect("temporary folders have ordinary names");
    // Not under MPICH, whose ranks sometimes hang in Finalize over its network
    // (docs/src/guides/mpi-containers.md).
    for (allowed, found) in [("ipc,vmm", "vmm"), ("staged", "staged")] {
        let settings = [
            ("OMPI_MCA_btl", "tcp,self"),
            ("CAUSEWAY_SOCKET_DIR", folder),
            ("CAUSEWAY_COMM_CHANNELS", allowed),
        ];
        let report = Mpi::OpenMpi.must_exchange(&server, 2, 2, &settings, &CONTAINER);
        assert!(report.contains(&format!("received by {found}: there is no other")), "{report}");
    }
    // Our launcher says itself what the MPI has to be told: memory that ranks share in the folder, and no network.
    for (ranks, words) in
        [(2, ["scenes", "exchange"].as_slice()), (3, &["random_messages", "0x5eed", "2", "3000000"])]
    {
        let mut command = Mpi::OpenMpi.command_of_ours(&server, ranks, &["--isolated"]);
        command.envs([("CAUSEWAY_SOCKET_DIR", folder), ("OMPI_MCA_btl", "vader,self")]).args(CONTAINER);
        command.arg(Mpi::OpenMpi.folder().join(words[0])).args(&words[1..]);
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        let is_well = outcome.stdout.contains("0 of 2 rounds");
        assert!(is_well || outcome.stdout.matches("exchange: ok").count() == 2, "{outcome}");
    }
    // Without a folder, the network.
    let mut command = Mpi::OpenMpi.command_of_ours(&server, 2, &["--isolated"]);
    command.env_remove("CAUSEWAY_SOCKET_DIR").args(CONTAINER);
    command.arg(Mpi::OpenMpi.folder().join("scenes")).arg("exchange");
    let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
    assert_eq!(outcome.stdout.matches("exchange: ok").count(), 2, "{outcome}");
    let left: Vec<_> = std::fs::read_dir(folder).expect("the folder is there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_interposer_for_another_mpi_is_refused() {
    for (built_for, launcher) in [(Mpi::OpenMpi, Mpi::Mpich), (Mpi::Mpich, Mpi::OpenMpi)] {
        let mut command = std::process::Command::new(causeway());
        command.args(["mpirun", "--library"]).arg(built_for.interposer());
        command.args(["--", &format!("mpirun.{}", launcher.name()), "-n", "1", "true"]);
        let outcome = run(&mut command, Duration::from_secs(60));
        assert_eq!(outcome.status.code(), Some(125), "{outcome}");
        assert!(outcome.stderr.contains("was built for"), "{outcome}");
    }
}

#[test]
fn another_version_of_the_library_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (source, library) = (folder.path().join("other.c"), folder.path().join("other.so"));
    std::fs::write(&source, "unsigned causeway_comm_version(void) { return 99; }")
        .expect("it can be written");
    let mut compiler = std::process::Command::new("cc");
    run(compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]), Duration::from_secs(60))
        .must_succeed();
    let start = |first: &str| {
        let mut command = std::process::Command::new("true");
        let libraries = causeway().parent().expect("the program is in a folder");
        command.env("LD_PRELOAD", format!("{first} {}", Mpi::OpenMpi.interposer().display()));
        run(command.env("LD_LIBRARY_PATH", libraries), Duration::from_secs(60))
    };
    start("").must_succeed();
    let outcome = start(&library.display().to_string());
    assert!(outcome.code() == Some(125) && outcome.stderr.contains("but found version 99"), "{outcome}");
}

#[test]
fn without_a_job_bytes_go_with_the_mpi() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let mut command = mpi.command(&server, 2, None);
        command.env("CAUSEWAY_COMM_EXPLAIN", "1").arg(mpi.folder().join("random_messages"));
        let outcome = run(command.args(["3", "2", "300000"]), Duration::from_secs(120)).must_succeed();
        assert!(
            outcome.stdout.contains("0 of 2 rounds") && !outcome.stderr.contains("received by"),
            "{outcome}"
        );
        let mut command = mpi.command(&server, 2, None);
        command.arg(mpi.folder().join("scenes")).arg("structures");
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        assert_eq!(outcome.stdout.matches("structures: ok").count(), 2, "{outcome}");
    }
}

#[test]
fn transfers_progress_while_ranks_block_in_host_calls() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        mpi.must_play(&server, 2, "while_blocked");
        mpi.must_play(&server, 3, "barrier");
        mpi.must_play(&server, 2, "synchronous");
    }
}

#[test]
fn transfers_progress_while_processes_connect_and_start() {
    let server = Server::start();
    // Debian's MPICH has neither ports nor processes that ranks start: "not supported with ucx netmod".
    Mpi::OpenMpi.must_play(&server, 2, "connection");
    let said = Mpi::OpenMpi.must_play(&server, 2, "spawned");
    assert_eq!(said.stdout.matches("child: ok").count(), 1, "{said}");
    server.must_be_well();
}

#[test]
fn requests_and_sources_of_all_kinds_mix() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let scenes = [
            (2, "mixed_requests"),
            (4, "any_source"),
            (4, "any_probe"),
            (2, "gaps"),
            (2, "structures"),
            (2, "pieces"),
            (2, "both_kinds"),
            (3, "exchange"),
            (2, "default_stream"),
            (2, "persistent"),
            (2, "many_persistent"),
            (2, "matched"),
            (2, "handles"),
            (4, "descriptors"),
            // Debian's Open MPI is of MPI 3.1, which has no partitioned messages.
            (2, "partitioned"),
            (2, "external"),
            (2, "persistent_collectives"),
            (2, "buffered"),
        ];
        for (ranks, scene) in scenes {
            mpi.must_play(&server, ranks, scene);
        }
    }
}

#[test]
fn memory_that_is_used_again_stays_open() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        for (scene, rounds) in [("windows", "6"), ("turns", "60"), ("crossed", "60"), ("late", "24")] {
            let mut command = mpi.command(&server, 2, Some(&new_nonce()));
            command.env("CAUSEWAY_COMM_EXPLAIN", "1").arg(mpi.folder().join("reuse"));
            let outcome = run(command.args([scene, rounds]), Duration::from_secs(120)).must_succeed();
            let well = outcome.stdout.matches(&format!("{scene}: ok")).count();
            assert_eq!(well, 2, "{outcome}");
            // After some by way of the host, short ones are fetched, too: all of the turns' are short.
            let is_fetched =
                outcome.stderr.contains("received by ipc") || outcome.stderr.contains("received by vmm");
            assert!(is_fetched || scene != "turns", "{outcome}");
        }
    }
    // A threshold that is set holds for all.
    let mut command = Mpi::OpenMpi.command(&server, 2, Some(&new_nonce()));
    command.envs([("CAUSEWAY_COMM_EXPLAIN", "1"), ("CAUSEWAY_COMM_THRESHOLD", "4K")]);
    command.arg(Mpi::OpenMpi.folder().join("reuse")).args(["turns", "60"]);
    let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
    assert!(!outcome.stderr.contains("received by"), "{outcome}");
    server.must_be_well();
}

#[test]
fn memory_mapped_for_one_gpu_is_mapped_for_another() {
    let mut command = Server::command(&OPEN);
    command.env("CAUSEWAY_SOFTWARE_GPU_DEVICES", "2");
    let server = Server::start_command(command);
    for mpi in Mpi::ALL {
        let mut command = mpi.command(&server, 2, Some(&new_nonce()));
        command.envs([("CAUSEWAY_COMM_EXPLAIN", "1"), ("CAUSEWAY_COMM_CHANNELS", "vmm")]);
        command.arg(mpi.folder().join("reuse")).args(["devices", "40"]);
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        assert_eq!(outcome.stdout.matches("devices: ok").count(), 2, "{outcome}");
        assert!(outcome.stderr.contains("received by vmm"), "{outcome}");
    }
    server.must_be_well();
}

#[test]
fn ranks_have_the_gpus_of_two_servers() {
    let mut command = Server::command(&OPEN);
    command.env("CAUSEWAY_SOFTWARE_GPU_DEVICES", "2");
    let (first, second) = (Server::start(), Server::start_command(command));
    let both = format!("{},{}", first.connect_string(), second.connect_string());
    // The second server's second device: its first one has the UUID of the first server's.
    let settings = [("CAUSEWAY_ON", both.as_str()), ("CUDA_VISIBLE_DEVICES", "0,2")];
    for channel in ["vmm", "ipc", "staged"] {
        let settings = [&settings[..], &[("CAUSEWAY_COMM_CHANNELS", channel)]].concat();
        let report = Mpi::OpenMpi.must_exchange(&first, 2, 20, &settings, &[]);
        assert!(report.contains(&format!("received by {channel}: there is no other")), "{report}");
    }
    for threshold in ["1", "1G"] {
        let nonce = new_nonce();
        let mut command = Mpi::OpenMpi.command(&first, 2, Some(&nonce));
        command.envs(settings).env("CAUSEWAY_COMM_COLLECTIVE_THRESHOLD", threshold);
        let seed = format!("0x{}", &nonce[..15]);
        command.arg(Mpi::OpenMpi.folder().join("collectives")).args([&seed, "60", "3000"]);
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        assert!(outcome.stdout.contains("0 of "), "seed {seed}: {outcome}");
    }
    for server in [first, second] {
        server.must_be_well();
    }
}

#[test]
fn threads_send_and_receive_at_once() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let mut command = mpi.command(&server, 2, Some(&new_nonce()));
        command.arg(mpi.folder().join("threads")).arg("30");
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        assert!(outcome.stdout.contains("0 messages of threads are wrong"), "{outcome}");
    }
}

#[test]
fn threads_get_errors_of_their_own_requests() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let nonce = new_nonce();
        let seed = format!("0x{}", &nonce[..15]);
        let mut command = mpi.command(&server, 2, Some(&nonce));
        command.arg(mpi.folder().join("thread_errors")).args([&seed, "40"]);
        let outcome = run(&mut command, Duration::from_secs(120));
        assert!(outcome.stdout.contains("0 errors are another's"), "seed {seed}: {outcome}");
        outcome.must_succeed();
    }
    server.must_be_well();
}

#[test]
fn rank_exit_is_an_error_at_waiting_ranks() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let mut command = mpi.command(&server, 2, Some(&new_nonce()));
        let outcome = run(command.arg(mpi.folder().join("scenes")).arg("death"), Duration::from_secs(120));
        // What the launcher makes of it is its own affair.
        assert!(outcome.stdout.contains("death: ok"), "{outcome}");
    }
}

#[test]
fn what_has_failed_is_forgiven() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        mpi.must_play(&server, 2, "recovery");
    }
}

#[test]
fn rank_exit_during_a_transfer_is_an_error() {
    let server = Server::start();
    for channel in ["tcp", "staged"] {
        let mut command = Mpi::OpenMpi.command(&server, 2, Some(&new_nonce()));
        command.env("CAUSEWAY_COMM_CHANNELS", channel).env("CAUSEWAY_COMM_HOSTS", "localhost");
        command.arg(Mpi::OpenMpi.folder().join("scenes")).arg("death_in_transfer");
        let outcome = run(&mut command, Duration::from_secs(120));
        // What the launcher makes of it is its own affair.
        assert!(outcome.stdout.contains("death_in_transfer: ok"), "{channel}: {outcome}");
    }
}

#[test]
fn errors_are_those_of_the_standard() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        mpi.must_play(&server, 2, "errors");
        mpi.must_play(&server, 2, "arguments");
        mpi.must_play(&server, 3, "files");
        let said = mpi.must_play(&server, 2, "refused").stderr;
        assert!(
            said.contains("MPI_Win_create: a rank has memory on a GPU that another one cannot map"),
            "{said}"
        );
        assert!(said.contains("MPI_Win_attach: other ranks of the window cannot map this memory"), "{said}");
    }
    server.must_be_well();
}

#[test]
#[ignore = "takes 9 GiB of memory"]
fn more_bytes_than_an_int_counts_arrive() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        mpi.must_play(&server, 1, "large");
    }
}

#[test]
fn programs_of_sessions_alone_have_all_calls() {
    let server = Server::start();
    // Debian's Open MPI has none.
    let mut command = Mpi::Mpich.command(&server, 2, Some(&new_nonce()));
    command.arg(Mpi::Mpich.folder().join("sessions"));
    let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
    assert_eq!(outcome.stdout.matches("sessions: ok").count(), 2, "{outcome}");
    server.must_be_well();
}

#[test]
fn our_launcher_hands_over_what_ranks_need() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let mut command = mpi.command_of_ours(&server, 2, &[]);
        command.env("CAUSEWAY_COMM_EXPLAIN", "1").arg(mpi.folder().join("scenes")).arg("exchange");
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        assert!(outcome.stderr.contains("received by vmm"), "{outcome}");
    }
    // Two programs of one job.
    let mut command = Mpi::OpenMpi.command_of_ours(&server, 1, &[]);
    let program = Mpi::OpenMpi.folder().join("scenes");
    command.arg(&program).args(["exchange", ":", "-n", "1"]).arg(&program).arg("exchange");
    let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
    assert_eq!(outcome.stdout.matches("exchange: ok").count(), 2, "{outcome}");
    let mut command = std::process::Command::new(causeway());
    let outcome = run(command.args(["mpirun", "--", "ls"]), Duration::from_secs(60));
    assert!(
        outcome.code() == Some(125) && outcome.stderr.contains("ls is not a supported MPI launcher"),
        "{outcome}"
    );
}

#[test]
fn our_launcher_says_of_its_container_what_counts_in_that_alone() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let mut command = mpi.command_of_ours(&server, 2, &[]);
        let outcome = run(command.args(["printenv", "CAUSEWAY_COMM_CONTAINER"]), Duration::from_secs(60));
        let tuples: Vec<_> = outcome.stdout.lines().filter(|line| line.starts_with('[')).collect();
        let [one, other] = tuples[..] else { panic!("{outcome}") };
        let scope = one.rsplit_once("]@").map(|(_, scope)| scope);
        assert!(one == other && scope.is_some_and(|scope| scope.len() == 16), "{outcome}");
    }
    let locality = |container: &[&str]| {
        let mut command = Mpi::OpenMpi.command_of_ours(&server, 2, &[]);
        command.env("CAUSEWAY_COMM_EXPLAIN", "1").args(container);
        command.arg(Mpi::OpenMpi.folder().join("scenes")).arg("exchange");
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        let line = outcome.stderr.lines().find_map(|line| line.split_once("the peer is "));
        line.map(|(_, locality)| locality.split(',').next().unwrap_or_default().to_owned())
            .unwrap_or_default()
    };
    assert_eq!(locality(&[]), "in the same container");
    // Containers that inherit the variable, and were not made by the launcher.
    let tried = std::process::Command::new("unshare").args(["--uts", "true"]).output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        assert_eq!(locality(&["unshare", "--uts"]), "in another container of this host");
    }
    server.must_be_well();
}

#[test]
fn invalid_setting_ends_the_job_with_its_name() {
    let server = Server::start();
    for (name, value) in [("CAUSEWAY_COMM_CHANNELS", "gdr"), ("CAUSEWAY_COMM_JOB", "secret")] {
        let mut command = Mpi::Mpich.command(&server, 2, Some(&new_nonce()));
        command.env(name, value).arg(Mpi::Mpich.folder().join("scenes")).arg("exchange");
        let outcome = run(&mut command, Duration::from_secs(120));
        let said = outcome.stdout.clone() + &outcome.stderr;
        assert!(outcome.code() != Some(0) && said.contains(name), "{outcome}");
    }
}

#[test]
fn what_channels_cost_is_kept_for_later_jobs() {
    let (server, caches) = (Server::start(), tempfile::tempdir().expect("a temporary folder can be made"));
    let folder = caches.path().to_str().expect("temporary folders have ordinary names");
    let settings = [("CAUSEWAY_CACHE_DIR", folder)];
    let profile = caches.path().join("comm-profile");
    let said = Mpi::OpenMpi.must_exchange(&server, 2, 40, &settings, &[]);
    assert!(said.contains("to find out what it costs"), "{said}");
    let kept = std::fs::read_to_string(&profile).expect("a profile is written");
    let is_known = ["\tlatency\t", "\tbandwidth\t"].iter().any(|traffic| kept.contains(traffic));
    assert!(kept.starts_with("causeway comm profile 1\n") && is_known, "{kept}");
    std::fs::write(&profile, "something else\n").expect("the profile can be written");
    let said = Mpi::OpenMpi.must_exchange(&server, 2, 40, &settings, &[]);
    assert!(said.contains("comm-profile is not used: line 1 is invalid"), "{said}");
    let kept = std::fs::read_to_string(&profile).expect("a profile is written anew");
    assert!(kept.starts_with("causeway comm profile 1\n"), "{kept}");
}

#[test]
fn programs_in_python_need_no_mpi() {
    let server = Server::start();
    let mut command = std::process::Command::new("python3");
    forget_environment(&mut command);
    let libraries = causeway().parent().expect("the program is in a folder");
    let search = std::env::join_paths([client_library_folder(), libraries]).expect("no colons");
    command.env("LD_LIBRARY_PATH", search).env("CAUSEWAY_ON", server.connect_string());
    command.env("CAUSEWAY_CACHE_DIR", "").arg("-B").arg(source_tree().join("tests/mpi/python_ranks.py"));
    let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
    // Python has the client library for itself. What only NVIDIA's driver has is not asked of it.
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("ok\n", ""), "{outcome}");
    server.must_be_well();
}
