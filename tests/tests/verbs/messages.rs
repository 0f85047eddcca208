//! GPU messages of MPI programs by RDMA devices, from host to host and within one.
//!
//! The MPI's own messages go over TCP, or by shared memory within the host. It is Open MPI: MPICH waits without
//! letting others have the guest's one processor, and its jobs between hosts hang at their end now and then
//! (docs/src/guides/mpi-containers.md).

use crate::setup::{Far, hosts, runs_all};
use causeway_tests::built::source_tree;
use causeway_tests::mpi::{Mpi, new_nonce};
use causeway_tests::network::{CLIENT, Network, SERVER, Side};
use causeway_tests::process::run;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a job may take: one processor does everything, beside a machine that may be busy.
const LIMIT: Duration = Duration::from_secs(400);

/// A server with a GPU for each rank, on the first host.
fn gpus(hosts: &Network) -> Far {
    let variables = [("CAUSEWAY_SOFTWARE_GPU_DEVICES", "2"), ("CAUSEWAY_VERBS_STAGING", "4M")];
    Far::on(hosts, Side::Client, &[], &variables)
}

/// Has both ranks exchange random messages, which are compared with what the MPI moves by itself, and gives
/// their reports. A process begins on the first host what `command` starts.
fn must_exchange(hosts: &Network, settings: &[(&str, &str)], mut command: Command) -> String {
    let (nonce, rounds) = (new_nonce(), if runs_all() { "40" } else { "4" });
    let seed = format!("0x{}", &nonce[..15]);
    command.arg(Mpi::OpenMpi.folder().join("random_messages")).args([&seed, rounds, "300000"]);
    let mut command = hosts.inside(Side::Client, &command);
    // A rank beside the server reaches it by shared memory.
    command.env("CAUSEWAY_VIA", "auto").env("CAUSEWAY_VERBS_STAGING", "4M");
    command.env("CAUSEWAY_COMM_JOB", &nonce).env("CAUSEWAY_COMM_EXPLAIN", "1");
    let outcome = run(command.envs(settings.iter().copied()), LIMIT).must_succeed();
    let wanted = format!("0 of {rounds} rounds");
    assert!(outcome.stdout.contains(&wanted), "seed {seed}: {outcome}");
    outcome.stderr
}

/// Each of the two ranks has received by this channel, and neither by another one.
#[track_caller]
fn both_received_by(channel: &str, report: &str) {
    for pair in ["rank 0 and 1", "rank 1 and 0"] {
        let is_by = |way: &str| {
            report.lines().any(|line| line.contains(&format!("causeway: {pair}: ")) && line.contains(way))
        };
        assert!(is_by(&format!("bytes received by {channel}: there is no other")), "{pair}: {report}");
    }
    let received = report.matches("bytes received by ").count();
    assert_eq!(received, report.matches(&format!("bytes received by {channel}: ")).count(), "{report}");
}

/// One rank on each host: what starts the second one is told to be its ssh.
fn on_both_hosts(far: &Far, folder: &Path) -> Command {
    let ssh = source_tree().join("tests/verbs/on_host");
    let list = folder.join("hosts");
    fs::write(&list, format!("{CLIENT} slots=1\n{SERVER} slots=1\n")).expect("a list can be written");
    let mut command = Mpi::OpenMpi.command(&far.server, 2, None);
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "plm_rsh_agent"]).arg(ssh);
    command.arg("--hostfile").arg(list);
    command
}

#[test]
fn mpi_ranks_of_two_hosts_exchange_by_rdma() {
    let Some(hosts) = hosts() else { return };
    let (far, folder) = (gpus(&hosts), tempfile::tempdir().expect("a temporary folder can be made"));
    let names = format!("{CLIENT},{SERVER}");
    let alone = [("CAUSEWAY_COMM_HOSTS", names.as_str()), ("CAUSEWAY_COMM_CHANNELS", "rdma")];
    let report = must_exchange(&hosts, &alone, on_both_hosts(&far, folder.path()));
    both_received_by("rdma", &report);
    if runs_all() {
        // Beside TCP it is taken without being named.
        let report = must_exchange(&hosts, &alone[..1], on_both_hosts(&far, folder.path()));
        assert!(report.contains("bytes received by rdma: "), "{report}");
        assert!(!report.contains("bytes received by loopback"), "{report}");
    }
    far.server.must_be_well();
}

#[test]
fn mpi_ranks_of_one_host_exchange_by_loopback() {
    let Some(hosts) = hosts() else { return };
    let far = gpus(&hosts);
    let mut command = Mpi::OpenMpi.command(&far.server, 2, None);
    command.args(["--mca", "pml", "ob1", "--mca", "btl", "vader,self"]);
    let report = must_exchange(&hosts, &[("CAUSEWAY_COMM_CHANNELS", "loopback")], command);
    both_received_by("loopback", &report);
    far.server.must_be_well();
}
