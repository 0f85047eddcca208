//! Which server is meant, and what is to carry the session: the options of all commands that use one.

use std::path::PathBuf;

use causeway_fabric::{ConnectError, ConnectOptions, Target, TargetError, ViaChoice, check};
use causeway_server::broker::StartError;
use clap::Args;
use thiserror::Error;

use crate::embedded::Embedded;

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

/// Why there is no server to use.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The server's address makes no sense.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The server does not answer as it should.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The private server does not start.
    #[error(transparent)]
    Embedded(#[from] StartError),
}

impl ServerArguments {
    /// The servers that are named, or a private one, which says nothing unless something fails or `verbose` is set.
    pub fn servers(&self, verbose: bool) -> Result<Servers, ServerError> {
        self.servers_in(Target::list, verbose)
    }

    /// Like [`Self::servers`], for a command that uses one server only.
    pub fn one_server(&self) -> Result<Servers, ServerError> {
        self.servers_in(|on| Ok(vec![on.parse()?]), false)
    }

    fn servers_in(
        &self,
        parse: impl FnOnce(&str) -> Result<Vec<Target>, TargetError>,
        verbose: bool,
    ) -> Result<Servers, ServerError> {
        if let Some(on) = named(self.on.as_deref()) {
            return Ok(Servers { targets: parse(on)?, private: None });
        }
        let private = Embedded::start(verbose)?;
        Ok(Servers { targets: vec![private.target().clone()], private: Some(private) })
    }
}

/// What an option that names a server names, unless it is empty.
pub fn named(on: Option<&str>) -> Option<&str> {
    on.map(str::trim).filter(|on| !on.is_empty())
}

/// How a command connects to a server.
pub fn connect_options(via: ViaChoice) -> ConnectOptions {
    ConnectOptions {
        via,
        socket_folder: std::env::var_os("CAUSEWAY_SOCKET_DIR").map(PathBuf::from),
        ..ConnectOptions::default()
    }
}

/// The servers that a command uses. A private one ends with this.
pub struct Servers {
    /// Where they are.
    pub targets: Vec<Target>,
    private: Option<Embedded>,
}

impl Servers {
    /// Whether the server is a private one, with the software GPU.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Checks that the servers answer and that `via` can be had at all, so that trouble is told in one sentence, before
    /// anything is started.
    pub fn check(&self, via: ViaChoice) -> Result<(), ServerError> {
        let options = connect_options(via);
        if !self.is_private() {
            self.targets.iter().try_for_each(|target| check(target, &options))?;
        }
        Ok(self.targets.iter().try_for_each(|target| options.check(target))?)
    }
}
