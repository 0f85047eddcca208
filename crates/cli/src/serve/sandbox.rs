//! Options of the workers' sandbox.

use std::path::PathBuf;

use causeway_sandbox::{Mode, SandboxRequest, UserRange, default_session_memory, default_total_memory};
use clap::Args;

use super::values::size;

/// Less memory than this is used by a worker that does nothing yet.
const MIN_MEMORY_BYTES: u64 = 64 << 20;

/// The options about the sandbox.
#[derive(Debug, Clone, Copy, Args)]
pub struct Sandbox {
    /// What keeps workers from the rest of this machine, should a client make one run foreign code: auto (what the
    /// system has; the log names what is missing), require (all of it, or the server does not start) or off.
    #[arg(long, value_name = "auto|require|off", default_value_t = Mode::Auto)]
    sandbox: Mode,
    /// The most memory that a session's worker may use, in bytes, or with K, M, G or T behind the number, where the
    /// server can make control groups. A worker that wants more is ended. If not given: three quarters of the
    /// machine's, or of what the server's own control group, such as a container's, may use.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    session_memory: Option<u64>,
    /// The most memory that the server and all sessions may use together, in the same way. If there is not enough,
    /// the worker that uses most is ended. If not given: nine tenths of the machine's, or of what the server's own
    /// control group may use.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    total_memory: Option<u64>,
    /// The users as which workers run when the server is root; no other process may have them. Each worker gets one of its
    /// own. If not given: numbers above the ranges of distributions, containers and directory services; and with
    /// NVIDIA's driver all workers share the first, since it shares events between processes of one user only.
    #[arg(long, value_name = "FIRST-LAST")]
    worker_users: Option<UserRange>,
}

impl Sandbox {
    /// What is wanted of the sandbox of a server whose key is in this file.
    pub fn wanted(&self, key_file: Option<PathBuf>) -> SandboxRequest {
        SandboxRequest {
            mode: self.sandbox,
            users: self.worker_users.unwrap_or(UserRange::DEFAULT),
            apart: self.worker_users.is_some(),
            session_memory: self.session_memory.unwrap_or_else(default_session_memory),
            total_memory: self.total_memory.unwrap_or_else(default_total_memory),
            key_file,
            ..SandboxRequest::default()
        }
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    match size(text).map_err(|error| error.to_string())? {
        bytes if bytes < MIN_MEMORY_BYTES => {
            Err(format!("a worker needs more than `{text}`: give 64M or more"))
        }
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_gets_as_much_memory_as_its_worker_needs() {
        assert_eq!(parse_memory("64M"), Ok(MIN_MEMORY_BYTES));
        assert!(parse_memory("63M").unwrap_err().contains("64M or more"));
        assert!(parse_memory("much").is_err());
    }
}
