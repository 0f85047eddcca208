//! `causeway login`: this machine as a client of a server that has invited it.
//!
//! The client makes its key, and enrols it at the server over a connection that the invitation's secret authenticates
//! both ways. The key is on the disk before the server has it, in a file of its own, and leaves that when all else is
//! written. So the same command goes on where an earlier one was cut short, wherever that was.

mod error;
mod files;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use causeway_access::{Invitation, Target};
use causeway_api::calls::COMMANDS;
use causeway_config::read::PROCESS;
use causeway_config::table::KEY_FILE;
use causeway_link::{ConnectError, ConnectOptions, check, describe_process, enrol};
use clap::Args;
use zeroize::Zeroizing;

use crate::hidden_input;
pub use error::LoginError;
use files::{NewServer, PendingKey};

/// Become a client of a server by an invitation, and name the server: `causeway run --on NAME` uses it from
/// then on.
///
/// The server's owner creates the invitation with `causeway client invite`. This command creates a key, which
/// only this machine and the server have, and stores it in ~/.config/causeway/keys, and the name in
/// ~/.config/causeway/config.toml. If it is interrupted, repeat the command: it continues where it stopped.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Name of the server on this machine: letters, digits, `-`, `_` and `.`.
    #[arg(value_name = "NAME")]
    name: String,
    /// The invitation. If not given, it is read from the terminal, which does not show it, or from standard input: other users
    /// of this machine may see arguments.
    #[arg(value_name = "INVITATION")]
    invitation: Option<String>,
}

/// Makes a key, enrols it, and keeps it and the server's name.
pub fn login(arguments: &Arguments) -> Result<ExitCode, LoginError> {
    if PROCESS.path(&KEY_FILE).is_some() {
        return Err(LoginError::NamedKeyFile);
    }
    // Whoever forgets the name gives the invitation in its place, which is to stand in no message.
    if is_secret(&arguments.name) {
        return Err(LoginError::SecretAsName);
    }
    let text = match &arguments.invitation {
        Some(text) => Zeroizing::new(text.clone()),
        None => read_invitation()?,
    };
    let invitation: Invitation = text.parse()?;
    let server = invitation.server();
    let new = NewServer::new(&arguments.name, &server)?;
    // Whatever is wrong here is an error before the invitation is used up.
    new.check_name()?;
    let pending = PendingKey::of(&invitation)?;
    if let Err(error) = new.check(&pending.key) {
        pending.discard_new();
        return Err(error);
    }
    if let Err(error) = bring_to_server(&invitation, &pending) {
        if !is_before_enrolment(&error) {
            return Err(LoginError::Interrupted(error));
        }
        return Err(match pending.discard_new() {
            None => LoginError::Refused(error),
            Some(file) => LoginError::RefusedLater { cause: error, file },
        });
    }
    new.keep(&pending.key)?;
    let client = pending.key.client().map(|client| client.to_string()).unwrap_or_default();
    pending.discard();
    let name = &arguments.name;
    writeln!(
        io::stdout(),
        "This machine is now the client {client} of {server}, which is named {name} here: causeway run --on \
         {name} -- PROGRAM"
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Enrols the key, unless that has been done by a command that was cut short.
fn bring_to_server(invitation: &Invitation, pending: &PendingKey) -> Result<(), ConnectError> {
    let options = ConnectOptions::default();
    if pending.is_earlier {
        let target = Target { key: Some(pending.key.clone()), ..invitation.server() };
        match check(&target, &options) {
            Err(ConnectError::Refused { .. }) => {}
            checked => return checked,
        }
    }
    enrol(invitation, &describe_process(COMMANDS, Vec::new()), &pending.key, &options)
}

/// Whether what was given as a name has a secret in it.
fn is_secret(name: &str) -> bool {
    name.contains("://")
}

/// Whether this error is of a command that has not enrolled the key.
fn is_before_enrolment(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Refused { .. }
            | ConnectError::Dial(_)
            | ConnectError::NotCauseway { .. }
            | ConnectError::NoPrefaceResponse { .. }
            | ConnectError::ServerNotAuthentic { .. }
    )
}

fn read_invitation() -> Result<Zeroizing<String>, LoginError> {
    if io::stdin().is_terminal() {
        write!(io::stderr(), "Paste the invitation (it will not be shown): ")?;
        return hidden_input::line()?.ok_or(LoginError::NoInvitation);
    }
    let mut text = Zeroizing::new(String::new());
    io::stdin().lock().read_line(&mut text)?;
    if text.trim().is_empty() { Err(LoginError::NoInvitation) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_in_place_of_the_name_is_refused_and_not_repeated() {
        let name = "causeway-invitation://ada:s3cret@host:1".to_owned();
        let error = login(&Arguments { name, invitation: Some(String::new()) }).unwrap_err();
        assert!(
            matches!(error, LoginError::SecretAsName) && !error.to_string().contains("s3cret"),
            "{error}"
        );
        assert!(!is_secret("box-1.lab_2"));
    }
}
