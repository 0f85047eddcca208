//! The session protocol without I/O: what the bytes between a client and its worker mean.
//!
//! Nothing here opens a socket, reads a clock or starts a thread; bytes come in as slices and go out into
//! vectors, so every rule can be tested (and fuzzed) without a network. From the outside in:
//!
//! | module | contents |
//! | --- | --- |
//! | `handshake` | The handshake: how a client and a server agree to talk |
//! | `frame` | Frames: the units in which messages travel on the command connection |
//! | `sequence` | Sequence numbers and acknowledgements of one end of a command connection |
//! | `message` | Messages: what a client and its worker say to each other once they are connected |
//! | `chunk` | Chunks: the pieces in which a large copy travels on the bulk lanes |
//! | `remote_region` | Memory of one end that the network card of the other end may read or write, as a command names it |
//! | `moves` | Moves of sessions: what a caller that moves one, or puts one aside, asks the servers |
//! | `relocation` | Relocation of a session: where its client finds it from now on, and the state of the link that it takes up there |
//! | `status` | Status protocol: sessions, devices, drain |
//! | `diagnosis` | What a client asks in a diagnosis: a session in which a process of the server says what its machine is like |
//! | `codec` | Little-endian encoding of values into messages, and its checked inverse |
//! | `text` | Printable text: characters that are safe for terminals and logs |
//! | `compressed` | Messages that travel compressed: the body of a frame of kind `CompressedMessages`(crate::frame::FrameKind::CompressedMessages) |

pub mod chunk;
pub mod codec;
pub mod compressed;
pub mod diagnosis;
pub mod frame;
pub mod handshake;
pub mod message;
pub mod moves;
pub mod relocation;
pub mod remote_region;
pub mod sequence;
pub mod status;
pub mod text;
