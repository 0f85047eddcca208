//! cuSPARSE's functions: `libcusparse.so`.

mod compressed;
mod descriptors;
mod generic;
mod management;
mod objects;
mod request;
mod status;

pub use status::NOT_SUPPORTED;
