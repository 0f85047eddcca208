//! Which servers are meant, and what is to carry the sessions: the options of all commands that use some.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use causeway_access::servers::{KEY_FILE_VARIABLE, LOCAL, SOFTWARE, ServersError, parts};
use causeway_access::{Target, current_user, machine_service, servers};
use causeway_config::read::PROCESS;
use causeway_config::{ValueError, table};
use causeway_link::{ConnectError, ConnectOptions, TransportChoice, check, check_choice};
use causeway_server::broker::GpuChoice;
use clap::Args;
use thiserror::Error;

use crate::default_server::{self, NoServer};
use crate::embedded::{Embedded, EmbeddedError};
use crate::keys::{HandOverError, hand_over};
use crate::pool::{self, Held, Holder, Pool, PoolError, Reference, ServerState};
use crate::waiting;

/// The options that name servers, with the same grammar everywhere.
#[derive(Debug, Args)]
pub struct OnArguments {
    /// Server: a name from a configuration file, HOST:PORT, unix:PATH, vsock:CID:PORT, or the connect string
    /// that `causeway serve` printed; `local` for this machine's own GPUs, `software` for the software GPU,
    /// `pool:NAME` for a free GPU of a pool of servers and `pool:NAME:2` for two (`causeway pool --help`).
    /// Several servers, separated by commas or given by several --on, offer the program the GPUs of all of
    /// them, in this order. Default: `on` in the configuration files.
    #[arg(long, value_name = "SERVER[,SERVER...]", env = table::ON.name, hide_env_values = true)]
    on: Vec<String>,
    #[command(flatten)]
    keys: KeyArguments,
}

/// The options that name servers, and what carries sessions with them.
#[derive(Debug, Args)]
pub struct ServerArguments {
    #[command(flatten)]
    on: OnArguments,
    /// Transport for calls and copies: auto (the best that works), tcp, shm (memory that the program and the
    /// server share on one host), or verbs (InfiniBand). A transport that is unavailable is an error.
    /// Default: that of the configuration files, for this server or for all, or auto.
    #[arg(long, value_name = "auto|tcp|shm|verbs", env = table::VIA.name)]
    via: Option<TransportChoice>,
}

/// The options about keys and encryption.
#[derive(Debug, Clone, Args)]
pub struct KeyArguments {
    /// File with the servers' keys; each line is a key, or HOST:PORT and a key. Default: the file that the
    /// configuration names, or ~/.config/causeway/keys, which `causeway key add` fills, and then
    /// ~/.config/causeway/key, which a server of this user creates.
    #[arg(long, value_name = "FILE", env = KEY_FILE_VARIABLE)]
    key_file: Option<PathBuf>,
    /// Authenticate both ends, but send data over TCP unencrypted. For networks that no other host can reach.
    /// The server must have been started with --clear, too.
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
        let mut servers = servers(list, self.file().map(Path::to_owned))?;
        if self.clear {
            servers.iter_mut().for_each(Target::request_clear);
        }
        Ok(servers)
    }

    /// How the servers of a pool are.
    pub fn query(&self, servers: &[String]) -> Vec<ServerState> {
        pool::query(servers, |server| self.servers(server).map(|mut targets| targets.remove(0)))
    }
}

/// Why there is no server to use.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A server's address makes no sense, or its key cannot be read.
    #[error(transparent)]
    Named(#[from] ServersError),
    /// No server is named.
    #[error(transparent)]
    None(#[from] NoServer),
    /// What should name one is empty.
    #[error(transparent)]
    Empty(#[from] EmptyOn),
    /// One server is wanted, and several are named.
    #[error("`{0}` names several servers, and this command uses one")]
    Several(String),
    /// What is to carry the session makes no sense.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The server does not answer as it should.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The private server does not start.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// No GPU of a pool can be had.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// What should name a server is empty, or one part of it is, as is a secret of a pipeline that is not set.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EmptyOn {
    /// All of it.
    #[error(
        "{0} is empty: name a server, or `software` for the software GPU. If its value comes from a variable \
         or a secret, that is not set"
    )]
    All(&'static str),
    /// A part of a list.
    #[error(
        "{0} has an empty entry, between two commas or at an end of the list: name a server there, or remove \
         the comma. If its value comes from a variable or a secret, that is not set"
    )]
    Part(&'static str),
}

/// A list of servers, where there is one, of the values of --on or, where there are none but its own, of the variable.
fn named_list(values: &[String], is_variable: bool) -> Result<Option<String>, EmptyOn> {
    let list = values.join(",");
    match (list.trim().is_empty(), is_variable) {
        (false, _) if parts(&list).any(str::is_empty) => {
            Err(EmptyOn::Part(if is_variable { table::ON.name } else { "--on" }))
        }
        (false, _) => Ok(Some(list)),
        // It hides what configuration files say.
        (true, true) => Ok(None),
        (true, false) => Err(EmptyOn::All("--on")),
    }
}

