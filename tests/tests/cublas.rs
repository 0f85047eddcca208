//! Stand-ins for cuBLAS, cuSOLVER, cuRAND and cuSPARSE: their results on the software GPU, and nowhere else.

use causeway_tests::built::cuda_program;
use causeway_tests::client::through_run;
use causeway_tests::process::run;
use causeway_tests::server::Server;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn products_are_right_in_all_types_forms_streams_and_threads() {
    let outcome = run(&mut through_run(None, &cuda_program("cublas_products")), LIMIT).must_succeed();
    let named =
        |function: &str| outcome.stderr.contains(&format!("{function} returns CUBLAS_STATUS_NOT_SUPPORTED"));
    assert!(named("cublasStpmv_v2") && named("cublasLtMatmul"), "{outcome}");
}

#[test]
fn wrong_addresses_are_errors_of_the_kernel() {
    for address in ["far", "near"] {
        let mut command = through_run(None, &cuda_program("cublas_products"));
        let outcome = run(command.arg(address), LIMIT).must_succeed();
        assert!(outcome.stderr.contains("kernel `causeway_gemm`"), "{outcome}");
    }
}

#[test]
fn systems_are_solved_and_matrices_decomposed() {
    let outcome = run(&mut through_run(None, &cuda_program("cusolver_systems")), LIMIT).must_succeed();
    assert!(outcome.stderr.contains("cusolverDnSsytrf returns CUSOLVER_STATUS_NOT_SUPPORTED"), "{outcome}");
    let mut command = through_run(None, &cuda_program("cusolver_systems"));
    let outcome = run(command.arg("beyond"), LIMIT).must_succeed();
    assert!(outcome.stderr.contains("kernel `causeway_solve`"), "{outcome}");
}

#[test]
fn random_numbers_are_those_of_curand() {
    let outcome = run(&mut through_run(None, &cuda_program("curand_numbers")), LIMIT).must_succeed();
    for refused in ["curandCreateGenerator", "curandGenerateLongLong"] {
        assert!(outcome.stderr.contains(&format!("{refused} returns CURAND_STATUS_TYPE_ERROR")), "{outcome}");
    }
    let mut command = through_run(None, &cuda_program("curand_numbers"));
    let outcome = run(command.arg("beyond"), LIMIT).must_succeed();
    assert!(outcome.stderr.contains("kernel `causeway_random`"), "{outcome}");
}

#[test]
fn sparse_matrices_are_multiplied_converted_and_solved() {
    let program = cuda_program("cusparse_matrices");
    let outcome = run(&mut through_run(None, &program), LIMIT).must_succeed();
    assert!(outcome.stderr.contains("cusparseSDDMM returns CUSPARSE_STATUS_NOT_SUPPORTED"), "{outcome}");
    for wrong in ["index", "address"] {
        let outcome = run(through_run(None, &program).arg(wrong), LIMIT).must_succeed();
        assert!(outcome.stderr.contains("kernel `causeway_sparse`"), "{outcome}");
    }
}

#[test]
fn programs_on_a_server_keep_their_own_library() {
    let server = Server::start();
    let mut command = through_run(Some(&server.connect_string()), &cuda_program("cublas_products"));
    let outcome = run(&mut command, LIMIT);
    assert!(outcome.code() == Some(1) && outcome.stdout.contains("cublas != nullptr"), "{outcome}");
}
