//! The functions of `libcauseway_comm.so` for collective calls, which `mpi/causeway_comm.h` declares.
//!
//! | Module      | Question it answers                                                                |
//! |-------------|------------------------------------------------------------------------------------|
//! | `group`     | How does a group of a program in C come to make a call?                              |
//! | `questions` | By which functions does a program decide how a call is made?                         |
//! | `calls`     | By which does it make one?                                                           |
//! | `graphs`    | By which does it end those in graphs?                                                |
//! | `mail`      | By which does the interposer exchange words?                                         |
//! | `memory`    | By which does it copy elements with gaps, and have memory for a while?               |

mod calls;
mod graphs;
mod group;
mod mail;
mod memory;
mod questions;
