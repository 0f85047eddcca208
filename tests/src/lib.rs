//! What the end-to-end tests and the benchmarks share: they start the real `causeway`, the real client
//! library and real CUDA programs, and look at them from outside.
//!
//! | Module       | Question it answers                                                          |
//! |--------------|------------------------------------------------------------------------------|
//! | [`built`]    | Where are the program, the library and the CUDA programs that were built?      |
//! | [`process`]  | How is a process started, watched, and ended when it takes too long?           |
//! | [`server`]   | How is a server started, and which workers does it have?                       |
//! | [`kubelet`]  | What does a kubelet of Kubernetes say to a device plugin?                      |
//! | [`client`]   | How is a CUDA program started on a server?                                     |
//! | [`mpi`]      | How is a program started under an MPI, with the interposer, on a server?      |
//! | [`programs`] | Which CUDA programs are there, and what must each of them do?                  |
//! | [`hostile`]  | How does one talk to a server as no client would?                              |
//! | [`raw_session`] | How does one send commands that no client would send?                    |
//! | [`network`]  | How are client and server put on two ends of a network of known length and rate?  |
//! | [`stall`]    | How does a network fall silent whose connections stay open?                  |
//! | [`chaos`]    | What happens when connections fail at exact points of a session?              |
//! | [`tap`]      | What travels between a client and a server?                                    |

pub mod built;
pub mod chaos;
pub mod client;
pub mod hostile;
pub mod kubelet;
pub mod mpi;
pub mod network;
pub mod process;
pub mod programs;
pub mod raw_session;
pub mod server;
pub mod stall;
pub mod tap;
