//! How bytes of copies come into the program's memory.
//!
//! | Module | Question it answers |
//! |---|---|
//! | [`expect`] | How is the link told which transfers to expect, and what does it do for those who wait for them? |
//! | [`receive_buffer`] | Where are the bytes received, and how do they get to where they belong? |

pub mod expect;
pub mod receive_buffer;
