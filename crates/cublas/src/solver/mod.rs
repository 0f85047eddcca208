//! cuSOLVER's functions for dense matrices: `libcusolver.so`.

mod dense;
mod eigenvalues;
mod management;
mod status;

pub use status::NOT_SUPPORTED;
