//! The servers: sessions with them, and what travels there and back.
//!
//! | Module | Question it answers |
//! |---|---|
//! | [`callbacks`] | What is asked and told upwards? |
//! | [`session`] | How do commands leave, and how do replies come back? |
//! | [`transfers`] | How do bytes of copies come into the program's memory? |
//! | [`plans`] | Into which pieces is a copy cut, and how are they carried? |
//! | [`mirrored`] | How do kernels reach memory of the program? |
//! | [`registered`] | Which memory is the network card's, too? |
//! | [`image`] | Where does code come from, and how does the server get it? |
//! | [`peers`] | How do servers reach each other? |

pub mod callbacks;
pub mod image;
pub mod mirrored;
pub mod peers;
pub mod plans;
pub mod registered;
pub mod session;
pub mod transfers;
