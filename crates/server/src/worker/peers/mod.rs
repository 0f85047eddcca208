//! Copies between the devices of two servers, whose workers move the bytes without the client.
//!
//! The client asks the source's worker for a *ticket* and has the destination's worker connect with it; so
//! each pair of workers has a link of its own, encrypted where the server demands a key. The client *offers*
//! the source of a copy, which is all that the other worker may read, and puts the copy into a stream of the
//! destination's worker. When the stream gets there, that worker reads the offer piece by piece, several at a
//! time, and writes each to the device when it has come. The stream goes on when the last one is there.
//!
//! | Module        | Question it answers                                               |
//! |---------------|-------------------------------------------------------------------|
//! | `copies`      | What does the engine ask for?                                     |
//! | `accept`      | How does a worker of another server get to this one?              |
//! | `connect`     | How does this worker get to one of another server?                |
//! | `source`      | What may another worker read, and how does it get it?             |
//! | `destination` | What is read when, and when does the stream go on?                |
//! | `ipc_imports` | What do devices of one machine copy without the workers?          |
//! | `gpudirect` | Which descriptors of exported memory wait for the client's word?      |

mod accept;
mod connect;
mod copies;
mod destination;
mod gpudirect;
mod ipc_imports;
mod source;

pub use copies::PeerCopies;
