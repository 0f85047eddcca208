//! InfiniBand verbs, also when packets are lost, the link goes down, or a peer misbehaves.
//!
//! `make verbs-test` runs these in a guest with two hosts that have RDMA devices; elsewhere each says so and
//! passes.

mod commands;
mod copies;
mod faults;
mod messages;
mod servers;
mod sessions;
mod setup;
