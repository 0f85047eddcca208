//! What has been measured on which target?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::case::{Case, Memory, Quantity};
use super::job::JobError;
use super::row::Row;
use crate::machine::{self, Machine};
use crate::statistics::Summary;

/// One way to start the measuring program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// What tables and plots call it.
    pub name: String,
    /// Which GPU: `native`, or a server and the way to it.
    pub gpu: String,
    /// Whether each rank is in a container of its own.
    pub isolated: bool,
    /// The channel that is forced; `auto` where Causeway chooses, `none` without the interposer.
    pub channel: String,
    /// How many pairs of ranks send at once.
    pub pairs: u32,
    /// Why it brought no figures, or not in all runs.
    pub trouble: Option<String>,
}

/// The figures of a case on a target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// What of.
    #[serde(flatten)]
    pub case: Case,
    /// The target's number.
    pub target: usize,
    /// One of each run, in the quantity's unit.
    pub samples: Vec<f64>,
    /// Their middle and spread.
    pub summary: Summary,
    /// By which ways the messages of the last run went.
    pub ways: String,
}

/// Everything that has been measured.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Causeway's version.
    pub version: String,
    /// When it began.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Where.
    pub machine: Machine,
    /// In the order in which they were measured.
    pub targets: Vec<Target>,
    /// In the order of cases, then of targets.
    pub records: Vec<Record>,
}

/// What is to be measured.
#[derive(Debug)]
pub struct Order {
    /// Causeway's version.
    pub version: String,
    /// The command line.
    pub command: String,
    /// On what.
    pub targets: Vec<Target>,
    /// How often each of them.
    pub runs: u32,
    /// After this time no job begins, the first one of each target excepted.
    pub time: Option<Duration>,
}

/// Measures every target once in each run. `job` starts the program on the target of a number. One that fails is
/// not tried again, and its figures of earlier runs count.
pub fn measure(order: Order, mut job: impl FnMut(usize) -> Result<Vec<Row>, JobError>) -> Run {
    let Order { version, command, mut targets, runs, time } = order;
    let (date, start) = (machine::now(), Instant::now());
    let mut found: BTreeMap<(Case, usize), (Vec<f64>, String)> = BTreeMap::new();
    for run in 0..runs {
        for (number, target) in targets.iter_mut().enumerate().filter(|(_, target)| target.trouble.is_none())
        {
            if run > 0 && time.is_some_and(|time| start.elapsed() > time) {
                break;
            }
            match job(number) {
                Ok(rows) => {
                    for Row { case, figure, ways } in rows {
                        let (samples, last) = found.entry((case, number)).or_default();
                        samples.push(figure);
                        *last = ways;
                    }
                }
                Err(error) => target.trouble = Some(error.to_string()),
            }
        }
    }
    let records = found.into_iter().filter_map(|((case, target), (samples, ways))| {
        Some(Record { case, target, summary: Summary::of(&samples)?, samples, ways })
    });
    Run { version, date, command, machine: Machine::this(), records: records.collect(), targets }
}

impl Run {
    /// What was measured of a case on a target.
    pub fn record(&self, case: Case, target: usize) -> Option<&Record> {
        self.records.iter().find(|record| record.case == case && record.target == target)
    }

    /// The sizes of a quantity in a kind of memory, in ascending order.
    pub fn sizes(&self, quantity: Quantity, memory: Memory) -> Vec<u64> {
        let is_meant = |record: &&Record| record.case.quantity == quantity && record.case.memory == memory;
        let mut sizes: Vec<_> =
            self.records.iter().filter(is_meant).map(|record| record.case.bytes).collect();
        sizes.dedup();
        sizes
    }

    /// What went wrong, one sentence for each target.
    pub fn troubles(&self) -> Vec<String> {
        let told = |target: &Target| Some(format!("{}: {}", target.name, target.trouble.as_ref()?));
        self.targets.iter().filter_map(told).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn target(channel: &str) -> Target {
        Target {
            name: channel.to_owned(),
            gpu: "native".to_owned(),
            isolated: false,
            channel: channel.to_owned(),
            pairs: 1,
            trouble: None,
        }
    }

    pub fn example() -> Run {
        let targets = ["auto", "staged", "ipc"].map(target).to_vec();
        let order = Order { version: "1".into(), command: "bench".into(), targets, runs: 3, time: None };
        let mut turn = 0.0;
        measure(order, |number| {
            turn += 1.0;
            if number == 2 {
                return Err(JobError::Nothing);
            }
            let row = |quantity, bytes| Row {
                case: Case { quantity, memory: Memory::Gpu, bytes },
                figure: turn * bytes as f64,
                ways: if number == 0 { "vmm 75, staged 25" } else { "staged 100" }.to_owned(),
            };
            Ok(Quantity::ALL
                .into_iter()
                .flat_map(|quantity| [row(quantity, 8), row(quantity, 4096)])
                .collect())
        })
    }

    #[test]
    fn targets_are_measured_in_turn_and_one_that_fails_only_once() {
        let run = example();
        let case = Case { quantity: Quantity::Latency, memory: Memory::Gpu, bytes: 8 };
        assert_eq!(run.record(case, 0).unwrap().samples, [8.0, 32.0, 48.0]);
        assert_eq!(run.record(case, 1).unwrap().samples, [16.0, 40.0, 56.0]);
        assert_eq!(run.record(case, 2), None);
        assert_eq!(run.sizes(Quantity::Rate, Memory::Gpu), [8, 4096]);
        assert_eq!(run.troubles(), ["ipc: the job ended well and printed no row"]);
    }
}
