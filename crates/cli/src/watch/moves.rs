//! `causeway move`, `checkpoint` and `restore`: sessions that go to another server, or into a file and back.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use causeway_access::Target;
use causeway_access::target::{Endpoint, random_bytes};
use causeway_wire::handshake::{LaneToken, Protection, SessionId};
use causeway_wire::moves::{MAX_STATE_PIECE, MoveReply, MoveRequest};
use causeway_wire::relocation::Relocation;
use clap::Args;
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};

use super::checkpoint_file::{
    SavedAt, may_be_same, other_machine, read_saved_at, this_machine, write_saved_at,
};
use super::query::{WatchArguments, WatchError, on_its_host};
use super::sessions::find;
use super::table;
use crate::duration::{describe, seconds};
use crate::status_query::ServerConnection;

/// For how many seconds a program tries to connect to the other server.
pub const DEFAULT_WAIT: u32 = 30;

/// How many pieces of a state are on the way at most: enough to have every stage of it busy.
const PIECES_AHEAD: usize = 4;

/// How often the server that holds the session learns that it is still wanted.
const CALL_INTERVAL: Duration = Duration::from_secs(10);

/// How long a program is waited for that does not find the other server, beyond the time that it has itself.
const MARGIN: Duration = Duration::from_secs(10);

/// How long `restore` waits for the program, which may be stopped.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Move a running session to another server.
///
/// The program goes on there with the same device memory, code, streams and events, and notices a pause. It must
/// have been started with CAUSEWAY_RESUME_TIMEOUT and be connected by tcp. If the move fails, the session continues
/// here, provided that the pause was shorter than that time. Only the server's own user and root may move a session,
/// on its own host; at the other server the caller needs what a session needs.
#[derive(Debug, Args)]
pub struct MoveArguments {
    #[command(flatten)]
    server: WatchArguments,
    /// The session as `causeway sessions` shows it, or the first characters of that.
    #[arg(value_name = "SESSION")]
    session: String,
    /// The other server: a name from a configuration file, HOST:PORT, or a connect string.
    #[arg(value_name = "SERVER")]
    destination: String,
    /// Address at which the program reaches the other server, if it differs from the one that this machine
    /// uses.
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// Time (seconds, or 90s, 10m, 2h) for which the program tries to connect there.
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_WAIT, value_parser = seconds::<1, 86_400>)]
    wait: u32,
}

/// Save a session to a file; `causeway restore` resumes it.
///
/// The session ends at the server, and its program waits. The file contains all of its device memory, and
/// only this user can read it. Only the server's own user and root may do this, on the server's host.
#[derive(Debug, Args)]
pub struct CheckpointArguments {
    #[command(flatten)]
    server: WatchArguments,
    /// The session as `causeway sessions` shows it, or the first characters of that.
    #[arg(value_name = "SESSION")]
    session: String,
    /// File to create; it must not exist yet.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Time (seconds, or 90s, 10m, 2h) for which the program waits.
    #[arg(long, value_name = "TIME", default_value_t = 86_400, value_parser = seconds::<1, 86_400>)]
    wait: u32,
}

/// Resume a session that `causeway checkpoint` has saved.
///
/// The program reconnects by itself if the server has the same address as before. The file must belong to
/// this user, and no other user may have access to it; it is not deleted.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    #[command(flatten)]
    server: WatchArguments,
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// A session that is not written to a file.
fn not_saved(error: WatchError) -> WatchError {
    match error {
        WatchError::Stays { session, why } => WatchError::NotSaved { session, why },
        other => other,
    }
}

fn stays(session: SessionId, why: impl ToString) -> WatchError {
    WatchError::Stays { session, why: why.to_string() }
}

fn print(text: &str) -> Result<(), WatchError> {
    writeln!(io::stdout(), "{text}").map_err(WatchError::Print)
}

/// A session that is held, at its server's own host. It goes on when this is dropped.
struct Held {
    server: ServerConnection,
    session: SessionId,
    /// How many bytes its state has, once that has been read.
    bytes: u64,
    called: Instant,
}

