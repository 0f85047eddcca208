//! Device-initiated communication. The host's side of the headers in `device/include/causeway`: teams, their
//! windows, the proxies that move what kernels ask for, and the choice of who moves a message.
//!
//! | Module      | Question it answers                                                              |
//! |-------------|----------------------------------------------------------------------------------|
//! | [`layout`]  | What do kernels, the proxy and the host know of the same bytes?                    |
//! | [`request`] | What does a request of 16 bytes say? Pure.                                        |
//! | [`queue`]   | How does the proxy take requests out of a queue, and say how far it has come?       |
//! | [`windows`] | Where do windows lie, and does a range lie in one?                                |
//! | [`gpu`]     | What does a team ask of a GPU?                                                    |
//! | [`shared`]  | Which memory of the host do processes share?                                        |
//! | [`cuda`]    | How does the CUDA driver give it that?                                            |
//! | [`proxy`]   | How does a thread of the host carry out what kernels post?                        |
//! | [`choice`]  | Which initiator takes a message? Pure.                                            |
//! | [`measuring`] | How long do copies of a lane take?                                                |
//! | [`failure`] | Why has a team come to its end?                                                   |
//! | [`peers`]   | How do ranks of several processes find each other, and hand over their windows?     |
//! | [`remote`]  | How do proxies of two hosts move what kernels ask for?                            |
//! | [`team`]    | How is a team made, and what keeps it going?                                      |
//! | [`verbs`]   | How do kernels post work requests to a network card themselves?                  |

pub mod choice;
pub mod cuda;
pub mod failure;
pub mod gpu;
#[cfg(test)]
mod late_lane;
pub mod layout;
pub mod measuring;
pub mod peers;
pub mod proxy;
pub mod queue;
pub mod remote;
pub mod request;
pub mod shared;
pub mod team;
pub mod verbs;
pub mod windows;
