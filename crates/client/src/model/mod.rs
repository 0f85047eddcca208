//! The client's picture of what the program has made. It sends nothing and knows no link.
//!
//! | module | contents |
//! | --- | --- |
//! | `handles` | The handles that the program holds: made here, checked here |
//! | `device` | The devices that the program sees: those of its servers, after `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` |
//! | `context` | Context state |
//! | `stream` | Streams as the client knows them, and their transfers whose bytes have not arrived yet |
//! | `completion` | Completion watermarks of streams and contexts, so that queries and idle waits need no server |
//! | `memory` | Device memory that the program has: which addresses are the device's, and what lies around them |
//! | `host_memory` | Host memory that devices reach: pinned memory of the program, and what `cuMemMap` has put at addresses that the program chose |
//! | `region` | The sides of a copy: memory of the program or of a device, of up to three dimensions |
//! | `address` | Addresses of device memory that the client gives out itself |
//! | `host_window` | The windows: addresses that both this process and the worker keep for memory that host and device share |
//! | `transfers` | Bytes on their way from a device into the program's memory |
//! | `host_writes` | Write order of device-to-host copies to the program's memory |
//! | `graph` | Graphs |
//! | `advice` | Advice for managed memory (`cuMemAdvise`) |
//! | `exchange` | IPC exchange with another process of the same server, so that it can use this one's memory: descriptors and handles |
//! | `array` | Arrays as the client knows them: their descriptors, so that copies are checked here; texture and surface objects, and bindings of the older references |

pub mod address;
pub mod advice;
pub mod array;
pub mod completion;
pub mod context;
pub mod device;
pub mod exchange;
pub mod graph;
pub mod handles;
pub mod host_memory;
pub mod host_window;
pub mod host_writes;
pub mod memory;
pub mod region;
pub mod stream;
pub mod transfers;
