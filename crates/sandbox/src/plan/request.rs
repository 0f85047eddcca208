//! Sandbox request: mode (off, best effort or required), limits, the parts that can be requested, and why one
//! is missing.

use core::fmt;
use core::str::FromStr;
use std::path::PathBuf;

use thiserror::Error;

use crate::cgroup::{find, memory_limit};
use crate::users::UserRange;

/// How much of the sandbox there must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// What this machine has; the rest is named in the log.
    #[default]
    Auto,
    /// All of it, or no server.
    Require,
    /// None of it: workers are what the server is.
    Off,
}

/// A text that names no [`Mode`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a mode of the sandbox: choose auto (what this machine has), require (all of it, or no \
     server) or off"
)]
pub struct UnknownMode(String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "require" => Ok(Self::Require),
            "off" => Ok(Self::Off),
            other => Err(UnknownMode(other.to_owned())),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Require => "require",
            Self::Off => "off",
        })
    }
}

/// What a server wants of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRequest {
    /// How much of it there must be.
    pub mode: Mode,
    /// The users of workers, where the server is root.
    pub users: UserRange,
    /// Whether each has one of its own, whatever NVIDIA's driver makes of that.
    pub apart: bool,
    /// The most bytes of memory that one process may use.
    pub session_memory: u64,
    /// The most bytes that the server and all its processes may use together.
    pub total_memory: u64,
    /// The file that no worker may read.
    pub key_file: Option<PathBuf>,
    /// Whether workers use NVIDIA's driver, if there is one.
    pub uses_driver: bool,
    /// The folder in which NVIDIA's MPS is reached; nothing for the one of the environment.
    pub mps: Option<PathBuf>,
}

impl Default for SandboxRequest {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            users: UserRange::DEFAULT,
            apart: false,
            session_memory: default_session_memory(),
            total_memory: default_total_memory(),
            key_file: None,
            uses_driver: false,
            mps: None,
        }
    }
}

/// Three quarters of the memory that the server may use, in bytes: one session alone cannot use up all of it.
pub fn default_session_memory() -> u64 {
    usable_memory() / 4 * 3
}

/// Nine tenths of it: all sessions together leave the rest of the machine, or of the container, some.
pub fn default_total_memory() -> u64 {
    usable_memory() / 10 * 9
}

/// The memory of this machine, or what the control groups leave of it that the server runs in, such as a
/// container's.
fn usable_memory() -> u64 {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let found = find(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
    let machine = machine_memory();
    memory_limit(&found).map_or(machine, |limit| limit.min(machine))
}

fn machine_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(i64::MAX as u64, |kibibytes| kibibytes * 1024)
}

/// A part of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A user of its own for every worker.
    Users,
    /// Workers reach no files but libraries and devices.
    Files,
    /// Workers make few system calls.
    Calls,
    /// Workers see no network.
    Network,
    /// The memory and threads of a worker are bounded.
    Memory,
    /// The server's memory is hidden from workers.
    Broker,
    /// The key cannot be read by workers.
    Key,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Users => "workers run as the server's user",
            Self::Files => {
                "workers can access every file that their user may open, and processes of their \
                user"
            }
            Self::Calls => "workers may make any system call",
            Self::Network => "workers see the server's network",
            Self::Memory => "a worker's memory is not bounded",
            Self::Broker => "workers of the server's user may read its memory",
            Self::Key => "workers can read the key",
        })
    }
}

/// Why all workers have one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// NVIDIA's MPS serves one user at a time.
    Mps,
    /// NVIDIA's driver shares events between processes of one user only: another one's `cuIpcOpenEventHandle`
    /// fails (`CUDA_ERROR_MAP_FAILED`; driver 580.159 on an H100, 2026-11-24).
    Events,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mps => "NVIDIA's MPS serves one user at a time",
            Self::Events => "NVIDIA's driver shares events between processes of one user only",
        })
    }
}

/// A part that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{part}: {why}")]
pub struct Missing {
    /// Which.
    pub part: Part,
    /// Why not.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in [Mode::Auto, Mode::Require, Mode::Off] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("on".parse::<Mode>().unwrap_err().to_string().starts_with("`on` is not a mode"));
    }
}
