//! Results of programs that measure by themselves, on every target in turn.

use core::convert::Infallible;
use core::hash::Hash;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::job::Outcome;
use crate::machine::{self, Machine};
use crate::schedule::interleaved;
use crate::statistics::Summary;

/// A line of such a program; `C` is what a result is of.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<C> {
    /// A result, and by which ways the messages went, where that was counted.
    Result(C, f64, String),
    /// What was not measured, and why.
    Skipped(String),
}

/// One way to start the program; `T` says which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target<T> {
    /// What tables and plots call it.
    pub name: String,
    /// Which way it is.
    #[serde(flatten)]
    pub way: T,
    /// What the program did not measure there, and why.
    pub skipped: Vec<String>,
    /// Why there are no results, or not of all runs.
    pub error: Option<String>,
}

impl<T> Target<T> {
    /// One of which nothing is known yet.
    pub fn new(name: String, way: T) -> Self {
        Self { name, way, skipped: Vec::new(), error: None }
    }
}

/// The results of a case on a target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record<C> {
    /// What of.
    #[serde(flatten)]
    pub case: C,
    /// The target's number.
    pub target: usize,
    /// One of each run, in the case's unit.
    pub samples: Vec<f64>,
    /// Their middle and spread.
    pub summary: Summary,
    /// By which ways the messages of the last run went; empty where that is not counted.
    pub paths: String,
}

/// Everything that has been measured.
#[derive(Debug, Clone, Serialize)]
pub struct Run<C, T> {
    /// Causeway's version.
    pub version: String,
    /// When it began.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Where.
    pub machine: Machine,
    /// As they were ordered.
    pub targets: Vec<Target<T>>,
    /// In the order in which they were first measured.
    pub records: Vec<Record<C>>,
}

/// What is to be measured.
#[derive(Debug)]
pub struct JobSpec<T> {
    /// Causeway's version.
    pub version: String,
    /// The command line.
    pub command: String,
    /// On what.
    pub targets: Vec<Target<T>>,
    /// How often each of them.
    pub runs: u32,
    /// After this time no job begins, the first one of each target excepted.
    pub time: Option<Duration>,
}

/// Measures every target once in each run. `job` starts the program on the target of a number; what it has
/// printed counts even where it fails, and then it is not started there again. `keep` is given what there is
/// after each job, so that a long run leaves something when it is interrupted.
pub fn measure<C: Clone + Eq + Hash, T>(
    order: JobSpec<T>,
    mut job: impl FnMut(usize) -> Outcome<Line<C>>,
    mut keep: impl FnMut(&Run<C, T>),
) -> Run<C, T> {
    let JobSpec { version, command, targets, runs, time } = order;
    let (date, start, machine) = (machine::now(), Instant::now(), Machine::this());
    let mut run = Run { version, date, command, machine, targets, records: Vec::new() };
    let mut indices = HashMap::new();
    let Ok(()) = interleaved(runs, run.targets.len(), |round, number| {
        if round > 0 && time.is_some_and(|time| start.elapsed() > time) {
            return Ok::<_, Infallible>(true);
        }
        let Outcome { rows, error } = job(number);
        for line in rows {
            run.add(number, line, &mut indices);
        }
        let is_well = error.is_none();
        run.targets[number].error = error.map(|error| error.to_string());
        keep(&run);
        Ok(is_well)
    });
    run
}

impl<C: Clone + Eq + Hash, T> Run<C, T> {
    /// Takes what the program has said of a target; `indices` are those of records.
    fn add(&mut self, target: usize, line: Line<C>, indices: &mut HashMap<(C, usize), usize>) {
        match line {
            Line::Result(case, result, paths) => {
                let next = self.records.len();
                let index = *indices.entry((case.clone(), target)).or_insert(next);
                if index == next {
                    let Some(summary) = Summary::of(&[result]) else { return };
                    let (samples, paths) = (Vec::new(), String::new());
                    self.records.push(Record { case, target, samples, summary, paths });
                }
                let record = &mut self.records[index];
                record.samples.push(result);
                record.summary = Summary::of(&record.samples).unwrap_or(record.summary);
                record.paths = paths;
            }
            Line::Skipped(what) => {
                let skipped = &mut self.targets[target].skipped;
                if !skipped.contains(&what) {
                    skipped.push(what);
                }
            }
        }
    }

    /// What was measured of a case on a target.
    pub fn record(&self, case: &C, target: usize) -> Option<&Record<C>> {
        self.records.iter().find(|record| record.target == target && record.case == *case)
    }

    /// What went wrong, one sentence for each target.
    pub fn errors(&self) -> Vec<String> {
        let reported = |target: &Target<T>| Some(format!("{}: {}", target.name, target.error.as_ref()?));
        self.targets.iter().filter_map(reported).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::job::JobError;

    /// An order of so many runs on targets of these names.
    pub(crate) fn order<T: Clone>(names: &[&str], way: &T, runs: u32) -> JobSpec<T> {
        let targets = names.iter().map(|name| Target::new((*name).to_owned(), way.clone())).collect();
        JobSpec { version: "1".into(), command: "bench".into(), targets, runs, time: None }
    }

    #[test]
    fn targets_are_measured_in_turn_and_what_a_failing_one_has_said_counts() {
        let (mut round, mut snapshots) = (0.0, Vec::new());
        let run = measure(
            order(&["a", "b", "c"], &(), 3),
            |number| {
                round += 1.0;
                let result = |case| Line::Result(case, round, format!("by {round}"));
                let rows = vec![result('x'), result('y'), Line::Skipped("energy: none".to_owned())];
                Outcome { rows, error: (number == 2).then_some(JobError::Nothing) }
            },
            |run| snapshots.push(run.records.len()),
        );
        // The third is not tried again; each run begins with another target.
        let samples: Vec<_> =
            (0..3).map(|target| run.record(&'y', target).unwrap().samples.clone()).collect();
        assert_eq!(samples, [vec![1.0, 5.0, 6.0], vec![2.0, 4.0, 7.0], vec![3.0]]);
        assert_eq!(run.record(&'x', 0).unwrap().paths, "by 6");
        assert_eq!(run.record(&'x', 1).unwrap().summary.median, 4.0);
        assert_eq!(run.records.iter().map(|record| record.case).collect::<String>(), "xyxyxy");
        assert_eq!(run.targets[0].skipped, ["energy: none"]);
        assert_eq!(run.errors(), ["c: the job succeeded but printed no row"]);
        assert_eq!(snapshots, [2, 4, 6, 6, 6, 6, 6]);
    }
}
