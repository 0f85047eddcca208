//! How fast are copies, launches and waits, here and there? The measuring itself is `causeway-measure`'s.
//!
//! | Module      | Question it answers                                       |
//! |-------------|-----------------------------------------------------------|
//! | `arguments` | What can be asked, and which cases follow?                |
//! | `targets`   | Which processes measure what?                             |
//! | `mpi`       | How are messages between GPUs measured, in an MPI program? |

mod arguments;
mod mpi;
mod targets;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use causeway_access::keys::ServersError;
use causeway_measure::files::{self, FilesError};
use causeway_measure::protocol::MessageError;
use causeway_measure::results::Run;
use causeway_measure::run::{Order, run};
use causeway_measure::table;
use clap::{Args, Subcommand};
use thiserror::Error;

use crate::embedded::EmbeddedError;
use crate::keys::HandOverError;
use crate::library::LibraryError;
use crate::report::ReportError;
use arguments::Arguments;
use mpi::{MpiArguments, MpiError};
use targets::{Targets, command_line};

/// Measure copies, launches and waits, on servers and on this machine's own GPU, in turns.
///
/// Each target gets a process of its own, which calls the CUDA driver as a program does; what differs in plans alone shares one. Repetition i is
/// measured on every target before repetition i + 1 on any, so that what disturbs the machine disturbs all alike. The content of copies is
/// compared before they are timed. When no target is named, a private server with the software GPU is measured. Network cards are measured
/// without GPUs by the program fabric-perf, and messages between the GPUs of an MPI program's ranks by `mpi`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    #[command(flatten)]
    Gpu(Arguments),
    Mpi(MpiArguments),
}

/// The arguments of the process that measures one target.
#[derive(Debug, Args)]
pub struct MeasureArguments {
    /// The library whose functions are called.
    #[arg(long)]
    library: PathBuf,
    /// The library must be NVIDIA's own.
    #[arg(long)]
    native: bool,
}

/// Measures one target as its parent asks on standard input.
pub fn measure(arguments: &MeasureArguments) -> Result<ExitCode, MessageError> {
    causeway_measure::child::serve(&arguments.library, arguments.native)?;
    Ok(ExitCode::SUCCESS)
}

/// Why nothing was measured, or results are lost.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A server's address makes no sense, or its key cannot be read.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// A process that measures would not find the server's key.
    #[error(transparent)]
    Keys(#[from] HandOverError),
    /// There is no client library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The private server does not start.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// There is no place for what measuring processes report.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The choice leaves no case.
    #[error("there is nothing to measure: asynchronous copies go up to 64 MiB")]
    Nothing,
    /// The results cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Nobody reads the tables.
    #[error("the results cannot be printed: {0}")]
    Print(io::Error),
    /// Messages cannot be measured.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The system does not say where this program is.
    #[error("the system does not say where the program causeway is: {0}")]
    Executable(io::Error),
}

/// Measures; the exit code says whether all targets were measured to the end and every byte was right.
pub fn bench(arguments: &BenchArguments) -> Result<ExitCode, BenchError> {
    match &arguments.what {
        What::Gpu(arguments) => bench_gpus(arguments),
        What::Mpi(arguments) => Ok(mpi::mpi(arguments)?),
    }
}

fn bench_gpus(arguments: &Arguments) -> Result<ExitCode, BenchError> {
    let cases = arguments.cases();
    if cases.is_empty() {
        return Err(BenchError::Nothing);
    }
    if let Some(folder) = &arguments.common().out {
        files::prepare(folder)?;
    }
    let mut targets = Targets::new(arguments)?;
    let mut run = run(Order {
        kind: arguments.kind(),
        command: command_line(std::env::args_os()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cases,
        plan: arguments.plan(),
        groups: core::mem::take(&mut targets.groups),
    });
    targets.finish(&mut run);
    finish(&run, arguments)
}

/// Shows and keeps what was measured.
fn finish(run: &Run, arguments: &Arguments) -> Result<ExitCode, BenchError> {
    if run.has_figures() {
        io::stdout().lock().write_all(table::text(run).as_bytes()).map_err(BenchError::Print)?;
        if let Some(folder) = &arguments.common().out {
            let written = files::listed(&files::write(folder, run)?);
            writeln!(io::stdout().lock(), "\n{written}").map_err(BenchError::Print)?;
        }
    }
    let mut troubles = run.troubles();
    if !run.has_figures() {
        troubles.extend(run.refusals());
    }
    for trouble in &troubles {
        // When nobody reads our standard error the exit code still tells.
        let _ = writeln!(io::stderr(), "causeway: {trouble}");
    }
    Ok(if troubles.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
