//! A model test of the CUDA driver API: random programs of asynchronous work, run on a driver and compared
//! with a sequential model of memory.
//!
//! Programs are free of races by construction ([`order`]), so that whatever order the driver takes within
//! CUDA's rules, memory holds what the model ([`interpret`]) says.

mod describe;
pub mod driver;
pub mod generate;
pub mod interpret;
pub mod order;
pub mod program;
pub mod reduce;
pub mod run;
pub mod session;
#[cfg(test)]
mod simulate;