impl OnArguments {
    /// The options about keys.
    pub fn keys(&self) -> &KeyArguments {
        &self.keys
    }

    /// The servers that are named by options, the variable or configuration files, as a list; nothing where
    /// none is named.
    ///
    /// # Errors
    /// When --on is empty.
    pub fn list(&self) -> Result<Option<String>, EmptyOn> {
        if self.on.is_empty() {
            return Ok(PROCESS.text(&table::ON));
        }
        let is_variable = std::env::var(table::ON.name).is_ok_and(|value| self.on == [value]);
        let Some(list) = named_list(&self.on, is_variable)? else { return Ok(None) };
        let has_key = |part: &str| part.parse::<Target>().is_ok_and(|target| target.key.is_some());
        if parts(&list).any(has_key) {
            report(
                "warning: other users can see the key in --on or CAUSEWAY_ON while this runs; save it with \
                 `causeway key add`, or in a file for --key-file, and omit it",
            );
        }
        Ok(Some(list))
    }

    /// The servers that are named, or else a private one with the software GPU. Those of this machine are
    /// started: they end with what is returned, and say nothing unless something fails or `verbose` is set.
    pub fn servers(&self, requested: &[TransportChoice], verbose: bool) -> Result<Servers, ServerError> {
        let list = self.list()?;
        if list.is_none() && !self.on.is_empty() {
            return Err(EmptyOn::All(table::ON.name).into());
        }
        self.servers_of(list.as_deref().unwrap_or(SOFTWARE), requested, verbose)
    }

    /// The servers of a list; see [`Self::servers`].
    fn servers_of(
        &self,
        list: &str,
        requested: &[TransportChoice],
        verbose: bool,
    ) -> Result<Servers, ServerError> {
        if let Some(reference) = pool::reference(list)? {
            return self.acquire(&reference);
        }
        let key_file = self.keys.file().map(Path::to_owned);
        let mut all = Servers { targets: Vec::new(), key_file, private: Vec::new(), lease: None };
        for part in parts(list) {
            let gpu = match part {
                SOFTWARE => GpuChoice::Cpu,
                LOCAL => GpuChoice::Driver,
                _ => {
                    all.targets.extend(self.keys.servers(part)?);
                    continue;
                }
            };
            let private = Embedded::with(gpu, requested, verbose)?;
            all.targets.push(private.target().clone());
            if let Some(path) = private.key_file() {
                all.key_file.get_or_insert_with(|| path.to_owned());
            }
            all.private.push(private);
        }
        Ok(all)
    }
}

impl OnArguments {
    /// Acquires GPUs of a pool for as long as this process runs.
    fn acquire(&self, reference: &Reference<'_>) -> Result<Servers, ServerError> {
        let pool = Pool::of(reference.name)?;
        let request =
            pool::Request { holder: Holder::this_process(), user: current_user(), gpus: reference.gpus };
        let held = pool.acquire(&request, |servers| self.keys.query(servers), Duration::ZERO)?;
        let targets = self.keys.servers(&held.lease.on)?;
        let key_file = self.keys.file().map(Path::to_owned);
        Ok(Servers { targets, key_file, private: Vec::new(), lease: Some(held) })
    }
}

/// Writes a line to standard error; a failure to write is ignored.
fn report(text: &str) {
    let _ = writeln!(io::stderr(), "causeway: {text}");
}

impl ServerArguments {
    /// The servers as a list; see [`OnArguments::list`].
    pub fn list(&self) -> Result<Option<String>, EmptyOn> {
        self.on.list()
    }

    /// The servers that are named, or a private one; see [`OnArguments::servers`].
    pub fn servers(&self, verbose: bool) -> Result<Servers, ServerError> {
        self.on.servers(self.via.as_slice(), verbose)
    }

    /// The servers that a program is to use: those that are named, or what [`default_server`] says.
    pub fn servers_of_program(&self, verbose: bool) -> Result<Servers, ServerError> {
        if let Some(list) = self.list()? {
            return self.on.servers_of(&list, self.via.as_slice(), verbose);
        }
        let (list, notice) = default_server::choose(self.via.is_some())?;
        notice.into_iter().for_each(report);
        self.on.servers_of(list, self.via.as_slice(), verbose)
    }

    /// Like [`Self::servers`], with the service of this machine, where there is one, in place of a private server.
    pub fn servers_or_service(&self) -> Result<Servers, ServerError> {
        match machine_service() {
            Some(service) if self.on.on.is_empty() && self.on.list()?.is_none() => {
                Ok(Servers { targets: vec![service], key_file: None, private: Vec::new(), lease: None })
            }
            _ => self.servers(false),
        }
    }

    /// Like [`Self::servers`], for a command that uses one server only.
    pub fn one_server(&self) -> Result<Servers, ServerError> {
        let servers = self.servers(false)?;
        match servers.targets.len() {
            1 => Ok(servers),
            _ => Err(ServerError::Several(servers.names())),
        }
    }

