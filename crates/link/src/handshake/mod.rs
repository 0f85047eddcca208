//! Client side of the handshake: proof of the key, and the request.
//!
//! | Module        | Question it answers                                                    |
//! |---------------|------------------------------------------------------------------------|
//! | `options`     | How long does a caller wait for what, and which ways does it take?       |
//! | `hello`     | What is said on a connection first: preface, proofs, one message each way? |
//! | `lanes`       | How is a further connection of a session opened?                          |
//! | `relocations` | Where is a session that has moved?                                        |
//! | `error`       | Why did a client get no session?                                          |

pub(crate) mod error;
pub(crate) mod hello;
pub(crate) mod lanes;
pub(crate) mod options;
pub(crate) mod relocations;
