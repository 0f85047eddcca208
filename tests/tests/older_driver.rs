//! Programs for a later CUDA than the server has.

use causeway_tests::built::cuda_program;
use causeway_tests::client::by_itself;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::{OPEN, Server};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a program on a server whose driver is of a version of CUDA.
fn on_cuda(version: &str, program: &str) -> Outcome {
    let mut command = Server::command(&OPEN);
    let server = Server::start_command({
        command.env("CAUSEWAY_SOFTWARE_GPU_CUDA", version);
        command
    });
    let outcome = run(&mut by_itself(&server.connect_string(), &cuda_program(program)), LIMIT);
    server.must_have_workers(0);
    server.must_be_well();
    outcome
}

#[test]
fn a_runtime_newer_than_the_driver_says_so() {
    let outcome = on_cuda("12.4", "vector_add");
    assert!(outcome.stdout.contains("cudaErrorInsufficientDriver"), "{outcome}");
    on_cuda("13.0", "vector_add").must_succeed();
}

#[test]
fn code_newer_than_the_driver_is_told_from_a_bad_one() {
    // The runtime is of CUDA 12.4, the PTX of the compiler of 13.0.
    let outcome = on_cuda("12.4", "vector_add.cudart12.shared");
    assert!(outcome.stdout.contains("cudaErrorUnsupportedPtxVersion"), "{outcome}");
}
