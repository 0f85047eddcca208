//! Network plugin for NCCL: `libnccl-net-causeway.so`, which NCCL loads by `NCCL_NET_PLUGIN=causeway`.
//!
//! NCCL's processes that cannot share memory, in containers of one host or on several, send each other messages through
//! a table of functions that a plugin exports. The bytes of a connection go over several sockets at once, which threads
//! of this library serve.
//!
//! | module | contents |
//! | --- | --- |
//! | `abi` | Tables of functions that NCCL looks for: `ncclNetPlugin_v8` (NCCL 2.20) to `ncclNetPlugin_v12` (2.30) |
//! | `plugin` | Calls of the plugin's interface, the same for all versions of its table |
//! | `bootstrap` | Bootstrap: connections between the two ends of a communicator |
//! | `communicator` | Communicators: one connection between a sender and a receiver, over several lanes |
//! | `engine` | Engine: threads that carry frames between sockets and memory, for all connections of the process |
//! | `handle` | Connect handle: what a receiver tells a sender through NCCL's bootstrap |
//! | `gpu` | Memory of GPUs: what a message in it needs of the driver |
//! | `staging_block` | Staging blocks: memory of the host through which parts of messages pass between lanes and GPUs |
//! | `interfaces` | Network interfaces: addresses for peers, and speed |
//! | `settings` | Settings of the plugin, from the environment and configuration files |
//! | `log` | Log: NCCL's own, which `NCCL_DEBUG` and `NCCL_DEBUG_FILE` govern |
//! | `error` | Errors of the plugin, and NCCL's codes for them |

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
