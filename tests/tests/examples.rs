//! Examples that need more than nvcc: an MPI, or packages of Python. The documents' test runs the others.

use causeway_tests::built::{programs_folder, source_tree};
use causeway_tests::client::through_run;
use causeway_tests::mpi::Mpi;
use causeway_tests::process::run;
use causeway_tests::server::Server;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

/// The folder of the CUDA toolkit with which the test programs are built.
fn toolkit() -> PathBuf {
    let runtime =
        std::fs::canonicalize(programs_folder().join("lib/libnvrtc.so.13")).expect("NVRTC is there");
    runtime.ancestors().nth(2).expect("it lies in a folder of the toolkit").to_owned()
}

#[test]
fn gpu_memory_goes_around_a_ring_of_ranks_under_both_mpis() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start();
    for mpi in Mpi::ALL {
        let program = folder.path().join(mpi.name());
        let mut compiler = Command::new(toolkit().join("bin/nvcc"));
        compiler.arg("-ccbin").arg(format!("mpicxx.{}", mpi.name())).arg("-o").arg(&program);
        run(compiler.arg(source_tree().join("examples/ring.cu")), LIMIT).must_succeed();
        let mut job = mpi.command_of_ours(&server, 3, &[]);
        let outcome = run(job.arg(&program).env("CAUSEWAY_COMM_EXPLAIN", "1"), LIMIT).must_succeed();
        assert_eq!(outcome.stdout.matches("262144 numbers came around, 0 are wrong").count(), 3, "{outcome}");
        assert!(
            outcome.stderr.contains("3 messages, 3145728 bytes sent, for the receiver to fetch"),
            "{outcome}"
        );
    }
    server.must_be_well();
}

#[test]
fn numba_computes_on_the_software_gpu() {
    // `make test` has installed it; else this takes a while.
    let mut packages = Command::new("scripts/python-packages.sh");
    let packages = run(packages.current_dir(source_tree()), Duration::from_secs(600)).must_succeed();
    let cuda = toolkit();
    // Files of packages say how Numba finds its part for CUDA, and are read in folders of packages alone.
    let start = "import runpy, site, sys\nfor folder in sys.argv[2:]: site.addsitedir(folder)\nrunpy.run_path(sys.argv[1])";
    let mut command = through_run(None, Path::new("python3"));
    command.args(["-B", "-c", start]).arg(source_tree().join("examples/numba_saxpy.py"));
    command.arg(packages.stdout.trim()).arg(cuda.ancestors().nth(2).expect("a folder of packages"));
    command.env("CUDA_HOME", &cuda).env("CUDA_PATH", &cuda).env("LD_LIBRARY_PATH", cuda.join("lib"));
    let outcome = run(&mut command, LIMIT).must_succeed();
    assert_eq!(
        outcome.stdout, "Causeway software GPU: 100000 numbers, whose sum is 10000000000\n",
        "{outcome}"
    );
}
