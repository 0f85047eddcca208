//! Rounds: a program that measures by itself, on every target in turn.

use core::hash::Hash;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use causeway_measure::files::FilesError;
use causeway_measure::job::{self, BadRow, JobError, Outcome};
use causeway_measure::jobs::{self, JobSpec, Line, Run, Target};

use super::error::{ResultsError, TargetError};
use super::show;
use super::targets::command_line;
use crate::keys::HandOverError;

/// How often, how long, and where to.
pub struct Rounds<'a> {
    /// How often on each target.
    pub runs: u32,
    /// Seconds after which no run begins, if any.
    pub time: Option<u32>,
    /// How long one run on a target may take.
    pub timeout: Duration,
    /// The folder for results.
    pub out: Option<&'a Path>,
}

impl Rounds<'_> {
    /// Measures. `command` starts the program on the target of a number, `read` reads a line of what it says,
    /// and `write` writes what there is into the folder: after each run, so that a user who ends this early has
    /// it.
    pub fn measure<C: Clone + Eq + Hash, T, E: From<TargetError> + From<ResultsError>>(
        &self,
        targets: Vec<Target<T>>,
        command: impl Fn(usize) -> Result<Command, HandOverError>,
        read: impl Fn(&str) -> Result<Option<Line<C>>, BadRow>,
        write: impl Fn(&Path, &Run<C, T>) -> Result<Vec<PathBuf>, FilesError>,
    ) -> Result<Run<C, T>, E> {
        if let Some(folder) = self.out {
            show::prepare(folder)?;
        }
        let order = JobSpec {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command_line(std::env::args_os()),
            targets,
            runs: self.runs,
            time: self.time.map(|seconds| Duration::from_secs(seconds.into())),
        };
        let (mut first_error, mut unwritten) = (None, None);
        let run = jobs::measure(
            order,
            |number| match command(number) {
                Ok(mut command) => job::run(&mut command, self.timeout, &read),
                Err(error) => {
                    first_error.get_or_insert(error);
                    Outcome { rows: Vec::new(), error: Some(JobError::Nothing) }
                }
            },
            |run| {
                if let (Some(folder), false) = (self.out, run.records.is_empty()) {
                    unwritten = write(folder, run).err();
                }
            },
        );
        match (first_error, unwritten) {
            (Some(error), _) => Err(TargetError::from(error).into()),
            (None, Some(error)) => Err(ResultsError::from(error).into()),
            (None, None) => Ok(run),
        }
    }
}
