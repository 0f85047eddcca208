//! Stand-in for cuBLAS, cuBLASLt, cuSOLVER, cuRAND and cuSPARSE on software GPUs: `libcublas.so`, `libcublasLt.so`,
//! `libcusolver.so`, `libcurand.so` and `libcusparse.so`.
//!
//! NVIDIA's libraries contain only machine code, which the software GPU does not run. Where all of a
//! program's servers are software GPUs, `causeway run` puts this library in front of them. Each function
//! checks its arguments and launches one kernel in the caller's stream ([`causeway_gemm`]); the server's
//! processor computes the result.
//!
//! All names lead to this one library. Functions that it does not have return `CUBLAS_STATUS_NOT_SUPPORTED`
//! and name themselves on standard error: `list/refused.txt`. What names, arguments and results are is from
//! NVIDIA's published headers (`cublas_v2.h`, `cublasLt.h`, `cusolverDn.h`, `curand.h`, `cusparse.h`).

mod device_files;
mod driver;
mod element_wise;
mod exports;
mod gemm;
mod handle;
mod launch;
mod log;
mod lt;
mod management;
mod operation;
mod random;
mod refused;
mod solve;
mod solver;
mod sparse;
mod status;
mod symmetric;
mod systems;
mod types;
mod vectors;
