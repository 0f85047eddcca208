//! Collective calls on GPU memory.
//!
//! Every rank gives the others what they need of its memory, and takes what it needs of theirs: they
//! *exchange* words of offers in whatever way the caller has (the interposer's is `PMPI_Alltoall`), and fetch
//! by the channels that messages take, too. Numbers are put together by kernels.
//!
//! | Module         | Contents                                                                      |
//! |----------------|-------------------------------------------------------------------------------|
//! | [`calls`]      | calls that only move data, and the exchange of memory that they are made of   |
//! | [`reductions`] | calls that reduce, as exchanges and kernels                                   |
//! | [`chunks`]     | a chunk of a reduction for each rank, and reductions whose chunks are fetched |
//! | [`shared`]     | memory of all ranks that kernels use where it lies                            |
//! | [`group`]      | the ranks of a call: agreement, errors                                        |
//! | [`control`]    | small messages of a group in shared memory, past the MPI                      |
//! | [`memory`]     | memory of this rank in a call, and what peers may open of it                  |
//! | [`element`]    | types and operations that a GPU reduces. Pure                                 |
//! | [`ptx`]        | PTX text that loads, reduces and stores elements. Pure                        |
//! | [`kernels`]    | PTX text of kernels that reduce. Pure                                         |
//! | [`runs`]       | strided elements: packing and unpacking by kernels                            |
//! | [`captured`]   | calls in CUDA graphs                                                          |

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
