//! `causeway client`: the clients of a server that have keys of their own.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_access::keys::clients::{Client, Clients, ClientsError};
use causeway_access::keys::file::KeyFileError;
use causeway_access::{ClientName, Key, Target, TargetError};
use clap::{Args, Subcommand};
use jiff::{Timestamp, ToSpan as _};
use serde_json::json;
use thiserror::Error;

use crate::own_server;

/// Let in clients that each have a key of their own, limit them and shut them out.
///
/// A holder of the server's own key may do everything that a client may, and cannot be distinguished from other holders. A
/// client with a key of its own has a name, in logs, `causeway sessions` and the audit log; it sees only its own sessions,
/// shares no memory and no cached images with others, and can be revoked, which ends its sessions. The server reads what
/// changes here at once. The clients are kept in clients.toml beside the server's key.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The server's key file, beside which its clients are kept. If not given: ~/.config/causeway/key, or /etc/causeway/key
    /// of this machine's service.
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Let a new client in, and print its connect string with its key: do not share it with others.
    Add {
        /// Its name: letters, digits, `-` and `_`.
        name: ClientName,
        /// How clients reach the server: HOST:PORT. If not given: this machine's name and the usual port.
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
        /// After how many days it is shut out. If not given: never.
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..))]
        days: Option<u16>,
        /// The most sessions that it may have at a time. If not given: as many as any peer.
        #[arg(long, value_name = "N")]
        sessions: Option<usize>,
    },
    /// List the clients; their keys are not printed.
    List {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shut a client out: its key counts no more, and its sessions end within a second.
    Revoke {
        /// Its name.
        name: ClientName,
    },
    /// Give a client another key, and print its new connect string. Its sessions go on.
    Rotate {
        /// Its name.
        name: ClientName,
        /// How clients reach the server, as for `add`.
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
        /// For how many more hours connections may be made with the old key.
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        overlap: u16,
    },
}

/// Why nothing was done about a client.
#[derive(Debug, Error)]
pub enum ClientCommandError {
    /// There is no place where keys are kept.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The list cannot be read or written.
    #[error(transparent)]
    Clients(#[from] ClientsError),
    /// The address makes no sense.
    #[error(transparent)]
    Address(#[from] TargetError),
    /// There is no server yet whose clients these could be.
    #[error(
        "there is no key file {0}, so no server of this user has been started here: start `causeway serve`, or name its file with --key-file"
    )]
    NoServer(String),
    /// There is a client of that name.
    #[error(
        "there is a client {0} already: `causeway client rotate {0}` gives it a new key, `causeway client revoke {0}` shuts it out"
    )]
    Exists(ClientName),
    /// There is no client of that name.
    #[error("there is no client {0}; `causeway client list` says which there are")]
    Unknown(ClientName),
    /// Nothing can be printed.
    #[error("standard output failed: {0}")]
    Io(#[from] io::Error),
}

/// Does what was asked.
pub fn client(arguments: &Arguments) -> Result<ExitCode, ClientCommandError> {
    let key_file = own_server::key_file(arguments.key_file.clone())?;
    if !key_file.exists() {
        return Err(ClientCommandError::NoServer(key_file.display().to_string()));
    }
    let path = Clients::path_in_folder_of(&key_file);
    match &arguments.action {
        Action::Add { name, address, days, sessions } => {
            let expires = days.map(|days| Timestamp::now() + (24 * i64::from(days)).hours());
            add(&path, *name, address.as_deref(), expires, *sessions)?;
        }
        Action::List { json } => list(&Clients::read(&path)?, *json)?,
        Action::Revoke { name } => {
            let mut clients = Clients::read(&path)?;
            clients.0.remove(name).ok_or(ClientCommandError::Unknown(*name))?;
            clients.write(&path)?;
        }
        Action::Rotate { name, address, overlap } => {
            let server = own_server::target(address.as_deref())?;
            let mut clients = Clients::read(&path)?;
            let client = clients.0.get_mut(name).ok_or(ClientCommandError::Unknown(*name))?;
            client.rotate(*name, Timestamp::now() + i64::from(*overlap).hours());
            let key = client.key.clone();
            clients.write(&path)?;
            print(server, key)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(
    path: &Path,
    name: ClientName,
    address: Option<&str>,
    expires: Option<Timestamp>,
    sessions: Option<usize>,
) -> Result<(), ClientCommandError> {
    let server = own_server::target(address)?;
    let mut clients = Clients::read(path)?;
    if clients.0.contains_key(&name) {
        return Err(ClientCommandError::Exists(name));
    }
    let client = Client { expires, sessions, ..Client::new(name) };
    let key = client.key.clone();
    clients.0.insert(name, client);
    clients.write(path)?;
    print(server, key)
}

fn print(server: Target, key: Key) -> Result<(), ClientCommandError> {
    let target = Target { key: Some(key), ..server };
    Ok(writeln!(io::stdout(), "{}", *target.connect_string())?)
}

fn list(clients: &Clients, as_json: bool) -> Result<(), ClientCommandError> {
    let mut out = io::stdout().lock();
    if as_json {
        let each = clients.0.iter().map(|(name, client)| {
            json!({
                "name": name.as_str(),
                "expires": client.expires.map(|time| time.to_string()),
                "sessions": client.sessions,
                "old_key_until": client.previous.as_ref().map(|(_, until)| until.to_string()),
            })
        });
        writeln!(out, "{:#}", json!({ "clients": each.collect::<Vec<_>>() }))?;
        return Ok(());
    }
    for (name, client) in &clients.0 {
        let mut notes = Vec::new();
        if let Some(expires) = client.expires {
            let word = if expires <= Timestamp::now() { "expired" } else { "expires" };
            notes.push(format!("{word} {expires:.0}"));
        }
        if let Some(sessions) = client.sessions {
            notes.push(format!("at most {sessions} sessions"));
        }
        if let Some((_, until)) = client.previous.as_ref().filter(|(_, until)| *until > Timestamp::now()) {
            notes.push(format!("old key good until {until:.0}"));
        }
        writeln!(out, "{}", format!("{name:<20} {}", notes.join(", ")).trim_end())?;
    }
    Ok(())
}
