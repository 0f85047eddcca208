//! Trial start of NVIDIA's driver on this machine.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use causeway_server::back_end;
use causeway_server::broker::GpuChoice;
use thiserror::Error;

use crate::launch;

/// Why it cannot be used.
#[derive(Debug, Error)]
pub enum TrialError {
    /// It, or who tried it, says why.
    #[error("{0}")]
    Reason(String),
    /// It cannot be tried.
    #[error("cannot start a process that tries NVIDIA's driver: {0}")]
    NotTried(#[from] io::Error),
}

/// Starts the driver once, in a process of its own: a server's must not load it. A server that could serve no client does
/// not begin.
pub fn try_driver() -> Result<(), TrialError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("try-driver").stdin(Stdio::null());
    // The signals that end a server, which it keeps back, end this process as well.
    let default_signals = || launch::Signals::unblock(&[libc::SIGTERM, libc::SIGINT]);
    // SAFETY: between fork and exec one async-signal-safe call is made.
    unsafe { command.pre_exec(default_signals) };
    let outcome = command.output()?;
    if outcome.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&outcome.stdout);
    Err(TrialError::Reason(match output.trim() {
        "" => format!("a process that tries it ended with {}", outcome.status),
        cause => cause.trim_end_matches('.').to_owned(),
    }))
}

/// Starts the driver, and prints why if it cannot be.
pub fn try_driver_here() -> Result<ExitCode, io::Error> {
    let Err(cause) = back_end::open_gpu(GpuChoice::Driver) else { return Ok(ExitCode::SUCCESS) };
    writeln!(io::stdout(), "{cause}")?;
    Ok(ExitCode::FAILURE)
}
