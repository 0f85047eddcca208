//! Threads that wait: for how long they look before they sleep, and how they are woken.
//!
//! | Module       | Question it answers                                                          |
//! |--------------|------------------------------------------------------------------------------|
//! | [`awake`]    | How long does a thread stay awake for what is about to come?                  |
//! | [`doorbell`] | How is a thread woken for what somebody begins to wait for?                   |
//! | [`threads`]  | Why do our threads not disturb the program they live in?                      |
//! | [`delays`]   | How do tests meet rare orders of threads?                                     |

pub mod awake;
pub mod delays;
pub mod doorbell;
pub mod threads;
