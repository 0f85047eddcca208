//! The calls of the declaration list, each handed to the part of the device that it concerns.
//!
//! A file has what its subject's commands check and where they go; what no file has is answered with "not
//! supported".

mod context;
mod copy;
mod graph;
mod launch;
mod memory;
mod module;
mod stream;
mod texture;

use super::SoftwareGpu;
use causeway_gpu::calls::{GreenContextCalls, LogCalls};

// What only a real GPU and its driver have.
impl GreenContextCalls for SoftwareGpu {}
impl LogCalls for SoftwareGpu {}
