//! gRPC over Unix sockets: as much of it as kubelets speak with their plugins.
//!
//! A call is a stream of HTTP/2: the path names the procedure, each message has its length in front of it, and the
//! status of the call stands in the trailers
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>). There is no compression and no encryption.
//!
//! | module | contents |
//! | --- | --- |
//! | `frame` | Frames of gRPC (a byte that says whether the message is compressed, its length, the message), and the streams of HTTP/2 that carry them |
//! | `status` | Status of a gRPC call: a code, and a sentence for people |
//! | `calls` | Calls of procedures: of another process, and the responses to calls of others |

mod calls;
pub mod frame;
pub mod status;

pub use calls::{CallError, Reply, Service, call, serve};
pub use status::{Code, Status};
