//! Device-initiated communication. The host's side of the headers in `device/include/causeway`: teams, their
//! windows, the proxies that move what kernels ask for, and the choice of who moves a message.
//!
//! | Module      | Question it answers                                                              |
//! |-------------|----------------------------------------------------------------------------------|
//! | [`layout`]  | What do kernels, the proxy and the host know of the same bytes?                    |
//! | [`request`] | What does a request of 16 bytes say? Pure.                                        |
//! | [`queue`]   | How does the proxy take requests out of a queue, and say how far it has come?       |
//! | [`packing`] | Which transfers are neighbours, and become one? Pure.                             |
//! | [`windows`] | Where do windows lie, and does a range lie in one?                                |
//! | [`gpu`]     | What does a team ask of a GPU?                                                    |
//! | [`shared`]  | Which memory of the host do processes share?                                        |
//! | [`cuda`]    | How does the CUDA driver give it that?                                            |
//! | [`signal_order`] | Which signal comes behind one that goes another way? Pure.                     |
//! | [`proxy`]   | How does a thread of the host carry out what kernels post?                        |
//! | [`residency`] | Do the blocks that wait for each other run at the same time? Pure.               |
//! | [`choice`]  | Which initiator takes a message? Pure.                                            |
//! | [`calibration`] | What do a few copies say of what the proxy's way costs? Pure.                   |
//! | [`measuring`] | How long do copies of a lane take?                                                |
//! | [`failure`] | Why has a team come to its end?                                                   |
//! | [`peers`]   | How do ranks of several processes find each other, and hand over their windows?     |
//! | [`announcement`] | What do they say to each other of windows? Pure.                              |
//! | [`remote`]  | How do proxies of two hosts move what kernels ask for?                            |
//! | [`team`]    | How is a team made, and what keeps it going?                                      |
//! | [`verbs`]   | How do kernels post work requests to a network card themselves?                  |

pub mod announcement;
pub mod calibration;
pub mod choice;
pub mod cuda;
pub mod failure;
pub mod gpu;
pub mod layout;
pub mod measuring;
pub mod packing;
pub mod peers;
pub mod proxy;
pub mod queue;
pub mod remote;
pub mod request;
pub mod residency;
pub mod shared;
pub mod signal_order;
pub mod team;
pub mod verbs;
pub mod windows;
