//! `causeway drain`: end of a server once its sessions have ended or moved.
//!
//! With `--to` its sessions move to another server, a few at a time. Those that cannot are waited for, as without it.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_access::Target;
use causeway_wire::handshake::SessionId;
use causeway_wire::status::{ServerStatus, SessionStatus};
use clap::Args;
use parking_lot::Mutex;

use super::moves::{DEFAULT_WAIT, Destination, move_to};
use super::query::{WatchArguments, WatchError, on_its_host};
use super::table;
use crate::duration::seconds;
use crate::status_query::ServerConnection;

/// Interval at which the number of remaining sessions is asked for.
const INTERVAL: Duration = Duration::from_millis(500);

/// How many sessions move at a time: each has its state in a file at both servers, and its program waits.
const CONCURRENT_MOVES: usize = 4;

/// Stop this machine's server once its sessions have ended.
///
/// The server refuses new sessions from now on, and says why. Open sessions continue, or move to another
/// server (--to). Only the server's own user and root may drain it, on its own host. Start the new server
/// when the old one has ended.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    server: WatchArguments,
    /// Move the sessions to this server, as `causeway move` does, and wait for those that cannot move. The exit status is 0
    /// if all have moved.
    #[arg(long, value_name = "SERVER")]
    to: Option<String>,
    /// Address at which programs reach the other server, if it differs from the one that this machine uses.
    #[arg(long, value_name = "HOST:PORT", requires = "to")]
    address: Option<String>,
    /// Time (seconds, or 90s, 10m, 2h) for which each program tries to connect there.
    #[arg(long, value_name = "TIME", requires = "to", default_value_t = DEFAULT_WAIT)]
    #[arg(value_parser = seconds::<1, 86_400>)]
    wait: u32,
    /// Time after which the remaining sessions are ended. Default: wait for all.
    #[arg(long, value_name = "TIME", value_parser = seconds::<1, { u32::MAX }>)]
    timeout: Option<u32>,
    /// Return at once, or when all sessions that can move have done so; the server then drains by itself.
    #[arg(long)]
    no_wait: bool,
}

fn print(text: &str) -> Result<(), WatchError> {
    writeln!(io::stdout(), "{text}").map_err(WatchError::Print)
}

/// Drains the server, and waits until it has ended.
pub fn drain(arguments: &Arguments) -> Result<ExitCode, WatchError> {
    let target = arguments.server.one_server()?;
    let mut server = on_its_host(&target)?;
    let mut moves = match &arguments.to {
        Some(to) => Some(Moves::new(arguments, to, &mut server)?),
        None => None,
    };
    let (sessions, already) = server.drain(arguments.timeout.unwrap_or(0))?;
    let begins = if already { "is already being drained" } else { "accepts no new sessions" };
    print(&format!("{} {begins}; remaining sessions: {sessions}", server.name()))?;
    let (started_at, mut last) = (Instant::now(), Vec::new());
    let mut left = sessions as usize;
    // It does not answer any more when it has ended, which is what is waited for.
    while let Ok(status) = server.status() {
        // One that had its place before the server was drained may be listed only now.
        if let Some(moves) = &mut moves
            && moves.move_new(&target, &status)
        {
            continue;
        }
        if arguments.no_wait {
            return finish(moves);
        }
        if status.sessions.len() != left {
            left = status.sessions.len();
            print(&format!("remaining sessions: {left}"))?;
        }
        last = status.sessions;
        std::thread::sleep(INTERVAL);
    }
    // Before its time is over it ends only when the last session has.
    let limit = arguments.timeout.map(|seconds| Duration::from_secs(seconds.into()));
    let cut = if limit.is_some_and(|limit| started_at.elapsed() >= limit) { last.as_slice() } else { &[] };
    cut.iter().try_for_each(|session| print(&describe_cut(session)))?;
    print("the server has ended")?;
    finish(moves)
}

/// The text about a session that was ended with the server.
fn describe_cut(session: &SessionStatus) -> String {
    let user =
        if session.owner.user.is_empty() { String::new() } else { format!(" of {}", session.owner.user) };
    format!(
        "session {} was ended after {}: {}{user}, process {} on {}",
        session.session,
        table::age(session.open),
        session.program,
        session.process,
        session.host
    )
}

fn finish(moves: Option<Moves>) -> Result<ExitCode, WatchError> {
    match moves {
        Some(Moves { left, seen, .. }) if left > 0 => {
            Err(WatchError::NotAllMoved { left, count: seen.len() })
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The sessions that move to another server.
struct Moves {
    destination: Destination,
    /// All that have been tried.
    seen: HashSet<SessionId>,
    /// How many of them have not moved.
    left: usize,
}

impl Moves {
    /// None yet. Whatever is wrong with the destination is said before anything is changed.
    fn new(arguments: &Arguments, to: &str, server: &mut ServerConnection) -> Result<Self, WatchError> {
        let destination =
            Destination::new(&arguments.server, to, arguments.address.as_deref(), arguments.wait)?;
        let there = ServerConnection::connect(&destination.server)?.status()?;
        let name = destination.server.to_string();
        if is_same_server(&server.status()?, &there) {
            return Err(WatchError::SameServer { server: name });
        }
        if there.is_draining {
            return Err(WatchError::DestinationDrains { server: name });
        }
        Ok(Self { destination, seen: HashSet::new(), left: 0 })
    }

    /// Moves the sessions that have not been tried yet, and says of each what has come of it; whether there were any.
    fn move_new(&mut self, target: &Target, status: &ServerStatus) -> bool {
        let listed = status.sessions.iter().map(|session| session.session);
        let new: Vec<_> = listed.filter(|session| self.seen.insert(*session)).collect();
        let (queue, left) = (Mutex::new(new.iter()), AtomicUsize::new(0));
        let destination = &self.destination;
        std::thread::scope(|scope| {
            for _ in 0..CONCURRENT_MOVES.min(new.len()) {
                scope.spawn(|| {
                    while let Some(&session) = next(&queue) {
                        let text = match move_to(target, session, destination) {
                            Ok(moved) => moved.describe(session, destination),
                            // One that is lost on the way is in neither place.
                            Err(error)
                                if !matches!(error, WatchError::Lost { .. })
                                    && has_ended(target, session) =>
                            {
                                format!("session {session} has ended")
                            }
                            Err(error) => {
                                // Read when the threads have ended.
                                left.fetch_add(1, Ordering::Relaxed);
                                error.to_string()
                            }
                        };
                        // That it cannot be said is no reason to leave the others.
                        let _ = print(&text);
                    }
                });
            }
        });
        self.left += left.into_inner();
        !new.is_empty()
    }
}

/// Whether a server says that it does not have a session. One that does not answer is not known to have ended it.
fn has_ended(target: &Target, session: SessionId) -> bool {
    let status = ServerConnection::connect(target).and_then(|mut server| server.status());
    status.is_ok_and(|status| status.sessions.iter().all(|listed| listed.session != session))
}

/// The next of a queue that several threads take from.
fn next<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().next()
}

/// Whether two answers are one server's. Processes of two hosts may have the same number, sessions have not.
fn is_same_server(here: &ServerStatus, there: &ServerStatus) -> bool {
    let shares_one = here
        .sessions
        .iter()
        .any(|session| there.sessions.iter().any(|other| other.session == session.session));
    let is_alike = here.sockets == there.sockets && here.sessions_started == there.sessions_started;
    here.process == there.process && (shares_one || is_alike && here.sessions.is_empty())
}
