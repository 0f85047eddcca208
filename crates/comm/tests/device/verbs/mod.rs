//! Do kernels write the work requests of a network card as its own driver does, and does a card that reads them
//! do what was asked for?

mod crowd;
mod faults;
mod golden;
mod operations;
mod pair;
pub mod softcard;
