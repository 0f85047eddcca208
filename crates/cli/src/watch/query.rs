//! Status queries: a connection to a server that is watched, and which servers are meant.

use std::io;
use std::time::Duration;

use causeway_access::servers::ServersError;
use causeway_access::{DEFAULT_PORT, Target, machine_service};
use causeway_api::calls::COMMANDS;
use causeway_connection::exchange::{Exchange, ExchangeError};
use causeway_link::{ConnectError, ConnectOptions, connect_status, describe_process};
use causeway_wire::codec::{DecodeError, Decoder, Encode as _};
use causeway_wire::status::{Reply, ServerStatus, StatusRequest};
use causeway_wire::text::Printable;
use clap::Args;
use thiserror::Error;

use crate::server::OnArguments;

/// How long a server may take to answer; it may have to start the library that tells of its devices.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The options that name the servers to watch.
#[derive(Debug, Args)]
pub struct WatchArguments {
    #[command(flatten)]
    on: OnArguments,
}

impl WatchArguments {
    /// The servers that are meant: this machine's, where none is named.
    pub fn servers(&self) -> Result<Vec<Target>, WatchError> {
        let list = match self.on.list() {
            Some(list) => list,
            None => match machine_service() {
                Some(service) => return Ok(vec![service]),
                None => format!("127.0.0.1:{DEFAULT_PORT}"),
            },
        };
        Ok(self.on.keys().servers(&list)?)
    }

    /// The one server that is meant.
    pub fn one_server(&self) -> Result<Target, WatchError> {
        let mut servers = self.servers()?;
        match (servers.pop(), servers.is_empty()) {
            (Some(server), true) => Ok(server),
            (last, _) => {
                let names: Vec<_> = servers.iter().chain(&last).map(Target::to_string).collect();
                Err(WatchError::Several(names.join(", ")))
            }
        }
    }
}

/// Why a server cannot be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// A server's address makes no sense, or its key cannot be read.
    #[error(transparent)]
    Named(#[from] ServersError),
    /// One server is wanted, and several are named.
    #[error("`{0}` names several servers, and this command uses one")]
    Several(String),
    /// The server gives no answers.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection failed.
    #[error("{server} does not answer any more: {cause}")]
    Lost {
        /// The server.
        server: String,
        /// What happened.
        cause: ExchangeError,
    },
    /// The server has ended the connection.
    #[error("{0} has ended the connection")]
    Ended(String),
    /// The answer makes no sense.
    #[error(
        "the answer of {server} cannot be understood: {cause}; `causeway --version` on both machines tells \
         more"
    )]
    Damaged {
        /// The server.
        server: String,
        /// What is wrong with it.
        cause: DecodeError,
    },
    /// The server refuses to answer.
    #[error("{server} refuses: {text}")]
    Refused {
        /// The server.
        server: String,
        /// In its words.
        text: Printable,
    },
    /// The server answers something else.
    #[error("{0} answers another question")]
    Confused(String),
    /// The command works on the server's host only.
    #[error(
        "{server} can be drained on its own host only, by its own user or root, at one of its sockets ({sockets}), and \
         none of them is reached from here: {cause}"
    )]
    NotHere {
        /// The server.
        server: String,
        /// Its sockets.
        sockets: String,
        /// Why the last of them is not reached.
        cause: String,
    },
    /// The terminal cannot be drawn on.
    #[error("the terminal cannot be used: {0}; `causeway top --once` and --json need none")]
    Terminal(io::Error),
    /// Nobody reads what is printed.
    #[error("nothing can be printed: {0}")]
    Print(io::Error),
}

/// A server that answers.
pub struct ServerConnection {
    name: String,
    exchange: Exchange,
}

impl ServerConnection {
    /// Connects to a server.
    pub fn connect(target: &Target) -> Result<Self, WatchError> {
        let hello = describe_process(COMMANDS, Vec::new());
        let exchange = connect_status(target, &hello, &ConnectOptions::default())?;
        Ok(Self { name: target.to_string(), exchange })
    }

    /// The server's address without its key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the server is.
    pub fn status(&mut self) -> Result<ServerStatus, WatchError> {
        match self.ask(StatusRequest::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(self.unwanted(other)),
        }
    }

    /// Has the server take no new sessions; returns how many it waits for, and whether it did already.
    pub fn drain(&mut self, seconds: u32) -> Result<(u32, bool), WatchError> {
        match self.ask(StatusRequest::Drain { seconds })? {
            Reply::Draining { sessions, already } => Ok((sessions, already)),
            other => Err(self.unwanted(other)),
        }
    }

    fn unwanted(&self, reply: Reply) -> WatchError {
        let server = self.name.clone();
        match reply {
            Reply::Refused { text } => WatchError::Refused { server, text },
            Reply::Status(_) | Reply::Draining { .. } => WatchError::Confused(server),
        }
    }

    fn ask(&mut self, request: StatusRequest) -> Result<Reply, WatchError> {
        let server = || self.name.clone();
        let reply = self.exchange.request(RESPONSE_TIMEOUT, |out| request.encode(out));
        let reply = reply.map_err(|cause| WatchError::Lost { server: server(), cause })?;
        let reply = reply.ok_or_else(|| WatchError::Ended(server()))?;
        // What is left over is a later release's.
        Decoder::new(&reply).value().map_err(|cause| WatchError::Damaged { server: server(), cause })
    }
}

/// The sockets of a server by which it is reached on its own host.
pub fn local_targets(status: &ServerStatus) -> Vec<Target> {
    status.sockets.iter().map(Target::unix).collect()
}

/// Names of sockets, as they may be printed.
pub fn printable(sockets: &[String]) -> String {
    let printable = sockets.iter().map(|name| Printable::from(name.as_str()).to_string());
    printable.collect::<Vec<_>>().join(", ")
}
