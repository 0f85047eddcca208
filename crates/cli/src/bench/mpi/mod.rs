//! `causeway bench mpi`: messages between GPUs in an MPI program. The measuring itself is that of
//! `mpi/bench`, and what happens to its figures `causeway_measure::mpi`'s.
//!
//! | module | contents |
//! | --- | --- |
//! | `arguments` | Command line of `causeway bench mpi`, and that of its measuring program |
//! | `jobs` | MPI jobs of `causeway bench mpi`, and their command lines |
//! | `error` | Errors of `causeway bench mpi` |

mod arguments;
mod error;
mod jobs;

use std::io::{self, Write as _};
use std::process::ExitCode;

use causeway_measure::mpi::results::Run;
use causeway_measure::mpi::{report, results, study};

use super::gpus::Gpus;
use super::rounds::Rounds;
use super::show;
pub use arguments::MpiArguments;
pub use error::MpiError;
use jobs::{LEFT_OUT, Starter};

/// Measures; the exit code says whether all targets were measured to the end.
pub fn mpi(arguments: &MpiArguments) -> Result<ExitCode, MpiError> {
    let gpus = Gpus::new(&arguments.on, arguments.native, &arguments.via)?;
    let starter = Starter::new(arguments, &gpus)?;
    let (runs, time, timeout) = (arguments.runs(), arguments.time, arguments.timeout());
    let rounds = Rounds { runs, time, timeout, out: arguments.out.as_deref() };
    let command = |number| starter.command(number);
    finish(
        &rounds.measure::<_, _, MpiError>(starter.names(), command, results::read, report::write)?,
        arguments,
    )
}

/// Shows and keeps what was measured.
fn finish(run: &Run, arguments: &MpiArguments) -> Result<ExitCode, MpiError> {
    if !run.records.is_empty() {
        let study = if arguments.study { study::text(run) } else { String::new() };
        show::tables(&(report::text(run) + &study), false, arguments.out.as_deref(), |folder| {
            report::write(folder, run)
        })?;
    }
    if arguments.placement.contains(&LEFT_OUT.0) && arguments.channel.contains(&LEFT_OUT.1) {
        // When nobody reads our standard error there is nobody to tell.
        let _ = writeln!(io::stderr(), "causeway: {}", error::NO_IPC);
    }
    Ok(show::errors(&run.errors()))
}
