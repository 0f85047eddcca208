//! The server: a broker that accepts clients, and one worker process for each of them.
//!
//! Broker and workers are one program. The [`broker`] listens, authenticates and starts workers; it never
//! touches a GPU. A [`worker`] serves one client process, so that a GPU fault, a crash or a leak ends with
//! its owner. One process more, the monitor, answers clients that only query the state of the GPUs; it is started
//! with the first such request. A client that requests a diagnosis of the server's machine (`causeway doctor --on`)
//! gets a process for that question alone. All of these processes begin with [`worker_main`].
//!
//! | module | contents |
//! | --- | --- |
//! | `broker` | The broker: listens, authenticates, and gives every client process a worker process of its own |
//! | `worker` | The worker: one process for each client process, which executes that client's commands |
//! | `monitor` | The monitor: the process that answers all monitoring sessions |
//! | `diagnosis` | A diagnosis: a process of its own says what the server's machine is like, to one client, and ends |
//! | `worker_process` | Start of a worker process: its task, its client, and its control connection to the broker |
//! | `protocol` | What broker and the processes that it starts say to each other, and over what |
//! | `heartbeat` | Heartbeat of workers: the watchdog, which says when a worker is pinged and what its pongs mean, and the progress counter of the thread that handles commands |
//! | `state_file` | State file of a session: what another worker needs to go on with it |
//! | `activity` | Activity counters of a session, which the broker reads while it runs |
//! | `admission` | Admission control: limits of handshakes and sessions, in all and per peer |
//! | `cache` | Module images that the server keeps on disk, named by the hash of their content |
//! | `token_bucket` | Token bucket: how much may pass now, at a rate and with a burst |
//! | `back_end` | Back end: selection, fallback to the software GPU where NVIDIA's driver is unusable, and opening |
//! | `fuzzing` | The bodies of the fuzz targets of this crate |
//! | `fair_queue` | Fair queue of a device: whose sessions may run kernels on it, by shares, when several peers have some to run |
//! | `locks` | The locks of this crate, in the order in which a thread may take them: `causeway_sync::ranked` checks it in debug builds |

mod activity;
mod admission;
pub mod back_end;
pub mod broker;
pub mod cache;
mod diagnosis;
mod fair_queue;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod heartbeat;
mod locks;
mod monitor;
mod protocol;
mod state_file;
mod token_bucket;
pub mod worker;
pub mod worker_process;

use std::process::ExitCode;

use worker_process::Task;

/// The whole life of a worker process: gets its task from the broker and carries it out.
pub fn worker_main() -> ExitCode {
    match Task::receive(worker::prepare) {
        Ok(Task::Session { start, prepared }) => worker::run(*start, prepared),
        Ok(Task::Monitor { gpu, control }) => monitor::run(gpu, control),
        Ok(Task::Diagnosis(connection)) => diagnosis::run(*connection),
        Err(error) => {
            tracing::error!("this worker cannot start: {error}. Only `causeway serve` starts workers");
            ExitCode::FAILURE
        }
    }
}
