//! The worker: one process for each client process, which executes that client's commands. A GPU fault, a
//! crash or a leak ends with its owner.
//!
//! | module | contents |
//! | --- | --- |
//! | `serve` | Command loop of one client's session |
//! | `engine` | Command engine of a session: who issues commands, and deferred ones |
//! | `checkpoint` | Checkpoint of a session: at a quiet point its state goes to a file, from which another worker makes it again |
//! | `journal` | Journal of a session: the commands that made what it has now, so that another worker can make it again |
//! | `idle_release` | Idle release: a session that does nothing returns its device memory until its next command |
//! | `uploads` | Host-to-device copies |
//! | `downloads` | Device-to-host copies |
//! | `rdma` | Copies that network cards make by themselves, between device memory and memory that the client has exposed |
//! | `peers` | Copies between the devices of two servers, whose workers move the bytes without the client |
//! | `memory` | Host memory of the client's program that kernels access |
//! | `waits` | Commands that wait for the GPU: the session hands them to the back end's completions and goes on |
//! | `host_functions` | Host functions of the client: a stream stops at one, and goes on when the client says that the function has returned |
//! | `exports` | Commands that share memory and events with other sessions of the server: each exports something through the broker, or takes it from there |
//! | `order` | Which command must wait for which other: the order of a session, decided without touching a GPU |
//! | `launches` | Launches of a session that shares the time of GPUs with others: they are issued while it has a slot at the device, and a few milliseconds of them at a time |
//! | `credit` | Credit of device-to-host copies: bytes in flight, in all and per stream |
//! | `incoming` | Bulk data on its way from the client: kept from its first chunk until the command that names it is issued |
//! | `uploads_in_flight` | Host-to-device copies in flight, and release of their memory |
//! | `arena` | Arena: memory that this worker shares with a client of the same host, as the GPU knows it, and buffers that receive copies from a device |
//! | `stream_task` | Work of others that has its task in a stream, of a network card or of the client: it begins when the stream gets there, and the stream goes on when it is done |
//! | `session` | Session context of a worker: GPU, objects, link, and replies |
//! | `device_memory` | Device memory of a session: what it has asked for, and the broker's leave to have more |
//! | `suspension` | Suspension of a session's device memory: its way to the host, and its return before the next command |
//! | `release_check` | Idle release decisions: whether the device memory of a session may go to the host now, and why not otherwise |
//! | `residency` | Residency: whether the session's memory is on the device, and who may use it now |
//! | `pool` | A few threads for jobs that would hold up the command stream: slow driver calls, and sending bulk data |
//! | `fuzzing` | Properties of a worker for any messages of a client |

mod arena;
mod checkpoint;
mod credit;
mod device_memory;
mod downloads;
mod engine;
mod exports;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod host_functions;
mod idle_release;
mod incoming;
mod journal;
mod launches;
mod memory;
mod order;
mod peers;
mod pool;
mod rdma;
mod release_check;
mod residency;
mod serve;
mod session;
mod stream_task;
mod suspension;
mod uploads;
mod uploads_in_flight;
mod waits;

pub use serve::{prepare, run};
