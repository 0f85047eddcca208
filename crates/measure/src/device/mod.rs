//! Measurements of kernels that communicate by themselves.
//!
//! The measuring is done by a program of its own (`bench/device`), whose kernels call the headers of
//! `device/include`, and which prints a row for each figure. A *target* is a GPU and the way to it. Each run
//! starts the program once for every target, in turn; the program itself measures all ways of a case in turn.
//!
//! | Module          | Question it answers                                    |
//! |-----------------|--------------------------------------------------------|
//! | [`case`]        | What is measured?                                      |
//! | [`results`]     | What has been measured on which target?                |
//! | [`requirements`] | What must hold, and does it?                          |
//! | [`report`]      | How do people and programs read it?                    |
//! | [`plots`]       | How is it drawn?                                       |

pub mod case;
pub mod plots;
pub mod report;
pub mod requirements;
pub mod results;
