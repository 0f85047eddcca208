//! `causeway bench mpi` on the software GPU.

use std::path::Path;
use std::time::Duration;

use causeway_tests::built::causeway;
use causeway_tests::mpi::Mpi;
use causeway_tests::process::run;
use causeway_tests::server::forget_environment;

/// What `causeway bench mpi` has written.
fn bench(words: &[&str], out: &Path) -> serde_json::Value {
    let mut command = std::process::Command::new(causeway());
    forget_environment(&mut command);
    let libraries = causeway().parent().expect("the program is in a folder");
    command.env("LD_LIBRARY_PATH", libraries).env("CAUSEWAY_CACHE_DIR", "");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
        .args(["bench", "mpi", "--iterations", "3", "--window", "2", "--budget", "0.01", "--out"])
        .arg(out)
        .args(words);
    command.arg("--library").arg(Mpi::OpenMpi.interposer());
    command.args(["--", "mpirun.openmpi", "--oversubscribe", "--bind-to", "none"]);
    let outcome = run(&mut command, Duration::from_secs(300)).must_succeed();
    assert!(outcome.stdout.contains("latency in us, memory: gpu"), "{outcome}");
    let text = std::fs::read_to_string(out.join("mpi.json")).expect("the results are written");
    serde_json::from_str(&text).expect("the results are JSON")
}

#[test]
fn messages_are_measured_by_every_channel_and_size() {
    let out = tempfile::tempdir().expect("a temporary folder can be made");
    let channels = ["--runs", "1", "--channel", "auto,ipc,vmm,staged"];
    let words = [&channels[..], &["--memory", "gpu", "--sizes", "8,64K"]].concat();
    let results = bench(&words, out.path());
    let records = results["records"].as_array().expect("there are records");
    // Latency, bandwidth, rate and both directions, and two figures of copies on the GPU.
    assert_eq!(records.len(), (4 + 2) * 2 * 4, "{results:#}");
    for record in records {
        let channel = ["auto", "ipc", "vmm", "staged"][record["target"].as_u64().unwrap_or(9) as usize];
        let ways = record["paths"].as_str().unwrap_or_default();
        let is_copy = record["quantity"].as_str().is_some_and(|quantity| quantity.starts_with("copy"));
        let expected = match record["bytes"].as_u64() {
            _ if is_copy => "copy 100",
            // Which of them is best is to be found out.
            _ if channel == "auto" => ways,
            Some(8) => "mpi 100",
            _ => &format!("{channel} 100"),
        };
        assert_eq!(ways, expected, "{record:#}");
        assert!(channel != "auto" || is_copy || !ways.contains("mpi") || record["bytes"] == 8, "{record:#}");
        assert_eq!(record["samples"].as_array().map(Vec::len), Some(1), "{record:#}");
    }
    let picture = std::fs::read_to_string(out.path().join("mpi-latency.svg")).expect("there is a plot");
    assert!(picture.contains("memory: gpu") && picture.contains("staged"), "{picture}");
}

#[test]
fn collective_calls_are_measured_beside_the_host() {
    let out = tempfile::tempdir().expect("a temporary folder can be made");
    let kinds = "allreduce,bcast,allgather,alltoall,reduce,reduce-scatter,gather,scatter,scan";
    let words = [
        "--runs",
        "1",
        "--channel",
        "auto",
        "--pairs",
        "2",
        "--memory",
        "gpu",
        "--sizes",
        "4,64K",
        "--kind",
        &format!("latency,{kinds}"),
    ];
    let results = bench(&words, out.path());
    let records = results["records"].as_array().expect("there are records");
    for kind in kinds.split(',') {
        for quantity in [kind.to_owned(), format!("{kind}_by_host")] {
            let found = records.iter().filter(|record| record["quantity"] == quantity.as_str()).count();
            assert_eq!(found, 2, "{quantity}: {results:#}");
        }
    }
}

#[test]
fn several_pairs_are_measured_and_the_mpi_by_itself() {
    let out = tempfile::tempdir().expect("a temporary folder can be made");
    let words = [
        "--channel",
        "vmm",
        "--pairs",
        "1,2",
        "--memory",
        "gpu",
        "--sizes",
        "4K",
        "--kind",
        "latency,bandwidth",
    ];
    let results = bench(&words, out.path());
    assert_eq!(results["records"].as_array().map(Vec::len), Some(3 * 2), "{results:#}");
    assert_eq!(results["targets"][1]["name"], "2 pairs vmm");
    // Without the interposer an MPI that knows nothing of GPUs moves memory of the host alone.
    let mut command = std::process::Command::new(causeway());
    forget_environment(&mut command);
    command.args(["bench", "mpi", "--quick", "--native", "--channel", "none", "--memory", "pageable"]);
    command.args(["--sizes", "8", "--kind", "latency", "--runs", "1", "--program"]);
    command.arg(Mpi::Mpich.folder().join("causeway_mpi_bench")).args(["--", "mpirun.mpich"]);
    let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
    assert!(outcome.stdout.contains("latency in us, memory: pageable"), "{outcome}");
}

#[test]
fn invalid_measurements_are_errors() {
    for (words, said) in [
        (&["--library", "/no/such.so"][..], "/no/such.so"),
        (&["--program", "/no/such", "--channel", "none"], "no measuring program at /no/such"),
        (&["--program", "/bin/false", "--channel", "none", "--native"], "the job ended with"),
    ] {
        let mut command = std::process::Command::new(causeway());
        forget_environment(&mut command);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["bench", "mpi", "--quick"]).args(words).args([
            "--",
            "mpirun.openmpi",
            "--oversubscribe",
        ]);
        let outcome = run(&mut command, Duration::from_secs(120));
        assert!(outcome.code() == Some(1) && outcome.stderr.contains(said), "{outcome}");
    }
}
