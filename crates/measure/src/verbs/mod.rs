//! What do two RDMA devices do with queue pairs, capacities and MTUs? The working part of `causeway bench verbs`.
//!
//! | Module       | Question it answers                                                         |
//! |--------------|-----------------------------------------------------------------------------|
//! | [`case`]     | What is measured, and with which settings?                                    |
//! | [`sweep`]    | Which settings are compared with each other?                                  |
//! | [`control`]  | What do the two ends say to each other?                                       |
//! | [`endpoint`] | How is one end of a path made: device, memory, queue pairs?                   |
//! | [`traffic`]  | How is one repetition carried out?                                            |
//! | `dialogue`   | How does one message answer another?                                          |
//! | `trips`      | How long does a round trip take?                                              |
//! | `patience`   | How long is something looked for that does not come?                          |
//! | `content`    | Has what was sent come as it was?                                             |
//! | [`link`]     | How do the messages and the memory of Causeway's own links do?                |
//! | [`near`]     | How is everything measured, from the end that asks?                           |
//! | `ends`       | How are both ends joined, and one repetition carried out?                     |
//! | [`far`]      | How does the other end take part?                                             |
//! | [`perftest`] | How are perftest's programs run beside, and what do they say?                 |
//! | [`results`]  | What was measured, and what follows from it?                                  |
//! | [`report`]   | How do people and programs read it?                                           |
//! | [`figures`]  | Which pictures are drawn?                                                     |

pub mod case;
mod content;
pub mod control;
mod dialogue;
pub mod endpoint;
mod ends;
pub mod far;
pub mod figures;
pub mod link;
pub mod near;
mod patience;
pub mod perftest;
pub mod report;
pub mod results;
pub mod sweep;
pub mod traffic;
mod trips;
