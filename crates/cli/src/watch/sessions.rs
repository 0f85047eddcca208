//! `causeway sessions`: the sessions of a server.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use causeway_wire::handshake::SessionId;
use causeway_wire::status::ServerStatus;
use clap::{Args, Subcommand};
use ratatui::crossterm::terminal;

use super::by::{self, By};
use super::query::{Switch, WatchArguments, WatchError, on_its_host};
use super::rates::{self, Rates};
use super::{json, ranks, table};
use crate::status_query::ServerConnection;

/// List the sessions of a server: owners, programs, and what they have done.
///
/// All clients of a server may list its sessions. `causeway sessions release` makes a session release its
/// device memory; `causeway sessions gpudirect` switches its GPUDirect. Below the list are the ranks of MPI
/// jobs on this host, as `causeway ranks` lists them.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    servers: WatchArguments,
    /// Group the sessions by these columns, separated by commas. Only clients and groups are verified;
    /// users, jobs, hosts and programs are reported by clients.
    #[arg(long, value_enum, value_delimiter = ',')]
    by: Vec<By>,
    /// Print JSON, a line for each server.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Release(Release),
    Gpudirect(GpuDirect),
}

/// Make a session release its device memory until its next command.
///
/// The memory moves to the memory of the server's host (software GPU: to its disk) and returns by itself. The
/// session must be idle. On the server's own host its user and root may release any session; clients with
/// keys of their own, and users of the host, only their own.
#[derive(Debug, Args)]
struct Release {
    #[command(flatten)]
    server: WatchArguments,
    /// The session as `causeway sessions` shows it, or the first characters of that.
    #[arg(value_name = "SESSION")]
    session: String,
}

/// Switch GPUDirect of a running session off or on, from its next copy on.
///
/// Copies in flight complete as they began. While GPUDirect is off, the server stages copies through its
/// memory. On the server's own host its user and root may switch any session; clients with keys of their own,
/// and users of the host, only their own.
#[derive(Debug, Args)]
struct GpuDirect {
    #[command(flatten)]
    server: WatchArguments,
    /// The session as `causeway sessions` shows it, or the first characters of that.
    #[arg(value_name = "SESSION")]
    session: String,
    /// Whether network cards may access the session's device memory.
    #[arg(value_enum)]
    state: Switch,
}

/// Prints the list, or changes a session.
pub fn sessions(arguments: &Arguments) -> Result<ExitCode, WatchError> {
    match &arguments.command {
        Some(Command::Release(release)) => release_memory(release),
        Some(Command::Gpudirect(switch)) => set_gpudirect(switch),
        None => list(arguments),
    }
}

fn list(arguments: &Arguments) -> Result<ExitCode, WatchError> {
    let mut out = io::stdout().lock();
    let targets = arguments.servers.servers()?;
    let mut code = ExitCode::SUCCESS;
    for target in &targets {
        let asked = ServerConnection::connect(target)
            .and_then(|mut server| server.status().map(|status| (server.name().to_owned(), status)));
        match asked {
            Ok((server, status)) => {
                for line in lines(arguments, &server, &status) {
                    writeln!(out, "{line}").map_err(WatchError::Print)?;
                }
            }
            // The others are shown all the same.
            Err(error) if targets.len() > 1 => {
                if arguments.json {
                    let line = json::silent(&target.to_string(), &error.to_string());
                    writeln!(out, "{line}").map_err(WatchError::Print)?;
                }
                let _ = writeln!(io::stderr(), "causeway: {error}");
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if !arguments.json && arguments.by.is_empty() {
        for line in ranks::table() {
            writeln!(out, "{line}").map_err(WatchError::Print)?;
        }
    }
    Ok(code)
}

/// What is printed of a server.
fn lines(arguments: &Arguments, server: &str, status: &ServerStatus) -> Vec<String> {
    let by = &arguments.by;
    let sums = || by::sums(status, by);
    match (by.is_empty(), arguments.json) {
        (false, true) => vec![json::sums(server, by, &sums()).to_string()],
        (true, true) => vec![json::server(server, status, &rates::of_sessions(None, status)).to_string()],
        (false, false) => [head(server, status)].into_iter().chain(by::lines(by, &sums())).collect(),
        (true, false) if status.sessions.is_empty() => vec![head(server, status)],
        (true, false) => {
            let rows: Vec<_> = status.sessions.iter().map(|session| (session, Rates::default())).collect();
            // What a program reads is complete.
            let width = terminal::size().ok().filter(|_| io::stdout().is_terminal());
            let width = width.map_or(usize::MAX, |(columns, _)| usize::from(columns).max(1));
            let table = table::lines(table::DONE, &rows, width);
            [head(server, status)].into_iter().chain(table).collect()
        }
    }
}

/// The line above the sessions of a server.
fn head(server: &str, status: &ServerStatus) -> String {
    let draining = if status.is_draining { ", draining" } else { "" };
    format!("{server}: {} of {} sessions{draining}", status.sessions.len(), status.max_sessions)
}

/// The session of a server whose name begins so.
pub fn find(server: &mut ServerConnection, text: &str) -> Result<SessionId, WatchError> {
    let status = server.status()?;
    let is_named = |session: &SessionId| !text.is_empty() && session.in_full().starts_with(text);
    let found: Vec<_> = status.sessions.iter().map(|session| session.session).filter(is_named).collect();
    match found[..] {
        [session] => Ok(session),
        _ => Err(WatchError::WhichSession {
            server: server.name().to_owned(),
            text: text.to_owned(),
            found: found.iter().map(SessionId::in_full).collect(),
        }),
    }
}

/// A session that is to be changed, and its server, by a socket of this host if there is one: there the
/// kernel says who asks.
fn to_change(server: &WatchArguments, text: &str) -> Result<(ServerConnection, SessionId), WatchError> {
    let target = server.one_server()?;
    let mut server = ServerConnection::connect(&target)?;
    let session = find(&mut server, text)?;
    Ok((on_its_host(&target).unwrap_or(server), session))
}

fn set_gpudirect(switch: &GpuDirect) -> Result<ExitCode, WatchError> {
    let (mut server, session) = to_change(&switch.server, &switch.session)?;
    server.set_gpudirect(session, switch.state == Switch::On)?;
    let state = if switch.state == Switch::On { "on" } else { "off" };
    let text = format!("GPUDirect of session {session} is {state}, from its next copy on");
    writeln!(io::stdout(), "{text}").map_err(WatchError::Print)?;
    Ok(ExitCode::SUCCESS)
}

fn release_memory(release: &Release) -> Result<ExitCode, WatchError> {
    let (mut server, session) = to_change(&release.server, &release.session)?;
    server.release(session)?;
    let released = server.status()?.sessions.into_iter().find(|known| known.session == session);
    let bytes = released.and_then(|session| session.release.released).map_or(0, |(bytes, _)| bytes);
    let text = format!("session {session} has released {} of device memory", table::bytes(bytes as f64));
    writeln!(io::stdout(), "{text}").map_err(WatchError::Print)?;
    Ok(ExitCode::SUCCESS)
}
