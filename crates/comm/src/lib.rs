//! Messages between GPUs: the host side of GPU-aware MPI and of kernels that communicate.
//!
//! The ranks of a job find each other on *boards*, lists that the processes of one host share in whatever way
//! their containers leave open, with a fixed number of bytes a rank. What two ranks know of each other is a
//! [`Pair`], from which everything else is decided without looking at the machine again.
//!
//! From top to bottom:
//!
//! | module | contents |
//! | --- | --- |
//! | `capi` | C API of `libcauseway_comm.so`, which `mpi/causeway_comm.h` declares and describes: the state of this process, the last error of each thread, and the version of the functions |
//! | `collective` | Collective calls on GPU memory |
//! | `doctor` | Connectivity check of two processes, which come together by a name and tell each other what they have |
//! | `device` | Device-initiated communication |
//! | `world` | World: this process's part in a job, that is its place on the boards, its socket, what it offers, and what it has of each peer |
//! | `transfer` | Rendezvous transfers: what a rank offers, and what it fetches of others' offers |
//! | `live` | Live status: the messages of a rank so far, for other processes of its owner while it runs, and the channels that these let it use, with GPUDirect or without |
//! | `profile` | Profile of channel costs: a text file in the user's cache |
//! | `report` | Report of channels, algorithms and collective calls: what `CAUSEWAY_COMM_EXPLAIN=1` prints at the end |
//! | `settings` | Settings of a rank, from the environment |
//! | `scheduler` | Channel selection |
//! | `channels` | Channels between two GPUs: a file or folder each, with all that a channel is and does, and the table of them |
//! | `pair` | Pair of ranks: what lies between them, that is their locality and the paths that they have |
//! | `bootstrap` | Bootstrap: connections between ranks of a host, or over a network |
//! | `board` | Boards: which ranks are on this host, and which of them live |
//! | `verbs` | RDMA verbs for messages |
//! | `cuda` | CUDA driver: `causeway_cuda`, which other libraries beside a program use, too |
//! | `identity` | Identity of a process: namespaces, processors, NUMA nodes |
//! | `matching` | Message matching: descriptors in place of bytes, and unexpected messages |
//! | `moving` | Migration of a rank to another container: epochs of its messages, and the gate that they pass, closed during a move |
//! | `job` | Job: nonce, ranks, proofs |
//! | `tracer` | Traffic classification: latency-bound or bandwidth-bound |
//! | `locks` | The locks of this crate, in the order in which a thread may take them: `causeway_sync::ranked` checks it in debug builds |

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
mod locks;
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
pub use channels::{Channel, UnknownChannel};
pub use identity::Identity;
pub use job::Job;
pub use pair::Pair;
pub use scheduler::Scheduler;
pub use tracer::Tracer;
pub use world::World;
