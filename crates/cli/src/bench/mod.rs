//! `causeway bench`: speed of copies, launches and waits, remote and native. The measuring itself is
//! `causeway-measure`'s.
//!
//! | module | contents |
//! | --- | --- |
//! | `arguments` | Command line of `causeway bench`, and the cases that follow from it |
//! | `targets` | Targets: the processes that measure |
//! | `gpus` | GPUs on which a program that measures by itself runs |
//! | `device` | `causeway bench device`: kernels that communicate by themselves |
//! | `mpi` | `causeway bench mpi`: messages between GPUs in an MPI program |
//! | `rounds` | Rounds: a program that measures by itself, on every target in turn |
//! | `show` | Output of results: tables on standard output, files in a folder, and an exit code |
//! | `error` | Errors of `causeway bench`: no target to measure, or results that are lost |

mod arguments;
mod device;
mod error;
mod gpus;
mod mpi;
mod rounds;
mod show;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use causeway_measure::protocol::MessageError;
use causeway_measure::report;
use causeway_measure::results::{Kind, Run};
use causeway_measure::run::{RunSpec, run};
use clap::{Args, Subcommand};
use thiserror::Error;

use arguments::Arguments;
use device::{DeviceArguments, DeviceError};
use error::{ResultsError, TargetError};
use mpi::{MpiArguments, MpiError};
use show::references;
use targets::{Targets, command_line};

/// Measure copies, launches and waits, on servers and on this machine's own GPU, in turns.
///
/// Each target gets a process of its own, which calls the CUDA driver as a program does; targets that differ
/// only in their plans share one. Repetition i is measured on every target before repetition i + 1 on any, so
/// that a disturbance of the machine affects all alike. The contents of copies are compared before they are
/// timed. If no target is named, a private server with the software GPU is measured. The program fabric-perf
/// measures network cards without GPUs, `mpi` messages between the GPUs of an MPI program's ranks, and
/// `device` kernels that communicate by themselves.
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
    Device(DeviceArguments),
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
    /// No target can be measured.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The choice leaves no case.
    #[error("there is nothing to measure: asynchronous copies are measured up to 64 MiB")]
    Nothing,
    /// The results are lost.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// Messages cannot be measured.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// Kernels that communicate cannot be measured.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Measures; the exit code says whether all targets were measured to the end and every byte was right.
pub fn bench(arguments: &BenchArguments) -> Result<ExitCode, BenchError> {
    match &arguments.what {
        What::Gpu(arguments) => bench_gpus(arguments),
        What::Mpi(arguments) => Ok(mpi::mpi(arguments)?),
        What::Device(arguments) => Ok(device::device(arguments)?),
    }
}

fn bench_gpus(arguments: &Arguments) -> Result<ExitCode, BenchError> {
    let cases = arguments.cases();
    if cases.is_empty() {
        return Err(BenchError::Nothing);
    }
    if let Some(folder) = &arguments.common().out {
        show::prepare(folder)?;
    }
    let mut targets = Targets::new(arguments)?;
    let mut run = run(RunSpec {
        kind: arguments.kind(),
        command: command_line(std::env::args_os()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cases,
        references: if matches!(arguments.kind(), Kind::Copy | Kind::Pipeline) {
            references(targets.servers())
        } else {
            Vec::new()
        },
        plan: arguments.plan(),
        groups: core::mem::take(&mut targets.groups),
    });
    targets.finish(&mut run);
    finish(&run, arguments)
}

/// Shows and keeps what was measured.
fn finish(run: &Run, arguments: &Arguments) -> Result<ExitCode, BenchError> {
    let common = arguments.common();
    if run.has_results() || common.json {
        let text = if common.json { report::json(run) } else { report::text(run) };
        show::tables(&text, common.json, common.out.as_deref(), |folder| report::write(folder, run))?;
    }
    let mut errors = run.errors();
    if !run.has_results() {
        errors.extend(run.refusals());
    }
    Ok(show::errors(&errors))
}
