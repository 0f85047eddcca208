//! `causeway sessions`: which sessions has a server?

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;

use super::query::{WatchArguments, WatchError};
use super::rates::{self, Rates};
use super::{json, table};
use crate::status_query::ServerConnection;

/// List the sessions of a server: whose programs they are, and what they have done.
///
/// Whoever may use the server may ask.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    servers: WatchArguments,
    /// Print JSON, a line for each server.
    #[arg(long)]
    json: bool,
}

/// Prints the list.
pub fn sessions(arguments: &Arguments) -> Result<ExitCode, WatchError> {
    let mut out = io::stdout().lock();
    let mut print = |text: String| writeln!(out, "{text}").map_err(WatchError::Print);
    for target in arguments.servers.servers()? {
        let mut server = ServerConnection::connect(&target)?;
        let status = server.status()?;
        if arguments.json {
            print(json::server(server.name(), &status, &rates::of_sessions(None, &status)).to_string())?;
            continue;
        }
        let draining = if status.is_draining { ", draining" } else { "" };
        let (count, max) = (status.sessions.len(), status.max_sessions);
        print(format!("{}: {count} of {max} sessions{draining}", server.name()))?;
        if count > 0 {
            let rows: Vec<_> = status.sessions.iter().map(|session| (session, Rates::default())).collect();
            table::lines(table::DONE, &rows, usize::MAX).into_iter().try_for_each(&mut print)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
