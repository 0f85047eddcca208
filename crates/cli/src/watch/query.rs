//! Servers that are watched: which are meant, and why one cannot be.

use std::io;
use std::path::PathBuf;

use causeway_access::servers::ServersError;
use causeway_access::target::Endpoint;
use causeway_access::{DEFAULT_PORT, Target, machine_service};
use causeway_wire::handshake::SessionId;
use causeway_wire::status::ServerStatus;
use causeway_wire::text::Printable;
use clap::{Args, ValueEnum};
use thiserror::Error;

use crate::pool::{self, Pool, PoolError};
use crate::server::{EmptyOn, OnArguments};
use crate::status_query::{QueryError, ServerConnection};

/// A thing that is switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Used where it is available.
    On,
    /// Not used.
    Off,
}

/// The options that name the servers to watch.
#[derive(Debug, Args)]
pub struct WatchArguments {
    #[command(flatten)]
    on: OnArguments,
}

impl WatchArguments {
    /// The servers that are meant: this machine's, where none is named.
    pub fn servers(&self) -> Result<Vec<Target>, WatchError> {
        let list = match self.on.list()? {
            Some(list) => list,
            None => match machine_service() {
                Some(service) => return Ok(vec![service]),
                None => format!("127.0.0.1:{DEFAULT_PORT}"),
            },
        };
        // All servers of a pool.
        let list = match pool::reference(&list)? {
            Some(reference) => Pool::of(reference.name)?.servers()?.join(","),
            None => list,
        };
        Ok(self.on.keys().servers(&list)?)
    }

    /// Another server, by its name or address, with the key that is known for it.
    pub fn named(&self, server: &str) -> Result<Target, WatchError> {
        let mut servers = self.on.keys().servers(server)?;
        match (servers.pop(), servers.is_empty()) {
            (Some(server), true) => Ok(server),
            _ => Err(WatchError::Several(server.to_owned())),
        }
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
    /// What should name one is empty.
    #[error(transparent)]
    Empty(#[from] EmptyOn),
    /// One server is wanted, and several are named.
    #[error("`{0}` names several servers, and this command uses one")]
    Several(String),
    /// The server does not answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A pool cannot be used.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The command works on the server's host only.
    #[error(
        "{server} accepts this command only on its own host, from its own user or root, at one of its sockets ({sockets}), \
         and none of them can be reached from here: {cause}"
    )]
    NotHere {
        /// The server.
        server: String,
        /// Its sockets.
        sockets: String,
        /// Why the last of them is not reached.
        cause: String,
    },
    /// A session is named that there is not, or not alone.
    #[error("{}", which_session(.server, .text, .found))]
    WhichSession {
        /// The server.
        server: String,
        /// What was given.
        text: String,
        /// The sessions that begin so, in full.
        found: Vec<String>,
    },
    /// A session is not moved.
    #[error("session {session} was not moved: {why}")]
    Stays {
        /// The session.
        session: SessionId,
        /// Why.
        why: String,
    },
    /// A session is not saved.
    #[error("session {session} was not saved: {why}")]
    NotSaved {
        /// The session.
        session: SessionId,
        /// Why.
        why: String,
    },
    /// A session is to be restored where its program does not look for it.
    #[error(
        "the program of this session connects to {saved_at}, and {server} is not there: have a server listen there, and restore the \
         session at it (`--on {saved_at}`)"
    )]
    OtherAddress {
        /// The server.
        server: String,
        /// The address at which the session was saved.
        saved_at: String,
    },
    /// A server does not take a session up.
    #[error("{server} does not resume the session: {why}")]
    NotTaken {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
    /// A server that is drained would be its own destination.
    #[error("{server} is the server to be drained, and its sessions need another one: nothing was changed")]
    SameServer {
        /// The server.
        server: String,
    },
    /// The destination of a server's sessions takes none.
    #[error("{server} is being drained itself and accepts no sessions: nothing was changed")]
    DestinationDrains {
        /// The server.
        server: String,
    },
    /// Not all sessions of a server that was drained have moved.
    #[error("{left} of {count} sessions have not moved")]
    NotAllMoved {
        /// How many have not.
        left: usize,
        /// How many there were.
        count: usize,
    },
    /// A program has come nowhere.
    #[error(
        "the program of session {session} has connected neither to {server} nor to its old server in time; \
         it continues where it can connect, as `causeway sessions` of both servers shows"
    )]
    Lost {
        /// The session.
        session: SessionId,
        /// The other server.
        server: String,
    },
    /// A server has no address that a program could go to.
    #[error("`{server}` is not a network address, and sessions move over TCP: give HOST:PORT")]
    NoNetwork {
        /// The server.
        server: String,
    },
    /// A file cannot be used.
    #[error("{} cannot be used: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file is not its user's alone.
    #[error(
        "{} is not private to this user, so others may have written it: it must be a regular file of this \
         user with mode 600", .0.display()
    )]
    NotPrivate(PathBuf),
    /// The terminal cannot be drawn on.
    #[error("the terminal cannot be used: {0}; `causeway top --once` and --json do not need one")]
    Terminal(io::Error),
    /// The reader of what is printed is gone.
    #[error("cannot print: {0}")]
    Print(#[source] io::Error),
}

/// What is wrong with the beginning of several names, or of none, and what to type instead.
fn which_session(server: &str, text: &str, found: &[String]) -> String {
    match found {
        [] => format!("no session of {server} begins with `{text}`: `causeway sessions` lists them"),
        _ => format!(
            "`{text}` is the beginning of {} session IDs of {server}, and this command uses one session: \
             name {}",
            found.len(),
            found.join(" or ")
        ),
    }
}

/// The sockets of a server by which it is reached on its own host.
fn local_targets(status: &ServerStatus) -> Vec<Target> {
    status.sockets.iter().map(Target::unix).collect()
}

/// Names of sockets, as they may be printed.
fn printable(sockets: &[String]) -> String {
    let printable = sockets.iter().map(|name| Printable::from(name.as_str()).to_string());
    printable.collect::<Vec<_>>().join(", ")
}

/// Asks the server at a socket of this host, where the kernel tells it who asks.
pub fn on_its_host(target: &Target) -> Result<ServerConnection, WatchError> {
    let mut server = ServerConnection::connect(target)?;
    if matches!(target.endpoint, Endpoint::Unix(_)) {
        return Ok(server);
    }
    let status = server.status()?;
    let mut cause = "it has none".to_owned();
    for local in local_targets(&status) {
        let found = ServerConnection::connect(&local).and_then(|mut found| {
            let process = found.status()?.process;
            Ok((found, process))
        });
        match found {
            // Another host's server may have a socket of that name only by chance; its process tells.
            Ok((found, process)) if process == status.process => {
                return Ok(found.named(target));
            }
            Ok(_) => "it is a different server".clone_into(&mut cause),
            Err(error) => cause = error.to_string(),
        }
    }
    Err(WatchError::NotHere { server: target.to_string(), sockets: printable(&status.sockets), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_about_sessions_name_what_was_asked() {
        let which = |found: &[&str]| WatchError::WhichSession {
            server: "box:1".into(),
            text: "zz".into(),
            found: found.iter().map(|&name| name.to_owned()).collect(),
        };
        assert!(which(&[]).to_string().starts_with("no session of box:1 begins with `zz`: "));
        assert!(which(&["zz1", "zz2"]).to_string().ends_with("uses one session: name zz1 or zz2"));
        let text = WatchError::NotPrivate("f".into()).to_string();
        assert!(!text.contains("  "), "{text}");
    }
}