impl Held {
    /// Has a session held by a server that is reached at its own host, which then writes the state.
    fn hold(
        mut server: ServerConnection,
        session: SessionId,
        relocation: Relocation,
        stops: bool,
    ) -> Result<Self, WatchError> {
        match server.about_move(MoveRequest::Hold { session, relocation, stops })? {
            MoveReply::Pending => Ok(Self { server, session, bytes: 0, called: Instant::now() }),
            MoveReply::Refused { text } => Err(stays(session, text)),
            other => Err(stays(session, unexpected(&other))),
        }
    }

    /// Passes its state to `write`, in another thread, as it is written.
    fn pass_on(
        &mut self,
        mut write: impl FnMut(Vec<u8>) -> Result<(), WatchError> + Send,
    ) -> Result<(), WatchError> {
        thread::scope(|scope| {
            let (sender, pieces) = bounded(PIECES_AHEAD);
            let (done, outcome) = bounded(1);
            scope.spawn(move || {
                let written = pieces.into_iter().try_for_each(&mut write);
                // Whoever waits for it has gone when reading has failed.
                let _ = done.send(written);
            });
            self.read(sender)?;
            self.wait_for(&outcome)?
        })
    }

    /// Reads its state, until all is read or the other thread has ended.
    fn read(&mut self, sender: Sender<Vec<u8>>) -> Result<(), WatchError> {
        loop {
            match self.server.about_move(MoveRequest::Read { offset: self.bytes })? {
                MoveReply::State { bytes } if !bytes.is_empty() => {
                    self.called = Instant::now();
                    self.bytes += bytes.len() as u64;
                    let mut bytes = bytes;
                    loop {
                        match sender.send_timeout(bytes, CALL_INTERVAL) {
                            Ok(()) => break,
                            Err(SendTimeoutError::Timeout(unsent)) => bytes = unsent,
                            Err(SendTimeoutError::Disconnected(_)) => return Ok(()),
                        }
                        self.call()?;
                    }
                }
                // No more comes, or nothing has come yet.
                MoveReply::State { .. } => match self.server.about_move(MoveRequest::IsHeld)? {
                    MoveReply::Held { bytes } if bytes == self.bytes => return Ok(()),
                    MoveReply::Held { .. } | MoveReply::Pending => {}
                    MoveReply::Refused { text } => return Err(stays(self.session, text)),
                    other => return Err(stays(self.session, unexpected(&other))),
                },
                MoveReply::Pending => {}
                MoveReply::Refused { text } => return Err(stays(self.session, text)),
                other => return Err(stays(self.session, unexpected(&other))),
            }
        }
    }

    /// Waits for another thread, while the server learns that the session is still wanted.
    fn wait_for<T>(&mut self, outcome: &Receiver<T>) -> Result<T, WatchError> {
        loop {
            match outcome.recv_timeout(CALL_INTERVAL) {
                Ok(outcome) => return Ok(outcome),
                Err(RecvTimeoutError::Timeout) => self.call()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(stays(self.session, "the thread that writes its state has ended"));
                }
            }
        }
    }

    /// Does what takes long, in another thread.
    fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> Result<T, WatchError> {
        thread::scope(|scope| {
            let (done, outcome) = bounded(1);
            scope.spawn(move || {
                // Whoever waits for it has gone when the server has.
                let _ = done.send(work());
            });
            self.wait_for(&outcome)
        })
    }

    /// Shows its server now and then that it is still wanted.
    fn call(&mut self) -> Result<(), WatchError> {
        if self.called.elapsed() >= CALL_INTERVAL {
            self.called = Instant::now();
            if let MoveReply::Refused { text } = self.server.about_move(MoveRequest::IsHeld)? {
                return Err(stays(self.session, text));
            }
        }
        Ok(())
    }

    /// Lets the client go.
    fn proceed(&mut self) -> Result<(), WatchError> {
        match self.server.about_move(MoveRequest::Proceed)? {
            MoveReply::Done => Ok(()),
            MoveReply::Refused { text } => Err(stays(self.session, text)),
            other => Err(stays(self.session, unexpected(&other))),
        }
    }
}

