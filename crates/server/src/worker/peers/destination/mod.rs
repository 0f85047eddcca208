//! Destination side of copies between servers.
//!
//! A copy takes one step after the other on one thread, so that whoever notices something, a lane's thread or
//! a completion of the back end, has only to say so there.
//!
//! | Module   | Question it answers                                                           |
//! |----------|-------------------------------------------------------------------------------|
//! | `copy`   | Which pieces of a copy are under way, and when does its stream go on?         |
//! | `reader` | What is another worker asked for, and who hears of what it sends?             |

mod copy;
mod reader;

pub use copy::copy;
pub use reader::Reader;
