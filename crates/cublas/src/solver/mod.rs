//! cuSOLVER's functions: `libcusolver.so`.

mod dense;
mod eigenvalues;
mod gels;
mod management;
mod refined;
mod sparse;
mod status;

pub use status::NOT_SUPPORTED;
