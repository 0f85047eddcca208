//! Verbs on the GPU: work requests that kernels write, compared with those of the card's own driver, and a
//! software card that executes them.

mod crowd;
mod faults;
mod golden;
mod operations;
pub mod pair;
mod processes;
pub mod softcard;
