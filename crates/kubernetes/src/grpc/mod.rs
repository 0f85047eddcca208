//! gRPC over Unix sockets: as much of it as kubelets speak with their plugins.
//!
//! A call is a stream of HTTP/2: the path names the procedure, each message has its length in front of it, and the
//! status of the call stands in the trailers
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>). There is no compression and no encryption.
//!
//! | Module      | Question it answers                                  |
//! |-------------|------------------------------------------------------|
//! | [`frame`]   | Where does a message begin and end? Pure.            |
//! | [`status`]  | How did a call end?                                  |
//! | [`client`]  | How is a procedure of another process called?        |
//! | [`server`]  | How are calls of others answered?                    |

pub mod client;
pub mod frame;
pub mod server;
pub mod status;
mod stream;

pub use client::{CallError, call};
pub use server::{Reply, Service, serve};
pub use status::{Code, Status};
