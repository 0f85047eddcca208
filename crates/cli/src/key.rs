//! `causeway key`: keys of servers, and how one gets from a server to its clients.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use causeway_access::keys::file::{self, KeyFileError, Line};
use causeway_access::servers::{ServersError, servers};
use causeway_access::{Target, TargetError};
use clap::{Args, Subcommand};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::{hidden_input, own_server};

/// Show the key of this machine's server, and manage keys of other servers.
///
/// A server proves its identity by its key, and accepts clients that hold it. It creates the key at its first
/// start, in ~/.config/causeway/key. If that file is deleted or replaced, the old key is no longer accepted
/// for new sessions.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the connect string of a server that runs here, with its key: keep it secret.
    Show {
        /// Address at which clients reach it: HOST:PORT. Default: this machine's name and the default port.
        #[arg(value_name = "ADDRESS")]
        address: Option<String>,
        /// The server's key file. Default: ~/.config/causeway/key, or /etc/causeway/key of this machine's
        /// service.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Store the key of a server in ~/.config/causeway/keys: reads its connect string from standard input, or
    /// from the terminal, which does not show it.
    Add {
        // What stands here is refused, and not repeated.
        #[arg(hide = true)]
        secret: Option<String>,
    },
    /// List the servers whose keys are stored; the keys are not printed.
    List {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Delete the stored key of a server.
    Remove {
        /// The server: its name in the configuration files, or HOST:PORT.
        #[arg(value_name = "SERVER")]
        server: String,
    },
}

/// Why nothing was done with a key.
#[derive(Debug, Error)]
pub enum KeyCommandError {
    /// A key file cannot be used.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The address makes no sense.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The server that is named makes no sense.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// A secret is on the command line.
    #[error(
        "`causeway key add` takes no argument: other users may see arguments, and the shell stores them. Run it without one, \
         and paste the connect string, or have it read a file: `causeway key add <FILE`"
    )]
    SecretAsArgument,
    /// The user gave up.
    #[error("no connect string was given")]
    NoInput,
    /// What came from standard input has no key.
    #[error(
        "`{0}` contains no key: paste the whole connect string, causeway://KEY@HOST:PORT, that `causeway key \
         show` prints on the server"
    )]
    NoKey(String),
    /// No server has made one.
    #[error(
        "there is no key yet: `causeway serve` creates one at its first start ({}); --key-file names another \
         file", .0.display()
    )]
    NoKeyYet(PathBuf),
    /// There is no such line.
    #[error("no key of {0} is stored: `causeway key list` lists those that are")]
    Unknown(String),
    /// Nothing can be read or printed.
    #[error("standard input or output failed: {0}")]
    Io(#[from] io::Error),
}

/// Does what was asked.
pub fn key(arguments: &Arguments) -> Result<ExitCode, KeyCommandError> {
    match &arguments.action {
        Action::Show { address, key_file } => show(address.as_deref(), key_file.clone())?,
        Action::Add { secret: Some(_) } => return Err(KeyCommandError::SecretAsArgument),
        Action::Add { secret: None } => add()?,
        Action::List { json } => list(*json)?,
        Action::Remove { server } => remove(server)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(address: Option<&str>, key_file: Option<PathBuf>) -> Result<(), KeyCommandError> {
    let path = own_server::key_file(key_file)?;
    let target = own_server::target(address)?;
    let key = file::load(&path).map_err(|error| match error {
        KeyFileError::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
            KeyCommandError::NoKeyYet(path)
        }
        other => other.into(),
    })?;
    let target = Target { key: Some(key), ..target };
    writeln!(io::stdout(), "{}", *target.connect_string())?;
    Ok(())
}

fn add() -> Result<(), KeyCommandError> {
    let text = if io::stdin().is_terminal() {
        write!(
            io::stderr(),
            "Paste the connect string that `causeway key show` prints on the server (it will not be shown): "
        )?;
        hidden_input::line()?.ok_or(KeyCommandError::NoInput)?
    } else {
        let mut text = Zeroizing::new(String::new());
        io::stdin().lock().read_line(&mut text)?;
        text
    };
    let target: Target = text.parse()?;
    let Some(key) = target.key.clone() else { return Err(KeyCommandError::NoKey(target.to_string())) };
    let path = file::list_path()?;
    let server = Some(target.endpoint.clone());
    let replaced = file::update_list(|lines| {
        let other = lines.iter().any(|line| line.server == server && line.key != key);
        lines.retain(|line| line.server != server);
        lines.push(Line { server, key });
        Ok::<_, KeyFileError>(other)
    })?;
    let replaced = if replaced { ", replacing another one" } else { "" };
    writeln!(
        io::stdout(),
        "Saved the key of {target} in {}{replaced}: causeway run --on {} -- PROGRAM",
        path.display(),
        target.address()
    )?;
    Ok(())
}

fn list(json: bool) -> Result<(), KeyCommandError> {
    let mut out = io::stdout().lock();
    let lines = read_lines(&file::list_path()?)?;
    if json {
        // None stands for a key that serves for any server.
        let servers = lines.iter().map(|line| line.server.as_ref().map(ToString::to_string));
        writeln!(out, "{:#}", serde_json::json!({ "servers": servers.collect::<Vec<_>>() }))?;
        return Ok(());
    }
    if lines.is_empty() {
        writeln!(out, "no key of a server is stored: `causeway key add` stores one")?;
    }
    for line in lines {
        match line.server {
            Some(server) => writeln!(out, "{server}")?,
            None => writeln!(out, "(any server)")?,
        }
    }
    Ok(())
}

fn remove(server: &str) -> Result<(), KeyCommandError> {
    let targets = servers(server, None)?;
    file::update_list(|lines| {
        for target in &targets {
            let before = lines.len();
            lines.retain(|line| line.server.as_ref() != Some(&target.endpoint));
            if lines.len() == before {
                return Err(KeyCommandError::Unknown(target.to_string()));
            }
        }
        Ok(())
    })?;
    for target in &targets {
        writeln!(io::stdout(), "Removed the key of {target}")?;
    }
    Ok(())
}

/// What is in the list; nothing where there is none.
fn read_lines(path: &std::path::Path) -> Result<Vec<Line>, KeyFileError> {
    match file::read(path) {
        Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_a_server_has_started_there_is_no_key_to_show() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let error = show(None, Some(path.clone())).unwrap_err().to_string();
        assert!(error.starts_with("there is no key yet: `causeway serve` creates one"), "{error}");
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }

    #[test]
    fn secret_on_the_command_line_is_refused_and_not_repeated() {
        let action = Action::Add { secret: Some("causeway://s3cret@host".to_owned()) };
        let error = key(&Arguments { action }).unwrap_err().to_string();
        assert!(error.contains("paste") && !error.contains("s3cret"), "{error}");
    }
}
