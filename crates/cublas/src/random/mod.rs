//! cuRAND's functions of the host: `libcurand.so`.

mod functions;
mod generator;
mod status;

pub use status::TYPE_ERROR;
