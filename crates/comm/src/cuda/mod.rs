//! CUDA driver: `causeway_cuda`, which other libraries beside a program use, too.

pub use causeway_cuda::*;