fn unexpected(reply: &MoveReply) -> String {
    match reply {
        MoveReply::Ended => "its worker has ended".to_owned(),
        _ => "the server sent a response to a different request".to_owned(),
    }
}

/// A session that is brought to a server.
struct Incoming<'a> {
    server: &'a mut ServerConnection,
    /// How many pieces are on the way that the server has not answered.
    unanswered: usize,
}

impl<'a> Incoming<'a> {
    /// Has a server expect the state of a session.
    fn begin(server: &'a mut ServerConnection) -> Result<Self, WatchError> {
        let reply = server.about_move(MoveRequest::TakeUp)?;
        let incoming = Self { server, unanswered: 0 };
        incoming.check(reply)?;
        Ok(incoming)
    }

    fn check(&self, reply: MoveReply) -> Result<(), WatchError> {
        let not_taken = |why| WatchError::NotTaken { server: self.server.name().to_owned(), why };
        match reply {
            MoveReply::Done | MoveReply::Pending => Ok(()),
            MoveReply::Refused { text } => Err(not_taken(text.to_string())),
            other => Err(not_taken(unexpected(&other))),
        }
    }

    /// Waits until only so many pieces are on the way.
    fn wait_until(&mut self, limit: usize) -> Result<(), WatchError> {
        while self.unanswered > limit {
            let reply = self.server.receive_about_move()?;
            self.unanswered -= 1;
            self.check(reply)?;
        }
        Ok(())
    }

    /// Sends the next piece of its state.
    fn write(&mut self, bytes: Vec<u8>) -> Result<(), WatchError> {
        self.wait_until(PIECES_AHEAD - 1)?;
        self.server.post_about_move(MoveRequest::Write { bytes })?;
        self.unanswered += 1;
        Ok(())
    }

    /// That was all.
    fn finish(mut self) -> Result<(), WatchError> {
        self.wait_until(0)?;
        let reply = self.server.about_move(MoveRequest::Restore)?;
        self.check(reply)
    }
}

/// Whether a session that was brought is there, and whether its client is.
enum Restored {
    Pending,
    Ready,
    Arrived,
}

fn is_restored(server: &mut ServerConnection) -> Result<Restored, WatchError> {
    let not_taken =
        |server: &ServerConnection, why| WatchError::NotTaken { server: server.name().to_owned(), why };
    match server.about_move(MoveRequest::IsRestored)? {
        MoveReply::Pending => Ok(Restored::Pending),
        MoveReply::Done => Ok(Restored::Ready),
        MoveReply::Arrived { .. } => Ok(Restored::Arrived),
        MoveReply::Refused { text } => Err(not_taken(server, text.to_string())),
        other => Err(not_taken(server, unexpected(&other))),
    }
}

/// The server to which sessions move.
pub struct Destination {
    pub server: Target,
    /// How programs reach it.
    address: String,
    /// For how many seconds they try.
    wait: u32,
}

impl Destination {
    /// A server by its name or address; `address` is the one by which programs reach it, if that is another.
    pub fn new(
        arguments: &WatchArguments,
        server: &str,
        address: Option<&str>,
        wait: u32,
    ) -> Result<Self, WatchError> {
        let server = arguments.named(server)?;
        let address = address_of(address, &server)?;
        Ok(Self { server, address, wait })
    }
}

/// A session that has moved.
pub struct Moved {
    bytes: u64,
    pause: Duration,
}

impl Moved {
    /// The words about it.
    pub fn describe(&self, session: SessionId, destination: &Destination) -> String {
        format!(
            "session {session} has moved to {}: {} of state, a pause of {:.2} s at most",
            destination.server,
            table::bytes(self.bytes as f64),
            self.pause.as_secs_f64()
        )
    }
}

