//! Collective calls on GPU memory.
//!
//! Every rank gives the others what they need of its memory, and takes what it needs of theirs: they
//! *exchange* words of offers in whatever way the caller has (the interposer's is `PMPI_Alltoall`), and fetch
//! by the channels that messages take, too. Numbers are put together by kernels.
//!
//! | Module        | Question it answers                                                             |
//! |---------------|---------------------------------------------------------------------------------|
//! | [`element`]   | What can a GPU reduce: types and operations? Pure.                               |
//! | [`ptx`]       | How does a kernel load, put together and store elements? Pure.                   |
//! | `walk`        | How do the threads of a grid go over what a kernel works on? Pure.               |
//! | [`kernels`]   | Which kernels put elements together? Pure.                                       |
//! | [`runs`]      | How do bytes with gaps between them come to lie one behind the other, and back?  |
//! | [`launch`]    | How does a kernel come to run where memory lies?                                 |
//! | [`scratch`]   | Which memory on a GPU is there for a while?                                      |
//! | [`error`]     | Why does a call fail?                                                            |
//! | [`range`]     | Which memory of a rank does a call give, or take? Pure.                          |
//! | [`group`]     | How do the ranks of a group agree on a call?                                     |
//! | [`exchange`]  | How do they exchange memory?                                                     |
//! | [`memory`]    | Which memory of this rank is a reduction about?                                  |
//! | [`exported`]     | Which memory of this rank may others open for a while?                           |
//! | [`control`]      | How do ranks of one host exchange the words of their calls past the MPI?         |
//! | [`host`]      | Which memory of the host stands for memory on a GPU for a while?                 |
//! | [`shared`]    | Which memory of all ranks do kernels use where it lies?                          |
//! | [`calls`]     | Of which exchanges is each collective call made that only moves?                 |
//! | [`chunks`]    | How is a reduction cut into a chunk for each rank? Pure.                         |
//! | [`reductions`] | Of which exchanges and kernels is each call made that puts numbers together?    |
//! | [`fetched`]   | How are numbers put together that a rank has to fetch first?                     |
//! | [`captured`]  | How does a call become a part of a graph?                                        |

pub mod calls;
pub mod captured;
pub mod chunks;
pub mod control;
pub mod element;
pub mod error;
pub mod exchange;
pub mod exported;
pub mod fetched;
pub mod group;
pub mod host;
pub mod kernels;
pub mod launch;
pub mod memory;
pub mod ptx;
pub mod range;
pub mod reductions;
pub mod runs;
pub mod scratch;
pub mod shared;
mod walk;
