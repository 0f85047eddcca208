//! On which GPUs does a program run that measures by itself?

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_config::table;
use causeway_link::TransportChoice;

use super::error::TargetError;
use crate::embedded::Embedded;
use crate::keys::{HandOverError, hand_over};
use crate::launch;
use crate::server::OnArguments;

/// One GPU, and the way to it.
#[derive(Clone)]
pub enum Gpu {
    /// This machine's own, with NVIDIA's driver.
    Native,
    /// That of a server.
    Server {
        /// The server.
        server: causeway_access::Target,
        /// The file of its key.
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
            Self::Server { via, .. } => format!("causeway {via}"),
        }
    }

    /// Starts a program that uses it; `client` is the folder with our client library, where a server is used.
    pub fn command(&self, words: &[OsString], client: Option<&Path>) -> Result<Command, HandOverError> {
        match (self, client) {
            (Self::Server { server, key_file, via }, Some(client)) => {
                let mut command = launch::command(words, client);
                hand_over(&mut command, core::slice::from_ref(server), key_file.as_deref())?;
                command.env(table::VIA.name, via.to_string());
                Ok(command)
            }
            _ => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
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
    /// This machine's own GPU if it is asked for, and one server by each transport; a private server with the
    /// software GPU where neither is named.
    pub fn new(on: &OnArguments, is_native: bool, via: &[TransportChoice]) -> Result<Self, TargetError> {
        let named = match on.list() {
            Some(list) => on.keys().servers(&list)?,
            None => Vec::new(),
        };
        let (server, key_file, private) = match (named.as_slice(), is_native) {
            ([], true) => (None, None, None),
            ([], false) => {
                let private = Embedded::start(via, false)?;
                (Some(private.target().clone()), private.key_file().map(Path::to_owned), Some(private))
            }
            ([server], _) => (Some(server.clone()), on.keys().file().map(Path::to_owned), None),
            (several, _) => return Err(TargetError::Several(several.len())),
        };
        let native = is_native.then_some(Gpu::Native);
        let servers = server.into_iter().flat_map(|server| {
            via.iter().map({
                let key_file = key_file.clone();
                move |via| Gpu::Server { server: server.clone(), key_file: key_file.clone(), via: *via }
            })
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