/// Moves a session.
pub fn move_session(arguments: &MoveArguments) -> Result<ExitCode, WatchError> {
    let destination = Destination::new(
        &arguments.server,
        &arguments.destination,
        arguments.address.as_deref(),
        arguments.wait,
    )?;
    let target = arguments.server.one_server()?;
    let session = find(&mut ServerConnection::connect(&target)?, &arguments.session)?;
    let moved = move_to(&target, session, &destination)?;
    print(&moved.describe(session, &destination))?;
    Ok(ExitCode::SUCCESS)
}

/// Moves a session of the server `target`, which is at its own host.
pub fn move_to(target: &Target, session: SessionId, destination: &Destination) -> Result<Moved, WatchError> {
    // First, since a server that takes no session is no reason to hold anything.
    let mut there = ServerConnection::connect(&destination.server)?;
    let mut incoming = Incoming::begin(&mut there).map_err(|why| stays(session, why))?;
    let relocation = Relocation {
        address: destination.address.clone(),
        protection: destination.server.protection,
        ticket: LaneToken(random_bytes()),
        seconds: destination.wait,
    };
    let here = on_its_host(target)?;
    let started_at = Instant::now();
    let mut held = Held::hold(here, session, relocation, false)?;
    held.pass_on(|bytes| incoming.write(bytes).map_err(|why| stays(session, why)))?;
    incoming.finish().map_err(|why| stays(session, why))?;
    while let Restored::Pending = is_restored(&mut there).map_err(|why| stays(session, why))? {
        held.call()?;
    }
    held.proceed()?;
    let deadline = Duration::from_secs(destination.wait.into()) + MARGIN;
    let proceeded = Instant::now();
    loop {
        // If the other server has died meanwhile, the program comes back.
        if let Ok(Restored::Arrived) = is_restored(&mut there) {
            break;
        }
        if let MoveReply::Returned { text } = held.server.about_move(MoveRequest::Where)? {
            // It may have ended already.
            let _ = there.about_move(MoveRequest::Abandon);
            return Err(stays(session, text));
        }
        if proceeded.elapsed() >= deadline {
            return Err(WatchError::Lost { session, server: there.name().to_owned() });
        }
    }
    let pause = started_at.elapsed();
    // A worker that has ended needs no word.
    let _ = held.server.about_move(MoveRequest::Leave);
    Ok(Moved { bytes: held.bytes, pause })
}

/// How the program reaches a server.
fn address_of(address: Option<&str>, server: &Target) -> Result<String, WatchError> {
    let not_network = |text: &str| WatchError::NoNetwork { server: text.to_owned() };
    let Endpoint::Tcp { .. } = server.endpoint else { return Err(not_network(&server.to_string())) };
    let Some(address) = address else { return Ok(server.endpoint.to_string()) };
    match address.parse::<Target>() {
        Ok(Target { endpoint: endpoint @ Endpoint::Tcp { .. }, .. }) => Ok(endpoint.to_string()),
        _ => Err(not_network(address)),
    }
}

