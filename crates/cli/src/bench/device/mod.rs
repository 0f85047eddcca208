//! `causeway bench device`: kernels that communicate by themselves. The measuring itself is that of
//! `bench/device`, and what happens to its figures `causeway_measure::device`'s.
//!
//! | module | contents |
//! | --- | --- |
//! | `arguments` | Command line of `causeway bench device`, and that of its measuring program |
//! | `program` | Measuring program of `causeway bench device`: its path, and its start |
//! | `error` | Errors of `causeway bench device` |

mod arguments;
mod error;
mod program;

use std::process::ExitCode;

use causeway_measure::device::results::{ByName, Run};
use causeway_measure::device::{report, results};
use causeway_measure::jobs::Target;

use super::gpus::Gpus;
use super::rounds::Rounds;
use super::show;
pub use arguments::DeviceArguments;
pub use error::DeviceError;
use program::Program;

/// Measures; the exit code says whether all targets were measured to the end.
pub fn device(arguments: &DeviceArguments) -> Result<ExitCode, DeviceError> {
    let gpus = Gpus::new(&arguments.on, arguments.native, &arguments.via)?;
    let program = Program::new(arguments, &gpus)?;
    let (runs, time, timeout) = (arguments.runs(), arguments.time, arguments.timeout());
    let rounds = Rounds { runs, time, timeout, out: arguments.out.as_deref() };
    let targets = gpus.each.iter().map(|gpu| Target::new(gpu.name(), ByName {})).collect();
    let command = |number: usize| program.command(&gpus.each[number]);
    finish(&rounds.measure::<_, _, DeviceError>(targets, command, results::read, report::write)?, arguments)
}

/// Shows what was measured.
fn finish(run: &Run, arguments: &DeviceArguments) -> Result<ExitCode, DeviceError> {
    if !run.records.is_empty() || arguments.json {
        let text = if arguments.json { report::json(run) } else { report::text(run) };
        show::tables(&text, arguments.json, arguments.out.as_deref(), |folder| report::write(folder, run))?;
    }
    Ok(show::errors(&run.errors()))
}
