//! The corners of single instructions, on hand-written PTX.

#[path = "../common/mod.rs"]
mod common;

mod clusters;
mod conversions;
mod evaluate;
mod lanes;
mod matrices;
mod polling;
mod suspension;
mod tensors;
mod threads;
mod values;
mod video;