/// Puts a session into a file.
pub fn checkpoint(arguments: &CheckpointArguments) -> Result<ExitCode, WatchError> {
    let path = &arguments.file;
    let in_file = |cause| WatchError::File { path: path.clone(), cause };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(in_file)?;
    let mut is_whole = false;
    let outcome = write_checkpoint(arguments, &mut file, path, &mut is_whole);
    if outcome.is_err() && is_whole {
        // Without a standard error it cannot be said.
        let _ = writeln!(
            io::stderr(),
            "causeway: {} was not removed: the session may have ended and exist only there. If `causeway \
             sessions` shows it, remove the file",
            path.display()
        );
    } else if outcome.is_err() {
        // What there is of it is no session's state.
        let _ = std::fs::remove_file(path);
    }
    let (session, bytes) = outcome.map_err(not_saved)?;
    print(&format!(
        "session {session} is in {}: {}. Its program waits for {}; `causeway restore` has it go on",
        path.display(),
        table::bytes(bytes as f64),
        describe(arguments.wait)
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn write_checkpoint(
    arguments: &CheckpointArguments,
    file: &mut File,
    path: &Path,
    is_whole: &mut bool,
) -> Result<(SessionId, u64), WatchError> {
    let in_file = |cause| WatchError::File { path: path.to_owned(), cause };
    let relocation = Relocation {
        address: String::new(),
        protection: Protection::Encrypted,
        ticket: LaneToken(random_bytes()),
        seconds: arguments.wait,
    };
    let target = arguments.server.one_server()?;
    let session = find(&mut ServerConnection::connect(&target)?, &arguments.session)?;
    let mut held = Held::hold(on_its_host(&target)?, session, relocation, true)?;
    let saved_at = SavedAt { server: target.endpoint.clone(), machine: this_machine() };
    write_saved_at(file, &saved_at).map_err(in_file)?;
    held.pass_on(|bytes| file.write_all(&bytes).map_err(in_file))?;
    held.during(|| file.sync_all())?.map_err(in_file)?;
    *is_whole = true;
    held.proceed()?;
    loop {
        match held.server.about_move(MoveRequest::Where)? {
            MoveReply::Pending => {}
            MoveReply::Ended => return Ok((session, held.bytes)),
            MoveReply::Returned { text } => {
                *is_whole = false;
                return Err(stays(session, text));
            }
            other => return Err(stays(session, unexpected(&other))),
        }
    }
}

/// Takes up a session that is in a file.
pub fn restore(arguments: &RestoreArguments) -> Result<ExitCode, WatchError> {
    let path = &arguments.file;
    let in_file = |cause| WatchError::File { path: path.clone(), cause };
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(in_file)?;
    let status = file.metadata().map_err(in_file)?;
    let own = rustix::process::geteuid().as_raw();
    let is_private = status.is_file() && status.mode() & 0o077 == 0 && status.uid() == own;
    if !is_private {
        return Err(WatchError::NotPrivate(path.clone()));
    }
    let (saved_at, start) = read_saved_at(&mut file).map_err(in_file)?;
    let target = arguments.server.one_server()?;
    if let Some(saved_at) = &saved_at {
        if !may_be_same(&saved_at.server, &target.endpoint) {
            let saved_at = saved_at.server.to_string();
            return Err(WatchError::OtherAddress { server: target.to_string(), saved_at });
        }
        if let Some(text) = other_machine(saved_at, &this_machine()) {
            // Without a standard error it cannot be said.
            let _ = writeln!(io::stderr(), "causeway: {text}");
        }
    }
    let mut server = on_its_host(&target)?;
    let mut incoming = Incoming::begin(&mut server)?;
    if !start.is_empty() {
        incoming.write(start)?;
    }
    loop {
        let mut piece = vec![0; MAX_STATE_PIECE];
        let count = file.read(&mut piece).map_err(in_file)?;
        piece.truncate(count);
        if piece.is_empty() {
            break;
        }
        incoming.write(piece)?;
    }
    incoming.finish()?;
    let mut deadline = None;
    let mut has_arrived = false;
    while deadline.is_none_or(|deadline| Instant::now() < deadline) && !has_arrived {
        match is_restored(&mut server)? {
            Restored::Pending => {}
            Restored::Ready => {
                deadline.get_or_insert_with(|| Instant::now() + ARRIVAL_TIMEOUT);
                thread::sleep(Duration::from_millis(50));
            }
            Restored::Arrived => has_arrived = true,
        }
    }
    let (file, name) = (path.display(), server.name());
    print(&match saved_at {
        _ if has_arrived => format!("the session of {file} continues at {name}"),
        Some(SavedAt { server, .. }) => format!(
            "the session of {file} waits for its program at {name}: the program, unless it is suspended or \
             has ended, connects to {server}, or the address that it uses for that server"
        ),
        None => format!("the session of {file} waits for its program at {name}"),
    })?;
    Ok(ExitCode::SUCCESS)
}
