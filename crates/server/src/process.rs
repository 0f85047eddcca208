//! Entry point of processes that the broker starts.

use std::process::ExitCode;

use crate::handover::Task;
use crate::{diagnosis, monitor, worker};

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
