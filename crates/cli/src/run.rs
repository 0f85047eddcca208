//! `causeway run`: runs a program on a server's GPU.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use causeway_config::read::PROCESS;
use causeway_config::table;
use causeway_pipeline::{Table, UserTableError};
use clap::{ArgGroup, Args};
use thiserror::Error;

use crate::keys::HandOverError;
use crate::launch::{self, LaunchError};
use crate::libc_detection;
use crate::library::{self, LibraryError};
use crate::nccl;
#[cfg(feature = "software")]
use crate::ptxas;
use crate::report::{self, ReportError};
use crate::server::{ServerArguments, ServerError, Servers};
#[cfg(feature = "software")]
use crate::stand_ins;
#[cfg(feature = "software")]
use crate::xla;

/// Run a program on a server's GPU, or on the software GPU.
///
/// The program is not changed: it loads Causeway's libcuda.so.1 instead of the machine's own. If no server is
/// named, it uses this machine's own GPUs, if there are any; otherwise the software GPU, if standard error is
/// a terminal (a message says so). In a script this is an error: use `--on software`. A private server lives
/// as long as the program. Nothing else is printed unless an error occurs or an option requests it. The exit
/// code is the program's; if a signal ends the program, it ends this command, too.
#[derive(Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("reported").args(["stats", "device_times"]).multiple(true))]
pub struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print at the end, on standard error, which calls were made and how many bytes were copied.
    #[arg(long)]
    stats: bool,
    /// Measure how long kernels and copies took on the devices, and how much they overlapped; implies --stats.
    ///
    /// Each launch and copy is placed between two events, which takes some microseconds; only the first
    /// 16,384 are measured.
    #[arg(long)]
    device_times: bool,
    /// With --stats: print all counters as JSON.
    #[arg(long, requires = "reported")]
    json: bool,
    /// Print on standard error what this command does.
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Arguments {
    /// Whether there is a report at the end.
    fn has_report(&self) -> bool {
        self.stats || self.device_times
    }
}

/// Why a program was not run.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no server, or it does not answer as it should.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The option that names servers stands where the program's own arguments do.
    #[error(
        "`{0}` after the program or `--` belongs to the program: write it before, `causeway run {0} SERVER \
         -- PROGRAM`{1}"
    )]
    Misplaced(String, String),
    /// The program would not find the servers' keys.
    #[error(transparent)]
    Keys(#[from] HandOverError),
    /// The user's plans for copies have an error.
    #[error(transparent)]
    Pipeline(#[from] UserTableError),
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

impl RunError {
    /// The exit code: a shell's for a program that does not start, 125 for an error of our own.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Launch(error) => error.exit_code(),
            _ => 125,
        }
    }
}

/// The option of this command that names servers, where a word of the program's command line is that.
fn server_option(word: &OsStr) -> Option<&'static str> {
    let word = word.as_encoded_bytes();
    (word == b"--on" || word.starts_with(b"--on=")).then_some("--on")
}

/// The command that runs a program on the servers that are meant, which answer, and those servers.
pub fn prepare(
    server: &ServerArguments,
    program: &[OsString],
    verbose: bool,
) -> Result<(Command, Servers), RunError> {
    if let Some(option) = server_option(&program[0]) {
        return Err(RunError::Misplaced(option.to_owned(), String::new()));
    }
    let library = library::folder()?;
    // The client library would refuse the same, later and in the program.
    Table::of_user(PROCESS)?;
    if let Some(warning) = libc_detection::warning(&program[0]) {
        // Without a standard error it cannot be said.
        let _ = writeln!(io::stderr(), "causeway: warning: {warning}");
    }
    let servers = server.servers_of_program(verbose).map_err(|error| {
        match (&error, program.iter().find_map(|word| server_option(word))) {
            (ServerError::None(_), Some(option)) => {
                RunError::Misplaced(option.to_owned(), format!(" ({error})"))
            }
            _ => error.into(),
        }
    })?;
    server.check(&servers)?;
    let mut command = launch::command(program, &library);
    servers.hand_over(&mut command)?;
    #[cfg(feature = "software")]
    {
        ptxas::hand_over(&mut command, servers.are_software());
        xla::hand_over(&mut command, servers.are_software());
        if servers.are_software() {
            stand_ins::hand_over(&mut command, &library);
        }
    }
    let via = server.via_of_program(&servers).map_err(ServerError::from)?;
    if let Some(via) = via {
        command.env(table::VIA.name, via.to_string());
    }
    nccl::hand_over(&mut command, &servers.targets, via);
    Ok((command, servers))
}

/// Runs the program; returns with its exit code, or ends this process by the same signal.
pub fn run(arguments: &Arguments) -> Result<ExitCode, RunError> {
    let (mut command, servers) = prepare(&arguments.server, &arguments.program, arguments.verbose)?;
    if arguments.verbose {
        let kind = match (servers.has_private(), servers.targets.len()) {
            (true, 1) => "a private server",
            (false, 1) => "the server",
            (_, _) => "the servers",
        };
        let names = servers.names();
        let library = library::folder()?;
        let library = library.display();
        let _ =
            writeln!(io::stderr(), "causeway: using {kind} at {names} and the client library in {library}");
        command.env(table::LOG.name, "info");
    }
    if !servers.outlive_program() && !arguments.has_report() {
        return Err(launch::become_program(command).into());
    }
    let report = arguments.has_report().then(report::File::new).transpose()?;
    if let Some(report) = &report {
        report.ask_for(&mut command);
    }
    if arguments.device_times {
        command.env(table::DEVICE_TIMES.name, "on");
    }
    let status = launch::run_program(command)?;
    // Before this process ends, which a signal may bring about at once.
    drop(servers);
    if let Some(report) = report {
        let mut err = io::stderr().lock();
        // How the program ended matters more than its report, which a standard error that is closed or full cannot take.
        let _ = match report.read() {
            Ok(report) if arguments.json => writeln!(err, "{:#}", report.to_json()),
            Ok(report) => write!(err, "{}", report.summary()),
            Err(error) => writeln!(err, "causeway: {error}"),
        };
    }
    Ok(launch::end_like(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        run: Arguments,
    }

    #[test]
    fn an_option_in_the_place_of_the_program_is_named() {
        let error = prepare(&line(&["./program"]).server, &["--on".into(), "software".into()], false);
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("`--on` after the program or `--` belongs to the program"), "{error}");
        assert_eq!(server_option(OsStr::new("--on=a")), Some("--on"));
        assert_eq!(server_option(OsStr::new("--only")), None);
    }

    fn line(arguments: &[&str]) -> Arguments {
        Line::try_parse_from([&["run"], arguments].concat()).unwrap().run
    }

    #[test]
    fn device_times_are_reported_without_a_further_option() {
        assert!(line(&["--device-times", "--json", "p"]).has_report());
        assert!(line(&["--stats", "--json", "p"]).has_report());
        assert!(!line(&["p", "--device-times"]).has_report());
        assert!(Line::try_parse_from(["run", "--json", "p"]).is_err());
    }
}
