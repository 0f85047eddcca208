//! Memory of this host: copied by several threads, made before it is used, shared with another process,
//! compared.
//!
//! | Module          | Question it answers                                                       |
//! |-----------------|---------------------------------------------------------------------------|
//! | [`copy_threads`] | How do several threads copy memory?                                        |
//! | [`nontemporal`]  | How are bytes copied that a device reads next?                             |
//! | [`pages`]       | How are pages made before somebody waits for them?                         |
//! | [`sealed`]      | Which memory of another process can be mapped without danger?              |
//! | [`shared_file`] | Which file in memory do two processes map, that others write to, too?      |
//! | [`mappings`]    | What is mapped in this process, and which file is it?                      |
//! | [`replace`]     | How are pages of this process replaced while other threads use them?       |
//! | [`mirror`]      | Which bytes of memory that two processes hold have changed?                |
//! | [`numa`]        | On which NUMA node does memory lie, or a device?                           |

pub mod copy_threads;
pub mod mappings;
pub mod mirror;
pub mod nontemporal;
pub mod numa;
pub mod pages;
pub mod replace;
pub mod sealed;
pub mod shared_file;

pub use sealed::{SealedMemory, SealedMemoryError};
pub use shared_file::{SharedFile, SharedFileError};
