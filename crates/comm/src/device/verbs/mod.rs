//! How do kernels post work requests to a network card themselves? The host's side of
//! `device/include/causeway/verbs.cuh`.
//!
//! | Module     | Question it answers                                             |
//! |------------|-----------------------------------------------------------------|
//! | [`layout`] | What do kernels and the host know of the same bytes?            |

pub mod layout;
