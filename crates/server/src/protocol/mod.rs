//! What broker and the processes that it starts say to each other, and over what.

pub mod control;
pub mod messages;
