//! Launch of a program, so that signals and exit codes come through.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};

use thiserror::Error;

use crate::inherited::{self, Timers};

/// Signals that end or notify a program and that `causeway run` passes on to it.
const PASSED_ON: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Why a program could not be run.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// There is no such program.
    #[error("{}: no such program{}", .0.display(), here_instead(.0))]
    NotFound(OsString),
    /// The program is there, and what runs it is not.
    #[error("{}: the program needs {interpreter}, which does not exist", program.display())]
    NoInterpreter {
        /// The program.
        program: OsString,
        /// What its first line names, or "a loader".
        interpreter: String,
    },
    /// It is a folder.
    #[error("{}: this is a folder, not a program: name the program in it", .0.display())]
    Folder(OsString),
    /// The file may not be executed.
    #[error("{}: the file is not executable: {}", program.display(), advice_for(program))]
    NotExecutable {
        /// The program.
        program: OsString,
    },
    /// The file is no program of this machine.
    #[error(
        "{}: the file is neither a program for this machine nor a script with a first line such as \
         #!/bin/sh: put its interpreter in front of it",
        .0.display()
    )]
    NoProgram(OsString),
    /// The program is there and cannot be started.
    #[error("{}: cannot start the program: {cause}", program.display())]
    NotStarted {
        /// The program.
        program: OsString,
        /// What the system said.
        cause: io::Error,
    },
    /// The program's end could not be waited for.
    #[error("cannot wait for the program to end: {0}")]
    Wait(io::Error),
}

impl LaunchError {
    /// The exit code that a shell would give.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotStarted { .. }
            | Self::NoInterpreter { .. }
            | Self::Folder(_)
            | Self::NotExecutable { .. }
            | Self::NoProgram(_) => 126,
            Self::Wait(_) => 125,
        }
    }
}

/// What a failure to start a program is.
pub fn not_started(program: &OsStr) -> impl Fn(io::Error) -> LaunchError {
    move |cause| match cause.kind() {
        io::ErrorKind::NotFound => match interpreter(Path::new(program)) {
            Some(interpreter) => LaunchError::NoInterpreter { program: program.to_owned(), interpreter },
            None => LaunchError::NotFound(program.to_owned()),
        },
        // What is in a folder of PATH has no slash, and may be any of several files.
        io::ErrorKind::PermissionDenied if Path::new(program).is_dir() => {
            LaunchError::Folder(program.to_owned())
        }
        io::ErrorKind::PermissionDenied if is_not_executable(Path::new(program)) => {
            LaunchError::NotExecutable { program: program.to_owned() }
        }
        _ if cause.raw_os_error() == Some(libc::ENOEXEC) => LaunchError::NoProgram(program.to_owned()),
        _ => LaunchError::NotStarted { program: program.to_owned(), cause },
    }
}

/// Whether a file is there that has no permission to be executed by anyone.
fn is_not_executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|status| status.is_file() && status.mode() & 0o111 == 0)
}

/// What to do about a file that may not be executed.
fn advice_for(program: &OsStr) -> String {
    let name = Path::new(program).display();
    let interpreter = match Path::new(program).extension().and_then(OsStr::to_str) {
        Some("py") => Some("python3"),
        Some("sh") => Some("sh"),
        _ => None,
    };
    let first = format!("make it executable with `chmod +x {name}`");
    match interpreter {
        Some(interpreter) => format!("{first}, or run `{interpreter} {name}`"),
        None => first,
    }
}

/// What a program that is there and was not found lacks: the interpreter of its first line, or its loader.
fn interpreter(program: &Path) -> Option<String> {
    let mut start = Vec::new();
    // Without a slash it is one of PATH, of which nothing was found.
    let is_path = program.as_os_str().as_encoded_bytes().contains(&b'/');
    fs::File::open(program).ok().filter(|_| is_path)?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    let named = line.map(|line| String::from_utf8_lossy(line).trim().to_owned());
    let named = named
        .and_then(|line| line.split_whitespace().next().map(|word| format!("`{}`", word.escape_debug())));
    Some(named.unwrap_or_else(|| "a loader of this machine (it may be for another system)".to_owned()))
}

/// Advice for a name that PATH does not have and this folder does.
fn here_instead(program: &OsStr) -> String {
    let is_name = !program.as_encoded_bytes().contains(&b'/');
    match is_name && Path::new(program).is_file() {
        true => format!(" in PATH; the one in this folder is ./{}", program.display()),
        false => String::new(),
    }
}

/// The command that runs a program with our client library.
pub fn command(program: &[OsString], library: &Path) -> Command {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    let mut path = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    command.env("LD_LIBRARY_PATH", path);
    // Triton asks the system's cache of libraries before it looks at LD_LIBRARY_PATH.
    if std::env::var_os("TRITON_LIBCUDA_PATH").is_none() {
        command.env("TRITON_LIBCUDA_PATH", library);
    }
    command
}

