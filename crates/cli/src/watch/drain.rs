//! `causeway drain`: how does a server end without ending sessions?

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::query::{WatchArguments, WatchError, on_its_host};

/// How often is asked how many sessions are left.
const INTERVAL: Duration = Duration::from_millis(500);

/// Have the server of this machine end when its sessions have ended.
///
/// New sessions are refused from now on, with the reason. Those that are open go on as before.
/// Only the server's own user and root may, on its own host. Start the new server when the old one has ended.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    server: WatchArguments,
    /// End the sessions that are left after so many seconds. If not given: all are waited for.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: Option<u32>,
    /// Return at once, and leave the server to it.
    #[arg(long)]
    no_wait: bool,
}

/// Drains the server, and waits until it has ended.
pub fn drain(arguments: &Arguments) -> Result<ExitCode, WatchError> {
    let mut server = on_its_host(&arguments.server.one_server()?)?;
    let (sessions, already) = server.drain(arguments.timeout.unwrap_or(0))?;
    let mut out = io::stdout().lock();
    let mut print = |text: String| writeln!(out, "{text}").map_err(WatchError::Print);
    let begins = if already { "is being drained already" } else { "takes no new sessions" };
    print(format!("{} {begins}; {sessions} sessions are left", server.name()))?;
    if arguments.no_wait {
        return Ok(ExitCode::SUCCESS);
    }
    let mut left = sessions as usize;
    // It does not answer any more when it has ended, which is what is waited for.
    while let Ok(status) = server.status() {
        if status.sessions.len() != left {
            left = status.sessions.len();
            print(format!("{left} sessions are left"))?;
        }
        std::thread::sleep(INTERVAL);
    }
    print("the server has ended".to_owned())?;
    Ok(ExitCode::SUCCESS)
}
