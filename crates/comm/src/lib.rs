//! Messages between GPUs: who is near whom, which channels two processes have, and which is best for a
//! message.
//!
//! The ranks of a job find each other on *boards*, lists that the processes of one host share in whatever way
//! their containers leave open, with a fixed number of bytes a rank. What two ranks know of each other is a
//! [`Pair`], from which everything else is decided without looking at the machine again.
//!
//! | Module      | Question it answers                                                               |
//! |-------------|-----------------------------------------------------------------------------------|
//! | [`job`]     | Which ranks belong together, and how do they keep apart from all others?           |
//! | [`identity`]| Where does this process run: namespaces, processors, NUMA nodes?                   |
//! | [`live`]    | What has a rank sent so far, and which channels may it use now?                    |
//! | [`board`]   | Which ranks are on this host, and which of them live?                              |
//! | [`bootstrap`] | How does one rank reach another of its host: sockets, descriptors, process ids?    |
//! | [`pair`]    | What lies between two ranks? Plain data, pure.                                     |
//! | [`channels`]| Which ways does a message have between them? Pure.                                |
//! | [`matching`]| In what order do messages match, when some carry no bytes? Pure.                   |
//! | [`tracer`]  | Is the traffic with a peer bound by latency or by bandwidth? Pure.                 |
//! | [`scheduler`]| Which channel does a message take, and why? Pure.                                 |
//! | [`collective`]| What do ranks do together: broadcasts, reductions by kernels ...?               |
//! | [`profile`] | What do jobs remember of the costs of channels?                                   |
//! | [`device`]  | How do kernels communicate?                                                       |
//! | [`doctor`]  | Which channels have two processes, and how would they get the better ones?         |
//! | `verbs`     | How does a rank use an RDMA device for messages?                                  |
//! | [`moving`]  | When does a rank that moves to another container go on?                           |

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
