//! cuBLASLt: descriptors, and products described by them.

mod descriptors;
mod matmul;
