//! The program `causeway`: serves GPUs, and runs CUDA programs on GPUs that are elsewhere.
//!
//! | Module      | Question it answers                                                          |
//! |-------------|------------------------------------------------------------------------------|
//! | `serve`     | How is a server started and ended?                                           |
//! | `sandbox`   | What does a server's owner say about the sandbox of its workers?              |
//! | `run`       | How does a program come to run on a server's GPU?                            |
//! | `mpirun`    | How do the ranks of an MPI program come to have the interposer?              |
//! | `devices`   | Which GPUs does a server have?                                               |
//! | `api`       | Which driver functions are supported?                                        |
//! | `bench`     | How fast are copies, launches and waits, here and there?                     |
//! | `doctor`    | What does a machine lack, and what is to be done?                            |
//! | `demo`      | Does all of it work on this machine?                                         |
//! | `tune`      | Which plans for copies suit this server, and how are they kept?               |
//! | `embedded`  | How does a command bring its own server?                                     |
//! | `key`       | Which keys are there, and how does one get from a server to its clients?      |
//! | `keys`      | How do servers' keys get to a program that is started?                        |
//! | `launch`    | How is a program started so that signals and exit codes come through?         |
//! | `libc_of`   | Which C library does a program want?                                         |
//! | `library`   | Where is the client library?                                                 |
//! | `report`    | What did a program do, in words and numbers?                                 |
//! | `copies`    | How did a program's copies travel, and what slowed them?                     |
//! | `logging`   | Where do log lines go, and how do they look?                                 |

mod api;
mod bench;
mod copies;
mod demo;
mod devices;
mod doctor;
mod embedded;
mod key;
mod keys;
mod launch;
mod libc_of;
mod library;
mod logging;
mod mpirun;
mod report;
mod run;
mod sandbox;
mod serve;
mod server;
mod tune;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::LazyLock;

use causeway_config::read::PROCESS;
use causeway_config::{Who, check};
use causeway_server::back_end::BUILT_IN;
use clap::{Parser, Subcommand};

/// Run CUDA programs on GPUs that are elsewhere.
///
/// A server with a GPU runs `causeway serve`. On any other machine `causeway run --on SERVER -- PROGRAM`
/// runs an unmodified CUDA program there: its calls of the CUDA driver are carried to the server.
#[derive(Debug, Parser)]
#[command(name = "causeway", version, long_version = LONG_VERSION.as_str(), after_long_help = environment(), max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What `causeway --version` says: the version, and for `causeway serve` the back ends that are built in.
static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{}\nback ends: {BUILT_IN}", env!("CARGO_PKG_VERSION")));

// What the help says of a command stands at its arguments.
#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Run(run::Arguments),
    Mpirun(mpirun::Arguments),
    Devices(devices::Arguments),
    Doctor(doctor::Arguments),
    Key(key::Arguments),
    Api(api::Arguments),
    Demo(demo::Arguments),
    Tune(tune::Arguments),
    Bench(bench::BenchArguments),
    /// Measure one target; started by `causeway bench`.
    #[command(hide = true)]
    Measure(bench::MeasureArguments),
    /// Measure plans in a process that uses the client library; started by `causeway tune`.
    #[command(hide = true)]
    TuneHere(tune::HereArguments),
    /// Start NVIDIA's driver, and say why if it cannot be; started by `causeway serve`.
    #[command(hide = true)]
    TryDriver,
    /// Serve one client; started by `causeway serve`.
    #[command(hide = true)]
    Worker(logging::Options),
}

/// The end of `causeway --help`.
fn environment() -> String {
    let variables = causeway_config::document::help(100);
    format!(
        "\
Environment variables:
{variables}
CUDA_VISIBLE_DEVICES and the other CUDA_* variables of the program have their usual meaning; they
are interpreted by the client library or given to the server's driver. A program that is started
with CAUSEWAY_ON and finds our libcuda.so.1 needs no `causeway run`.

Exit codes of `causeway run`: the program's own; a signal that ends the program ends `causeway run`
too; 127 when the program is not found, 126 when it cannot be started, 125 for other trouble."
    )
}

impl Command {
    /// Whose variables the command acts on, itself or by what it starts, and its exit code where one cannot
    /// be used. It says so before it does anything.
    fn environment(&self) -> (&'static [Who], u8) {
        const PROGRAM: &[Who] = &[Who::Client, Who::Worker, Who::Run];
        match self {
            Self::Serve(_) => (&[Who::Server], 1),
            Self::Run(_) | Self::Demo(_) => (PROGRAM, 125),
            Self::Doctor(_) => (PROGRAM, 2),
            Self::Devices(_) | Self::Bench(_) | Self::Tune(_) => (PROGRAM, 1),
            Self::Mpirun(_) => (&[Who::Mpirun, Who::Rank], 125),
            // Those that are started by others have been checked there.
            Self::Key(_)
            | Self::Api(_)
            | Self::Measure(_)
            | Self::TuneHere(_)
            | Self::TryDriver
            | Self::Worker(_) => (&[], 1),
        }
    }
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let (who, code) = command.environment();
    let outcome = match check(PROCESS, who) {
        Ok(()) => carry_out(command),
        Err(error) => Err(CommandError::of(code)(error)),
    };
    outcome.unwrap_or_else(|error| {
        // When nobody reads our standard error there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "causeway: {}", error.text);
        ExitCode::from(error.code)
    })
}

fn carry_out(command: Command) -> Result<ExitCode, CommandError> {
    match command {
        Command::Serve(arguments) => serve::serve(&arguments).map_err(CommandError::of(1)),
        Command::Run(arguments) => {
            run::run(&arguments).map_err(|error| CommandError::of(error.exit_code())(error))
        }
        Command::Mpirun(arguments) => {
            mpirun::mpirun(&arguments).map_err(|error| CommandError::of(error.exit_code())(error))
        }
        Command::Devices(arguments) => devices::devices(&arguments).map_err(CommandError::of(1)),
        Command::Doctor(arguments) => doctor::doctor(&arguments).map_err(CommandError::of(2)),
        Command::Key(arguments) => key::key(&arguments).map_err(CommandError::of(1)),
        Command::Api(arguments) => api::api(&arguments).map_err(CommandError::of(1)),
        Command::Demo(arguments) => {
            demo::demo(&arguments).map_err(|error| CommandError::of(error.exit_code())(error))
        }
        Command::Bench(arguments) => bench::bench(&arguments).map_err(CommandError::of(1)),
        Command::Measure(arguments) => bench::measure(&arguments).map_err(CommandError::of(1)),
        Command::Tune(arguments) => tune::tune(&arguments).map_err(CommandError::of(1)),
        Command::TuneHere(arguments) => tune::tune_here(&arguments).map_err(CommandError::of(1)),
        Command::TryDriver => serve::try_driver_here().map_err(CommandError::of(1)),
        Command::Worker(arguments) => {
            let _at_end = logging::start(&arguments);
            Ok(causeway_server::worker_main())
        }
    }
}

/// What a command failed with: a sentence and an exit code.
struct CommandError {
    text: String,
    code: u8,
}

impl CommandError {
    fn of<E: std::error::Error>(code: u8) -> impl Fn(E) -> Self {
        move |error| Self { text: error.to_string(), code }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
