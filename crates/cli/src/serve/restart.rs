//! Restart of a server in place: the program is started anew, takes the listening sockets over, and open
//! sessions go on in the old process until they end.
//!
//! That is how the package is upgraded, and how a server gets another configuration: by SIGHUP, which is what
//! `systemctl reload` sends. A new server that does not come up changes nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};

use causeway_server::broker::{HandOverError, RunningBroker};
use crossbeam_channel::{Receiver, RecvError, never};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use sd_notify::NotifyState;

use super::service::{is_service, report};
use crate::{inherited, launch};

/// The argument by which a new server knows that it takes another one's place.
const TAKES_OVER: &str = "--takes-over";

/// The signal that begins a restart, where it can mean that: a terminal sends it when it is closed.
pub fn signal() -> Option<i32> {
    let has_terminal = File::open("/dev/tty").is_ok();
    (!has_terminal && !inherited::is_ignored(libc::SIGHUP)).then_some(libc::SIGHUP)
}

/// The program that is started anew, with what it was started with.
pub struct Program {
    file: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// That of this process. It is to be asked early: once the file has been replaced its name is not known any more.
    pub fn of_this_process() -> Option<Self> {
        let file = std::env::current_exe().ok()?;
        let others = std::env::args_os().skip(1).filter(|argument| argument != TAKES_OVER);
        Some(Self { file, arguments: others.chain([TAKES_OVER.into()]).collect() })
    }

    fn start(&self, control: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.file);
        // systemd watches the new process as soon as it is notified of it; the variable names the old one.
        command.args(&self.arguments).stdin(control).env_remove("WATCHDOG_PID");
        if !is_service() {
            // Whoever kills the process that it knows ends the server.
            // SAFETY: the one call between fork and exec is async-signal-safe, and changes the new process only.
            unsafe {
                command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
            }
        }
        command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.file.display())))
    }
}

/// A restart that may be under way or done.
pub struct Restart {
    program: Option<Program>,
    signals: Receiver<launch::Signal>,
    state: State,
    outcome: Receiver<Result<(), HandOverError>>,
}

enum State {
    Idle,
    Starting(Child),
    Replaced(Child),
}

impl Restart {
    /// Nothing yet. `signals` are those that this process gets.
    pub fn new(program: Option<Program>, signals: Receiver<launch::Signal>) -> Self {
        Self { program, signals, state: State::Idle, outcome: never() }
    }

    /// Starts a server that is to take the place of this one.
    pub fn begin(&mut self, broker: &RunningBroker) {
        if matches!(self.state, State::Starting(_)) {
            return tracing::info!("a restart is already in progress");
        }
        let Some(program) = &self.program else {
            return tracing::error!("cannot restart: the program's file is unknown");
        };
        tracing::info!(program = %program.file.display(), "restarting: starting a new server");
        match broker.hand_over(|control| program.start(control)) {
            Ok((child, outcome)) => {
                self.state = State::Starting(child);
                self.outcome = outcome;
            }
            Err(error) => tracing::error!("cannot restart, this server continues: {error}"),
        }
    }

    /// Tells how the restart that is under way has gone.
    pub fn outcome(&self) -> &Receiver<Result<(), HandOverError>> {
        &self.outcome
    }

    /// A restart has gone like this; true if a new server serves.
    pub fn has_ended(&mut self, outcome: Result<Result<(), HandOverError>, RecvError>) -> bool {
        self.outcome = never();
        let State::Starting(mut child) = std::mem::replace(&mut self.state, State::Idle) else {
            return false;
        };
        match outcome {
            Ok(Ok(())) => {
                let process = child.id();
                tracing::info!(
                    process,
                    "a new server accepts connections; this one continues to serve its sessions"
                );
                report(&[NotifyState::MainPid(process)]);
                self.state = State::Replaced(child);
                true
            }
            failed => {
                let why = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no reason was given".to_owned(),
                };
                tracing::error!("cannot restart, this server continues: {why}");
                // It serves nobody, whatever it still does.
                let _ = child.kill();
                let _ = child.wait();
                false
            }
        }
    }

    /// Hands a signal to the server that has taken this one's place, which says what happens to this one's
    /// sessions; false where there is none.
    pub fn passes_on(&self, signal: launch::Signal) -> bool {
        let State::Replaced(child) = &self.state else { return false };
        pass_on(child.id(), signal);
        true
    }

    /// The server that has taken this one's place, if one has.
    pub fn take_successor(&mut self) -> Option<Successor> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Replaced(child) => Some(Successor { child, signals: self.signals.clone() }),
            other => {
                self.state = other;
                None
            }
        }
    }
}

/// A server that has taken this one's place.
pub struct Successor {
    child: Child,
    signals: Receiver<launch::Signal>,
}

impl Successor {
    /// Stays for whoever started this process and waits for it, such as a shell or a container, until the
    /// successor has ended, and ends as that has; a service of systemd's, which watches the successor, ends now.
    pub fn outlast(mut self) -> ExitCode {
        if is_service() {
            return ExitCode::SUCCESS;
        }
        let process = self.child.id();
        let signals = self.signals;
        let passing = causeway_sync::threads::spawn("pass-on", move || {
            for signal in signals {
                pass_on(process, signal);
            }
        });
        if let Err(error) = passing {
            tracing::warn!(
                "this process cannot forward signals to the new server, process {process}: \
                {error}"
            );
        }
        match self.child.wait() {
            Ok(status) => ExitCode::from(code_of(status)),
            Err(error) => {
                tracing::error!("cannot wait for the new server to end: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

fn pass_on(process: u32, signal: launch::Signal) {
    // A key of the terminal has reached both.
    if signal.from_terminal {
        return;
    }
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some((process, signal)) = process.zip(Signal::from_named_raw(signal.number)) {
        // One that has ended needs none.
        let _ = kill_process(process, signal);
    }
}

/// The exit code by which a shell reports a process's end.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_has_taken_over_is_started_as_the_first_one() {
        let program = Program::of_this_process().unwrap();
        let taking = program.arguments.iter().filter(|argument| *argument == TAKES_OVER).count();
        assert_eq!((taking, program.arguments.last().unwrap() == TAKES_OVER), (1, true));
        assert_eq!(program.file, std::env::current_exe().unwrap());
    }

    #[test]
    fn the_end_of_the_successor_is_told_as_shells_tell_it() {
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code_of(ExitStatus::from_raw(15)), 143);
    }
}