    /// Says that the server is a private one with the software GPU, where that was not asked for.
    pub fn report_private(&self, servers: &Servers) -> Result<(), ServerError> {
        if servers.has_private() && self.list()?.is_none() {
            report(
                "no server is named: this is a private one with the software GPU; --on, CAUSEWAY_ON or a configuration file name \
                 a server",
            );
        }
        Ok(())
    }

    /// What is to carry sessions with a server.
    pub fn via(&self, server: &Target) -> Result<TransportChoice, ValueError> {
        via(self.via, server)
    }

    /// The transport that a program is given for its sessions: the same for all of its servers. Nothing where
    /// configuration files say different things of them, which the program reads itself.
    pub fn via_of_program(&self, servers: &Servers) -> Result<Option<TransportChoice>, ValueError> {
        let all: Vec<_> = servers.targets.iter().map(|server| self.via(server)).collect::<Result<_, _>>()?;
        let first = all.first().copied().unwrap_or_default();
        Ok(all.iter().all(|other| *other == first).then_some(first))
    }

    /// Checks that the servers answer and that what is to carry sessions can be had at all, so that trouble is
    /// told in one sentence, before anything is started.
    pub fn check(&self, servers: &Servers) -> Result<(), ServerError> {
        for target in &servers.targets {
            let options = connect_options(self.via(target)?);
            if !servers.is_private(target) {
                waiting::with_notice(target, || check(target, &options))?;
            }
            check_choice(target, &options)?;
        }
        Ok(())
    }
}

/// What is to carry sessions with a server, where an option may say it.
pub fn via(requested: Option<TransportChoice>, server: &Target) -> Result<TransportChoice, ValueError> {
    match requested {
        Some(requested) => Ok(requested),
        None => Ok(PROCESS.of_server(server.name.as_deref()).parsed(&table::VIA)?.unwrap_or_default()),
    }
}

/// How a command connects to a server.
pub fn connect_options(via: TransportChoice) -> ConnectOptions {
    ConnectOptions { via, socket_folder: PROCESS.path(&table::SOCKET_DIR), ..ConnectOptions::default() }
}

/// The servers that a command uses. Private ones end with this.
pub struct Servers {
    /// Where they are, with their keys.
    pub targets: Vec<Target>,
    /// The file with their keys, where one is named.
    key_file: Option<PathBuf>,
    private: Vec<Embedded>,
    /// The GPUs of a pool that were taken; they are released with this.
    lease: Option<Held>,
}

impl Servers {
    /// Whether something must end when the program has ended.
    pub fn outlive_program(&self) -> bool {
        self.has_private() || self.lease.is_some()
    }

    /// Whether one of the servers ends with the command.
    pub fn has_private(&self) -> bool {
        !self.private.is_empty()
    }

    /// Whether all are software GPUs that end with the command.
    #[cfg(feature = "software")]
    pub fn are_software(&self) -> bool {
        let is_software = |target: &Target| {
            let server = self.private.iter().find(|private| private.target() == target);
            server.is_some_and(|private| private.gpu() == GpuChoice::Cpu)
        };
        self.targets.iter().all(is_software)
    }

    /// Whether a server ends with the command.
    pub fn is_private(&self, server: &Target) -> bool {
        self.private.iter().any(|private| private.target() == server)
    }

    /// The file with their keys, where one is named.
    pub fn key_file(&self) -> Option<&Path> {
        self.key_file.as_deref()
    }

    /// What tables and plots call a server.
    pub fn label(&self, server: &Target) -> String {
        match self.private.iter().find(|private| private.target() == server).map(Embedded::gpu) {
            Some(GpuChoice::Cpu) => "software GPU".to_owned(),
            Some(GpuChoice::Driver | GpuChoice::Auto { .. }) => LOCAL.to_owned(),
            None => server.name.clone().unwrap_or_else(|| server.to_string()),
        }
    }

    /// Their addresses, without what is secret.
    pub fn names(&self) -> String {
        self.targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Makes a program use them.
    pub fn hand_over(&self, command: &mut Command) -> Result<(), HandOverError> {
        if let Some(held) = &self.lease {
            command.env(table::CUDA_VISIBLE_DEVICES.name, &held.lease.devices);
        }
        hand_over(command, &self.targets, self.key_file.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_option_is_an_error_and_an_empty_variable_is_none() {
        let list = |values: &[&str], is_variable| {
            named_list(&values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>(), is_variable)
        };
        assert_eq!(list(&["a", "b"], false), Ok(Some("a,b".to_owned())));
        assert_eq!(list(&[""], true), Ok(None));
        for (values, is_variable, name) in [(["a,,b"], true, "CAUSEWAY_ON"), (["a,"], false, "--on")] {
            let error = list(&values, is_variable).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} has an empty entry")), "{error}");
        }
        for empty in ["", "  "] {
            let error = list(&[empty], false).unwrap_err().to_string();
            assert!(error.starts_with("--on is empty") && error.contains("secret"), "{error}");
        }
    }
}
