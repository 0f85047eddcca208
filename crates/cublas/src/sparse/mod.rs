//! cuSPARSE's functions: `libcusparse.so`.

mod compressed;
pub mod descriptors;
mod generic;
mod incomplete;
mod management;
pub mod objects;
pub mod request;
mod status;

pub use status::NOT_SUPPORTED;
