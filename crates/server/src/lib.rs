//! The server: a broker that accepts clients, and one worker process for each of them.
//!
//! Broker and workers are one program. The [`broker`] listens, authenticates and starts workers; it never
//! touches a GPU. A [`worker`] serves one client process, so that a GPU fault, a crash or a leak ends with
//! its owner. One process more, the monitor, answers everybody who only asks how the GPUs are; it is started
//! with the first such question. And whoever asks what the server's machine is like (`causeway doctor --on`)
//! gets a process for that question alone. All of these processes begin with [`worker_main`].
//!
//! | room | question |
//! | --- | --- |
//! | [`broker`] | Who serves whom? |
//! | [`worker`], `monitor`, `diagnosis` | How is a client served, asked about the GPUs, told of the machine? |
//! | [`handover`] | How does a process get its client, and how does it reach the broker? |
//! | `protocol` | What do broker and processes say to each other? |
//! | [`heartbeat`] | Does a worker still work? |
//! | `state_file` | How does a session's state travel to another worker? |
//! | `activity` | What has a session done, as its broker sees it while it runs? |
//! | `admission` | Who may come in, and how many may stay? |
//! | [`cache`] | Which images of earlier sessions are kept? |
//! | `token_bucket` | How much may pass now? |
//! | [`back_end`] | What executes driver calls? |

mod activity;
mod admission;
pub mod back_end;
pub mod broker;
pub mod cache;
mod diagnosis;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod handover;
pub mod heartbeat;
mod monitor;
mod protocol;
mod state_file;
mod token_bucket;
pub mod worker;

use std::process::ExitCode;

use handover::Task;

/// The whole life of a worker process: gets its task from the broker and carries it out.
pub fn worker_main() -> ExitCode {
    match Task::receive(worker::prepare) {
        Ok(Task::Session { start, prepared }) => worker::run(*start, prepared),
        Ok(Task::Monitor { gpu, control }) => monitor::run(gpu, control),
        Ok(Task::Diagnosis(connection)) => diagnosis::run(*connection),
        Err(error) => {
            tracing::error!(
                "this worker cannot begin: {error}. Workers are started by `causeway serve` only"
            );
            ExitCode::FAILURE
        }
    }
}
