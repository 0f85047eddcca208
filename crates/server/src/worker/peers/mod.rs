//! Copies between the devices of two servers, whose workers move the bytes without the client.
//!
//! The client asks the source's worker for a *ticket* and has the destination's worker connect with it; so
//! each pair of workers has a link of its own, encrypted where the server demands a key. The client *offers*
//! the source of a copy, which is all that the other worker may read, and puts the copy into a stream of the
//! destination's worker. When the stream gets there, that worker reads the offer piece by piece, several at a
//! time, and writes each to the device when it has come. The stream goes on when the last one is there.
//!
//! | module | contents |
//! | --- | --- |
//! | `copies` | Copies between servers: the requests of the engine |
//! | `accept` | Links of workers of other servers that read from this one: their connections, which arrive in any order, and their acceptance |
//! | `connect` | Connecting to a worker of another server |
//! | `source` | Source side of copies between servers: offers and read requests |
//! | `destination` | Destination side of copies between servers |
//! | `ipc_imports` | IPC imports between workers: memory that one worker's device exports to another's |
//! | `gpudirect` | What links between workers have besides bytes: descriptors of another worker's memory that are not used yet, and GPUDirect RDMA |

mod accept;
mod connect;
mod copies;
mod destination;
mod gpudirect;
mod ipc_imports;
mod source;

pub use copies::PeerCopies;
