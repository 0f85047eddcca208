//! Messages between GPUs in unmodified MPI programs, under both MPIs, on the software GPU.

use causeway_tests::built::{causeway, client_library_folder, source_tree};
use causeway_tests::mpi::{Mpi, new_nonce};
use causeway_tests::process::run;
use causeway_tests::server::{OPEN, Server, forget_environment};
use std::time::Duration;

#[test]
fn random_messages_are_those_that_the_mpi_moves_between_hosts() {
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
fn containers_that_share_a_folder_have_all_channels_but_one() {
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
    }
}

#[test]
fn transfers_go_on_while_ranks_wait_in_calls_of_the_host() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        mpi.must_play(&server, 2, "while_blocked");
        mpi.must_play(&server, 3, "barrier");
        mpi.must_play(&server, 2, "synchronous");
    }
}

#[test]
fn requests_and_sources_of_all_kinds_mix() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let scenes = [
            (2, "mixed_requests"),
            (4, "any_source"),
            (2, "gaps"),
            (3, "exchange"),
            (2, "persistent"),
            (2, "matched"),
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
fn memory_that_is_open_for_one_gpu_is_opened_for_another() {
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
fn threads_hear_of_errors_of_their_own_requests_alone() {
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
fn a_rank_that_ends_is_an_error_for_those_who_wait_for_it() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let mut command = mpi.command(&server, 2, Some(&new_nonce()));
        let outcome = run(command.arg(mpi.folder().join("scenes")).arg("death"), Duration::from_secs(120));
        // What the launcher makes of it is its own affair.
        assert!(outcome.stdout.contains("death: ok"), "{outcome}");
    }
}

#[test]
fn a_rank_that_ends_in_the_middle_of_a_transfer_is_an_error() {
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
        let said = mpi.must_play(&server, 2, "refused").stderr;
        for call in ["MPI_Put", "MPI_File_read_at_all_begin", "MPI_Pack_external"] {
            assert!(said.contains(&format!("{call}: this call does not take memory on a GPU")), "{said}");
        }
        // Debian's Open MPI is of MPI 3.1, which has no such calls.
        assert!(mpi == Mpi::OpenMpi || said.contains("MPI_Psend_init: this call"), "{said}");
    }
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
    let mut command = std::process::Command::new(causeway());
    let outcome = run(command.args(["mpirun", "--", "ls"]), Duration::from_secs(60));
    assert!(outcome.code() == Some(125) && outcome.stderr.contains("ls says neither"), "{outcome}");
}

#[test]
fn a_setting_that_makes_no_sense_ends_the_job_and_is_named() {
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
    assert!(kept.starts_with("causeway comm profile 1\n") && kept.contains("\tlatency\t"), "{kept}");
    std::fs::write(&profile, "something else\n").expect("the profile can be written");
    let said = Mpi::OpenMpi.must_exchange(&server, 2, 40, &settings, &[]);
    assert!(said.contains("comm-profile is not used: line 1 makes no sense"), "{said}");
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
