//! Messages between GPUs: the host side of GPU-aware MPI and of kernels that communicate.
//!
//! The ranks of a job find each other on *boards*, lists that the processes of one host share in whatever way
//! their containers leave open, with a fixed number of bytes a rank. What two ranks know of each other is a
//! [`Pair`], from which everything else is decided without looking at the machine again.
//!
//! From top to bottom:
//!
//! | Module         | Contents                                                     |
//! |----------------|--------------------------------------------------------------|
//! | [`capi`]       | the C API, `libcauseway_comm.so`                             |
//! | [`collective`] | broadcasts, reductions by kernels and the like on GPU memory |
//! | [`doctor`]     | check of which channels two processes have                   |
//! | [`device`]     | communication by kernels: teams, windows, proxies            |
//! | [`world`]      | a process's part in a job: sends, receives, moves            |
//! | [`transfer`]   | rendezvous: offers, and their fetch                          |
//! | [`live`]       | what a rank has sent so far, for others while it runs        |
//! | [`profile`]    | costs of channels that jobs keep for later ones              |
//! | [`report`]     | what `CAUSEWAY_COMM_EXPLAIN=1` prints                        |
//! | [`settings`]   | variables of the environment                                 |
//! | [`scheduler`]  | choice of a message's channel. Pure                          |
//! | [`channels`]   | the channels, a file each: probe, cost, sending, receiving   |
//! | [`pair`]       | what lies between two ranks. Plain data, pure                |
//! | [`bootstrap`]  | connections between ranks: sockets, descriptors, process ids |
//! | [`board`]      | which ranks are on this host, and which of them live         |
//! | `verbs`        | RDMA devices for messages                                    |
//! | [`cuda`]       | the CUDA driver that the program has loaded                  |
//! | [`identity`]   | namespaces, processors and NUMA nodes of a process           |
//! | [`matching`]   | message matching, when some messages carry no bytes. Pure    |
//! | [`moving`]     | epochs of a rank that moves to another container             |
//! | [`job`]        | which ranks belong together, and proofs of that              |
//! | [`tracer`]     | whether traffic is bound by latency or by bandwidth. Pure    |

pub mod board;
pub mod bootstrap;
pub mod capi;
pub mod channels;
pub mod collective;
pub mod cuda;
#[cfg(test)]
mod decoders;
pub mod device;
pub mod doctor;
pub mod identity;
pub mod job;
pub mod live;
pub mod matching;
pub mod moving;
pub mod pair;
pub mod profile;
pub mod report;
pub mod scheduler;
pub mod settings;
pub mod tracer;
pub mod transfer;
mod verbs;
pub mod world;

pub use board::{Board, BoardError, Scan, Seen};
pub use channels::Channel;
pub use identity::Identity;
pub use job::Job;
pub use pair::Pair;
pub use scheduler::Scheduler;
pub use tracer::Tracer;
pub use world::World;
