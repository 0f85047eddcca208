//! Which server is meant, and what is to carry the session: the options of all commands that use one.

use causeway_config::read::PROCESS;
use causeway_config::table;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_access::Target;
use causeway_access::keys::{self, ServersError};
use causeway_link::{ConnectError, ConnectOptions, TransportChoice, check, check_choice};
use clap::Args;
use thiserror::Error;

use crate::embedded::{Embedded, EmbeddedError};
use crate::keys::{HandOverError, hand_over};

/// The options that name a server.
#[derive(Debug, Args)]
pub struct ServerArguments {
    /// The server: HOST:PORT, unix:PATH, or the connect string that `causeway serve` printed; or several,
    /// with commas between them, whose GPUs a program then has one after the other. If not given: a private
    /// server with the software GPU, which nobody else can reach; if empty, the same, which is then said.
    #[arg(long, value_name = "SERVER[,SERVER...]", env = table::ON.name, hide_env_values = true)]
    on: Option<String>,
    /// What carries calls and copies: auto (the best that works), tcp, shm (memory that program and server
    /// share on one host), or verbs (InfiniBand). What cannot be had is an error.
    #[arg(long, value_name = "auto|tcp|shm|verbs", env = table::VIA.name, default_value_t)]
    pub via: TransportChoice,
    #[command(flatten)]
    keys: KeyArguments,
}

/// The options about keys and encryption.
#[derive(Debug, Clone, Args)]
pub struct KeyArguments {
    /// A file with the servers' keys: a line is a key, or HOST:PORT and a key. If not given:
    /// ~/.config/causeway/keys, which `causeway key add` fills, and then ~/.config/causeway/key, which a
    /// server of this user has made.
    #[arg(long, value_name = "FILE", env = keys::VARIABLE)]
    key_file: Option<PathBuf>,
    /// Prove who is there, but do not encrypt what is sent over TCP: for a network that nobody else can
    /// reach. The server must have been started with --clear, too.
    #[arg(long)]
    clear: bool,
}

impl KeyArguments {
    /// The key file that the user has named.
    pub fn file(&self) -> Option<&Path> {
        self.key_file.as_deref().filter(|path| !path.as_os_str().is_empty())
    }

    /// The servers of a list with commas between them, with their keys.
    pub fn servers(&self, list: &str) -> Result<Vec<Target>, ServersError> {
        if Target::list(list)?.iter().any(|target| target.key.is_some()) {
            // When nobody reads our standard error there is nobody to tell.
            let _ = writeln!(
                io::stderr(),
                "causeway: warning: the key in --on or CAUSEWAY_ON can be seen by others while this runs; keep it with \
                 `causeway key add`, or in a file for --key-file, and leave it out"
            );
        }
        let mut servers = keys::servers(list, self.file().map(Path::to_owned))?;
        if self.clear {
            servers.iter_mut().for_each(Target::ask_for_clear);
        }
        Ok(servers)
    }
}

/// Why there is no server to use.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A server's address makes no sense, or its key cannot be read.
    #[error(transparent)]
    Named(#[from] ServersError),
    /// One server is wanted, and several are named.
    #[error("`{0}` names several servers, and this command uses one")]
    Several(String),
    /// The server does not answer as it should.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The private server does not start.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
}

impl ServerArguments {
    /// The servers that are named, or a private one, which says nothing unless something fails or `verbose`
    /// is set.
    pub fn servers(&self, verbose: bool) -> Result<Servers, ServerError> {
        let key_file = self.keys.file().map(Path::to_owned);
        if let Some(on) = named(self.on.as_deref()) {
            return Ok(Servers { targets: self.keys.servers(on)?, key_file, private: None });
        }
        if self.on.is_some() {
            // When nobody reads our standard error there is nobody to tell.
            let _ = writeln!(
                io::stderr(),
                "causeway: --on or CAUSEWAY_ON is empty and names no server: a private one with the software GPU is used"
            );
        }
        let private = Embedded::start(&[self.via], verbose)?;
        let key_file = private.key_file().map(Path::to_owned);
        Ok(Servers { targets: vec![private.target().clone()], key_file, private: Some(private) })
    }

    /// Like [`Self::servers`], for a command that uses one server only.
    pub fn one_server(&self) -> Result<Servers, ServerError> {
        let servers = self.servers(false)?;
        match servers.targets.len() {
            1 => Ok(servers),
            _ => Err(ServerError::Several(servers.names())),
        }
    }
}

/// What an option that names a server names, unless it is empty.
pub fn named(on: Option<&str>) -> Option<&str> {
    on.map(str::trim).filter(|on| !on.is_empty())
}

/// How a command connects to a server.
pub fn connect_options(via: TransportChoice) -> ConnectOptions {
    ConnectOptions { via, socket_folder: PROCESS.path(&table::SOCKET_DIR), ..ConnectOptions::default() }
}

/// The servers that a command uses. A private one ends with this.
pub struct Servers {
    /// Where they are, with their keys.
    pub targets: Vec<Target>,
    /// The file with their keys, where one is named.
    key_file: Option<PathBuf>,
    private: Option<Embedded>,
}

impl Servers {
    /// Whether the server is a private one, with the software GPU.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Their addresses, without what is secret.
    pub fn names(&self) -> String {
        self.targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Makes a program use them.
    pub fn hand_over(&self, command: &mut Command) -> Result<(), HandOverError> {
        hand_over(command, &self.targets, self.key_file.as_deref())
    }

    /// Checks that the servers answer and that `via` can be had at all, so that trouble is told in one
    /// sentence, before anything is started.
    pub fn check(&self, via: TransportChoice) -> Result<(), ServerError> {
        let options = connect_options(via);
        if !self.is_private() {
            self.targets.iter().try_for_each(|target| check(target, &options))?;
        }
        Ok(self.targets.iter().try_for_each(|target| check_choice(target, &options))?)
    }
}
