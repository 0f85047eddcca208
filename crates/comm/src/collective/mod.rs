//! What do the ranks of a group do together with memory on GPUs?
//!
//! Every rank gives the others what they need of its memory, and takes what it needs of theirs: they *exchange*
//! words of offers in whatever way the caller has (the interposer's is `PMPI_Alltoall`), and fetch by the
//! channels that messages take, too. Numbers are put together by kernels.
//!
//! | Module        | Question it answers                                                             |
//! |---------------|---------------------------------------------------------------------------------|
//! | [`element`]   | What can a GPU reduce: types and operations? Pure.                               |
//! | [`ptx`]       | How does a kernel read that reduces? Pure.                                       |
//! | [`runs`]      | How do bytes with gaps between them come to lie one behind the other, and back?  |
//! | [`launch`]    | How does a kernel come to run where memory lies?                                 |
//! | [`temporary`] | Which memory on a GPU is there for a while?                                      |
//! | [`group`]     | How do the ranks of a group agree, and exchange memory?                          |
//! | [`calls`]     | Of which exchanges and kernels is each collective call made?                     |
//! | [`c`]         | The functions of `libcauseway_comm.so` for all this.                             |

pub mod c;
pub mod calls;
pub mod element;
pub mod group;
pub mod launch;
pub mod ptx;
pub mod runs;
pub mod temporary;
