//! The servers: sessions with them, and what travels there and back.
//!
//! | module | contents |
//! | --- | --- |
//! | `callbacks` | Callbacks of a session to the code that opened it |
//! | `session` | The sessions with servers: opening them, and sending commands |
//! | `transfers` | Reception of transfers into the program's memory |
//! | `plans` | Copy plan lookup |
//! | `mirrored` | Memory of the program that kernels reach, although they run on another machine |
//! | `registered` | Registration of pinned memory with the RDMA devices of sessions, for zero-copy reads and writes |
//! | `image` | Images of modules: where one ends, of which programs pass only the address; what it is called; how it is sent |
//! | `peers` | Ways from server to server, by which copies between their devices go without passing here |

pub mod callbacks;
pub mod image;
pub mod mirrored;
pub mod peers;
pub mod plans;
pub mod registered;
pub mod session;
pub mod transfers;
