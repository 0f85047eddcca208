//! Network plugin for NCCL: `libnccl-net-causeway.so`, which NCCL loads by `NCCL_NET_PLUGIN=causeway`.
//!
//! NCCL's processes that cannot share memory, in containers of one host or on several, send each other messages through
//! a table of functions that a plugin exports. The bytes of a connection go over several sockets at once, which threads
//! of this library serve.
//!
//! | Module            | Question it answers                                                            |
//! |-------------------|--------------------------------------------------------------------------------|
//! | [`abi`]           | Which tables does NCCL look for, and how are they laid out?                    |
//! | [`plugin`]        | What does each call do, for all tables?                                        |
//! | [`bootstrap`]     | How do sender and receiver find each other, and how do they prove it?          |
//! | [`communicator`]  | How does a message get to its receive, and when is either done?                |
//! | [`engine`]        | Who reads and writes the sockets?                                              |
//! | [`handle`]        | What does a receiver tell a sender through NCCL?                               |
//! | [`gpu`]           | How do messages get to and from memory of GPUs?                                |
//! | [`staging_block`] | Through which memory of the host do they pass?                                 |
//! | [`interfaces`]    | At which addresses is this process reached, and how fast?                      |
//! | [`settings`]      | What has the user set?                                                         |
//! | [`log`]           | Where do messages go?                                                          |
//! | [`error`]         | What can fail, and which of NCCL's codes is that?                              |

pub mod abi;
pub mod bootstrap;
pub mod communicator;
pub mod engine;
pub mod error;
pub mod gpu;
pub mod handle;
pub mod interfaces;
pub mod log;
pub mod plugin;
pub mod settings;
pub mod staging_block;
