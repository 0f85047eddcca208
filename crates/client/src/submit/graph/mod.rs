//! What of a graph the server gets: when it is instantiated, and when it is launched.

pub mod build;
pub mod executable;
