//! What of a graph the server gets: when it is instantiated, and when it is launched.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `nodes` | What do the descriptions of nodes mean, and is what they name there? |
//! | [`build`] | How does the server get a graph? |
//! | [`executable`] | What is an executable graph, and what happens when it is launched? |
//! | [`memory`] | Where does the memory of its allocation nodes come from? |
//! | [`dot`] | What does a graph look like? |

pub mod build;
pub mod dot;
pub mod executable;
pub mod memory;
mod nodes;
