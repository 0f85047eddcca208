//! Stand-in for cuBLAS, cuBLASLt and cuSOLVER on software GPUs: `libcublas.so`, `libcublasLt.so` and
//! `libcusolver.so`.
//!
//! NVIDIA's libraries contain only machine code, which the software GPU does not run. Where all of a
//! program's servers are software GPUs, `causeway run` puts this library in front of them. Each function
//! checks its arguments and launches one kernel in the caller's stream ([`causeway_gemm`]); the server's
//! processor computes the product.
//!
//! All names lead to this one library. Functions that it does not have return `CUBLAS_STATUS_NOT_SUPPORTED`
//! and name themselves on standard error: `list/refused.txt`. What names, arguments and results are is from
//! NVIDIA's published headers (`cublas_v2.h`, `cublasLt.h`, `cusolverDn.h`).

mod device_files;
mod driver;
mod exports;
mod gemm;
mod handle;
mod launch;
mod log;
mod lt;
mod management;
mod operation;
mod refused;
mod solve;
mod solver;
mod status;
mod systems;
mod types;
mod vectors;