/// Becomes the program; returns only when that fails.
pub fn become_program(mut command: Command) -> LaunchError {
    // SAFETY: it makes async-signal-safe calls.
    unsafe { command.pre_exec(inherited::restore) };
    let cause = command.exec();
    not_started(command.get_program())(cause)
}

/// Runs the program as a child until it ends, passing on the signals that come meanwhile.
pub fn run_program(mut command: Command) -> Result<ExitStatus, LaunchError> {
    let signals = Signals::block(&[PASSED_ON.as_slice(), &[libc::SIGCHLD]].concat());
    let (mask, timers) = (signals.before, Timers::take());
    // SAFETY: between fork and exec async-signal-safe calls are made, on what was copied into the closure.
    unsafe {
        command.pre_exec(move || {
            inherited::restore()?;
            timers.start();
            libc::pthread_sigmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut());
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(not_started(command.get_program()))?;
    loop {
        if let Some(status) = child.try_wait().map_err(LaunchError::Wait)? {
            return Ok(status);
        }
        let signal = signals.wait();
        if signal.number != libc::SIGCHLD && !signal.from_terminal {
            pass_on(&child, signal.number);
        }
    }
}

fn pass_on(child: &Child, signal: i32) {
    // SAFETY: the child has not been waited for, so its number means no other process. It may have ended
    // already, which the next round notices.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

/// Ends this process as the program ended: with its exit code, or by the same signal.
pub fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(code as u8);
    }
    let signal = status.signal().unwrap_or(libc::SIGKILL);
    // SAFETY: these calls take numbers and sets that live here. The core file, if any, has been the
    // program's; ours would only hide it.
    unsafe {
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, core::ptr::null_mut());
        libc::raise(signal);
    }
    // The signal does not end processes by default; a shell would say this.
    ExitCode::from(128_u8.wrapping_add(signal as u8))
}

/// Signals that are kept back until they are waited for.
pub struct Signals {
    set: libc::sigset_t,
    /// The mask of this thread before.
    before: libc::sigset_t,
}

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Which one.
    pub number: i32,
    /// True if the signal came from a key of the terminal, and so to every process in the foreground.
    pub from_terminal: bool,
}

impl Signals {
    /// Keeps back these signals in this thread and in those that it starts from now on.
    pub fn block(numbers: &[i32]) -> Self {
        // SAFETY: the sets are plain data that the calls fill; only this thread's mask changes.
        unsafe {
            let mut set: libc::sigset_t = core::mem::zeroed();
            let mut before: libc::sigset_t = core::mem::zeroed();
            libc::sigemptyset(&mut set);
            for number in numbers {
                libc::sigaddset(&mut set, *number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Self { set, before }
        }
    }

    /// Lets these signals through in this thread; async-signal-safe.
    pub fn unblock(numbers: &[i32]) -> io::Result<()> {
        // SAFETY: the set is plain data that the calls fill; only this thread's mask changes.
        let status = unsafe {
            let mut set: libc::sigset_t = core::mem::zeroed();
            libc::sigemptyset(&mut set);
            for number in numbers {
                libc::sigaddset(&mut set, *number);
            }
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, core::ptr::null_mut())
        };
        if status == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(status)) }
    }

    /// Waits for the next of them.
    pub fn wait(&self) -> Signal {
        loop {
            // SAFETY: the set was filled by `block`; `info` is plain data that the call fills.
            let (number, info) = unsafe {
                let mut info: libc::siginfo_t = core::mem::zeroed();
                (libc::sigwaitinfo(&self.set, &mut info), info)
            };
            // The only failure is an interruption by a signal that is not ours.
            if number > 0 {
                return Signal { number, from_terminal: info.si_code == libc::SI_KERNEL };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_distinguished_from_a_missing_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let missing = || not_started(path.as_os_str())(io::ErrorKind::NotFound.into());
        assert!(matches!(missing(), LaunchError::NotFound(_)));
        fs::write(&path, "#! /no/such/python -u\nprint()\n").unwrap();
        let error = missing();
        assert!(error.exit_code() == 126 && error.to_string().contains("needs `/no/such/python`"), "{error}");
        let denied = |path: &Path| not_started(path.as_os_str())(io::ErrorKind::PermissionDenied.into());
        let error = denied(folder.path());
        assert!(error.exit_code() == 126 && error.to_string().contains("is a folder"), "{error}");
        let script = folder.path().join("train.py");
        fs::write(&script, "print()\n").unwrap();
        let error = denied(&script);
        assert!(error.exit_code() == 126 && error.to_string().contains("or run `python3 /"), "{error}");
        let error = not_started(script.as_os_str())(io::Error::from_raw_os_error(libc::ENOEXEC));
        assert!(error.exit_code() == 126 && error.to_string().contains("#!/bin/sh"), "{error}");
        fs::write(&path, b"\x7fELF").unwrap();
        assert!(missing().to_string().contains("a loader"), "{}", missing());
    }
}
