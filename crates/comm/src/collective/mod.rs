//! Collective calls on GPU memory.
//!
//! Every rank gives the others what they need of its memory, and takes what it needs of theirs: they
//! *exchange* words of offers in whatever way the caller has (the interposer's is `PMPI_Alltoall`), and fetch
//! by the channels that messages take, too. Numbers are put together by kernels.
//!
//! | module | contents |
//! | --- | --- |
//! | `calls` | Collective calls that only move data, and the exchange of memory between ranks that they are made of |
//! | `reductions` | Reductions, as exchanges and kernels |
//! | `chunks` | Chunks of a reduction, one for each rank, and reductions whose chunks are fetched, where not all memory of the others can be opened: each rank takes its chunk from all others, reduces them, and gives the result to who needs it |
//! | `shared` | Peer memory opened for the kernels of a collective |
//! | `group` | Group of ranks: agreement on a call, and the errors of calls |
//! | `control` | Control channel of a group: small messages in shared memory |
//! | `memory` | Memory of this rank in a call: ranges, the buffers of a reduction, what peers may open, and scratch memory, on a GPU and pinned on the host, from stores |
//! | `element` | Element types and operations of reductions, as MPI has them |
//! | `ptx` | PTX writer: instructions that load, reduce and store elements of a type |
//! | `kernels` | Reduction kernels: their PTX text, and their launch |
//! | `runs` | Pack and unpack of strided memory, by a kernel that copies runs |
//! | `captured` | Collective calls in CUDA graphs: exchange of exported memory, agreement of the ranks on a call, and its capture |

pub mod calls;
pub mod captured;
pub mod chunks;
pub mod control;
pub mod element;
pub mod group;
pub mod kernels;
pub mod memory;
pub mod ptx;
pub mod reductions;
pub mod runs;
pub mod shared;
