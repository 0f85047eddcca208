//! Which server is meant, and what is to carry the session: the options of all commands that use one.

use causeway_fabric::ViaChoice;
use clap::Args;

/// The options that name a server.
#[derive(Debug, Args)]
pub struct ServerArguments {
    /// The server: HOST:PORT, or the connect string that `causeway serve` printed; or several, with commas between
    /// them, whose GPUs a program then has one after the other. If not given: a private server with the software GPU.
    #[arg(long, value_name = "SERVER[,SERVER...]", env = "CAUSEWAY_ON", hide_env_values = true)]
    on: Option<String>,
    /// What carries calls and copies: auto (the best that works), tcp, shm (memory that program and server share on
    /// one host), or verbs (InfiniBand). What cannot be had is an error.
    #[arg(long, value_name = "auto|tcp|shm|verbs", env = "CAUSEWAY_VIA", default_value_t)]
    pub via: ViaChoice,
}

impl ServerArguments {
    /// The server's address, unless a private one is meant.
    pub fn on(&self) -> Option<&str> {
        self.on.as_deref().map(str::trim).filter(|on| !on.is_empty())
    }
}
