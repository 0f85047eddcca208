//! `causeway demo`: a test of everything on this machine.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use thiserror::Error;

use crate::embedded::{Embedded, EmbeddedError};
use crate::keys::{HandOverError, hand_over};
use crate::launch::{self, LaunchError};
use crate::library::{self, LibraryError};
use crate::report::{self, ReportError};

/// Where `make` leaves the program that is run if none is named.
const DEFAULT_PROGRAM: &str = "build/cuda/vector_add";

/// Run a CUDA program on a private server with the software GPU and say what happened.
///
/// Starts a server with the software GPU that only this user can reach, runs the program with Causeway's
/// libcuda.so.1, checks its exit code, and prints how many calls were answered locally, posted and called,
/// and how many bytes were transferred.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The program and its arguments. If not given: the vector addition that `make` builds.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Why there is no demonstration.
#[derive(Debug, Error)]
pub enum DemoError {
    /// There is no program to run.
    #[error(
        "there is no {DEFAULT_PROGRAM} here: build it with `make programs`, or name a program: causeway \
         demo -- PROGRAM"
    )]
    NoProgram,
    /// The server does not start.
    #[error(transparent)]
    Server(#[from] EmbeddedError),
    /// The program would not find the server's key.
    #[error(transparent)]
    Keys(#[from] HandOverError),
    /// There is no client library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The program does not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// There is no report to show.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl DemoError {
    /// The exit code: a shell's for a program that does not start, 125 for an error of our own.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Launch(error) => error.exit_code(),
            _ => 125,
        }
    }
}

/// Shows that it works; the exit code is the program's.
pub fn demo(arguments: &Arguments) -> Result<ExitCode, DemoError> {
    let program = match arguments.program.as_slice() {
        [] => vec![default_program().ok_or(DemoError::NoProgram)?.into_os_string()],
        named => named.to_vec(),
    };
    let library = library::folder()?;
    let server = Embedded::start(&[], false)?;
    let mut command = launch::command(&program, &library);
    hand_over(&mut command, core::slice::from_ref(server.target()), server.key_file())?;
    let report = report::File::new()?;
    report.ask_for(&mut command);
    let arguments: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
    print(&format!("A server with the software GPU listens at {}.\n", server.target()));
    print(&format!("Running {} through {}/libcuda.so.1:\n\n", arguments.join(" "), library.display()));
    let status = launch::run_program(command)?;
    drop(server);
    if !status.success() {
        print(&format!("\nThe program failed: {status}.\n"));
        return Ok(launch::end_like(status));
    }
    let report = report.read()?;
    print(&format!("\nThe program succeeded. What it did:\n{}", report.summary()));
    Ok(ExitCode::SUCCESS)
}

/// Prints at once, since the program prints in between.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // When nobody reads, the exit code still tells.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn default_program() -> Option<PathBuf> {
    let here = PathBuf::from(DEFAULT_PROGRAM);
    // Seen from where cargo puts this program: target/release.
    let executable = std::env::current_exe().ok();
    let tree =
        executable.as_deref().and_then(|path| path.ancestors().nth(3)).map(|tree| tree.join(DEFAULT_PROGRAM));
    [Some(std::path::absolute(here).ok()?), tree].into_iter().flatten().find(|path| path.is_file())
}
