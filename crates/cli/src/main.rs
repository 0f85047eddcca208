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

use causeway_server::back_end::BUILT_IN;
use clap::{Parser, Subcommand};

/// Run CUDA programs on GPUs that are elsewhere.
///
/// A server with a GPU runs `causeway serve`. On any other machine `causeway run --on SERVER -- PROGRAM`
/// runs an unmodified CUDA program there: its calls of the CUDA driver are carried to the server.
#[derive(Debug, Parser)]
#[command(name = "causeway", version, long_version = LONG_VERSION.as_str(), after_long_help = ENVIRONMENT, max_term_width = 110)]
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
    /// Serve one client; started by `causeway serve`.
    #[command(hide = true)]
    Worker(logging::Options),
}

/// The end of `causeway --help`.
const ENVIRONMENT: &str = "\
Environment variables:
  CAUSEWAY_ON       The server: HOST:PORT, unix:PATH, or the connect string that `causeway serve`
                    printed; or several, with commas between them. `causeway run` sets it for the
                    program; a program that is started with it and finds our libcuda.so.1 needs
                    no `causeway run`.
  CAUSEWAY_KEY_FILE A file with the servers' keys (--key-file); if not set, those that `causeway key
                    add` has kept, and the key that a server of this user has made.
  CAUSEWAY_LANES    How many connections carry large copies, from 1 to 32; if not set, as many as
                    the network's length asks for: 4 to 16, at least 8 where there are 8 cores.
  CAUSEWAY_PIPELINE How copies are cut and carried, by their size, such as
                    ..1M: 4x256K; 1M..: 8x4M, 8 lanes. docs/src/reference/environment.md explains it;
                    `causeway tune` measures what is best.
  CAUSEWAY_SYNC     1: every call waits for its outcome, so that errors appear where they are made.
  CAUSEWAY_STATS    A file that gets counts of calls and bytes, as JSON, when the program ends.
  CAUSEWAY_GPUDIRECT
                    off: network cards do not reach the GPU's memory, for comparison; auto (if not
                    set), dma-buf, peermem.
  CAUSEWAY_LOG      What the client library says on standard error: off, error (if not set), info,
                    debug or trace.
  CAUSEWAY_LIB_DIR  The folder with our libcuda.so.1. If not set: the folder of the program
                    `causeway`, or ../lib/causeway seen from there.

CUDA_VISIBLE_DEVICES and the other CUDA_* variables of the program have their usual meaning; they
are interpreted by the client library or given to the server's driver.

Exit codes of `causeway run`: the program's own; a signal that ends the program ends `causeway run`
too; 127 when the program is not found, 126 when it cannot be started, 125 for other trouble.";

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::serve(&arguments).map_err(Trouble::of(1)),
        Command::Run(arguments) => {
            run::run(&arguments).map_err(|error| Trouble::of(error.exit_code())(error))
        }
        Command::Mpirun(arguments) => {
            mpirun::mpirun(&arguments).map_err(|error| Trouble::of(error.exit_code())(error))
        }
        Command::Devices(arguments) => devices::devices(&arguments).map_err(Trouble::of(1)),
        Command::Doctor(arguments) => doctor::doctor(&arguments).map_err(Trouble::of(2)),
        Command::Key(arguments) => key::key(&arguments).map_err(Trouble::of(1)),
        Command::Api(arguments) => api::api(&arguments).map_err(Trouble::of(1)),
        Command::Demo(arguments) => {
            demo::demo(&arguments).map_err(|error| Trouble::of(error.exit_code())(error))
        }
        Command::Bench(arguments) => bench::bench(&arguments).map_err(Trouble::of(1)),
        Command::Measure(arguments) => bench::measure(&arguments).map_err(Trouble::of(1)),
        Command::Tune(arguments) => tune::tune(&arguments).map_err(Trouble::of(1)),
        Command::TuneHere(arguments) => tune::tune_here(&arguments).map_err(Trouble::of(1)),
        Command::Worker(arguments) => {
            let _at_end = logging::start(&arguments);
            Ok(causeway_server::worker_main())
        }
    };
    outcome.unwrap_or_else(|trouble| {
        // When nobody reads our standard error there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "causeway: {}", trouble.text);
        ExitCode::from(trouble.code)
    })
}

/// What a command failed with: a sentence and an exit code.
struct Trouble {
    text: String,
    code: u8,
}

impl Trouble {
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
