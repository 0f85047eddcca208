//! GPUs on which a program that measures by itself runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_config::table;
use causeway_link::TransportChoice;

use super::error::TargetError;
use crate::embedded::Embedded;
use crate::keys::{HandOverError, hand_over};
use crate::launch;
use crate::server::{OnArguments, ServerError};

/// A process's GPUs, and the way to them.
#[derive(Clone)]
pub enum Gpu {
    /// This machine's own, with NVIDIA's driver.
    Native,
    /// Those of servers: the process has the devices of the first one, then those of the next.
    Server {
        /// The servers.
        servers: Vec<causeway_access::Target>,
        /// The file of their keys.
        key_file: Option<PathBuf>,
        /// What carries calls and copies.
        via: TransportChoice,
    },
}

impl Gpu {
    /// What tables and plots call it.
    pub fn name(&self) -> String {
        match self {
            Self::Native => "native".to_owned(),
            Self::Server { servers, via, .. } => match servers.len() {
                1 => format!("causeway {via}"),
                several => format!("causeway {via}, {several} servers"),
            },
        }
    }

    /// Starts a program that uses it; `client` is the folder with our client library, where a server is used.
    pub fn command(&self, arguments: &[OsString], client: Option<&Path>) -> Result<Command, HandOverError> {
        match (self, client) {
            (Self::Server { servers, key_file, via }, Some(client)) => {
                let mut command = launch::command(arguments, client);
                hand_over(&mut command, servers, key_file.as_deref())?;
                command.env(table::VIA.name, via.to_string());
                Ok(command)
            }
            _ => {
                let mut command = Command::new(&arguments[0]);
                command.args(&arguments[1..]);
                Ok(command)
            }
        }
    }
}

/// The GPUs that are measured.
pub struct Gpus {
    /// This machine's own first.
    pub each: Vec<Gpu>,
    /// The private server, if no other GPU is named.
    private: Option<Embedded>,
}

impl Gpus {
    /// This machine's own GPU if it is asked for, and the servers together by each transport; a private server
    /// with the software GPU where neither is named.
    pub fn new(on: &OnArguments, is_native: bool, via: &[TransportChoice]) -> Result<Self, TargetError> {
        let named = match on.list().map_err(ServerError::from)? {
            Some(list) => on.keys().servers(&list)?,
            None => Vec::new(),
        };
        let (servers, key_file, private) = match (named.as_slice(), is_native) {
            ([], true) => (Vec::new(), None, None),
            ([], false) => {
                let private = Embedded::start(via, false)?;
                (vec![private.target().clone()], private.key_file().map(Path::to_owned), Some(private))
            }
            _ => (named, on.keys().file().map(Path::to_owned), None),
        };
        let native = is_native.then_some(Gpu::Native);
        let via = if servers.is_empty() { &[] } else { via };
        let servers = via.iter().map(|via| Gpu::Server {
            servers: servers.clone(),
            key_file: key_file.clone(),
            via: *via,
        });
        Ok(Self { each: native.into_iter().chain(servers).collect(), private })
    }

    /// Whether the software GPU of a private server stands in for one that nobody has named.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Whether a client library is needed.
    pub fn has_server(&self) -> bool {
        self.each.iter().any(|gpu| matches!(gpu, Gpu::Server { .. }))
    }
}
