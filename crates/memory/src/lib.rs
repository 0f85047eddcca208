//! Memory of this host: copied by several threads, made before it is used, shared with another process,
//! compared.
//!
//! | Module          | Question it answers                                                       |
//! |-----------------|---------------------------------------------------------------------------|
//! | [`copy_threads`] | How do several threads copy memory?                                        |
//! | [`nontemporal`]  | How are bytes copied that a device reads next?                             |
//! | [`pages`]       | How are pages made before somebody waits for them?                         |
//! | [`sealed`]      | Which memory of another process can be mapped without danger?              |
//! | [`mirror`]      | Which bytes of memory that two processes hold have changed?                |
//! | `numa`          | On which NUMA node does memory lie?                                        |

pub mod copy_threads;
pub mod mirror;
pub mod nontemporal;
mod numa;
pub mod pages;
pub mod sealed;

pub use sealed::{SealedMemory, SealedMemoryError};
