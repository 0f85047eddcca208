//! Results between two cards, and their conclusions.

use core::fmt;

use causeway_measure::machine::Machine;
use causeway_measure::statistics::Summary;
use causeway_wire::text::Printable;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize};

use crate::case::{Case, Operation, Quantity, Setting};
use crate::sweep::Sweep;

/// What measured a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// Causeway on queue pairs, with nothing between.
    Verbs,
    /// Causeway's own links: their messages and their memory.
    #[value(name = "links")]
    Link,
    /// The programs of perftest (`ib_send_bw` ...).
    Perftest,
}

impl Tool {
    /// Whether the tool can measure an operation: a link reads nothing.
    pub fn measures(self, operation: Operation) -> bool {
        self != Self::Link || operation != Operation::Read
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Verbs => "verbs",
            Self::Link => "link",
            Self::Perftest => "perftest",
        })
    }
}

/// What is measured of Causeway: an operation of queue pairs, or what links make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MeasuredPath {
    /// Queue pairs or links.
    pub tool: Tool,
    /// What moves the bytes. The messages of a link are sent, its memory is written.
    pub operation: Operation,
}

impl MeasuredPath {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self { tool: Tool::Verbs, operation: Operation::Send },
        Self { tool: Tool::Verbs, operation: Operation::Read },
        Self { tool: Tool::Verbs, operation: Operation::Write },
        Self { tool: Tool::Link, operation: Operation::Send },
        Self { tool: Tool::Link, operation: Operation::Write },
    ];
}

impl fmt::Display for MeasuredPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tool, self.operation) {
            (Tool::Link, Operation::Send) => f.pad("messages of a link"),
            (Tool::Link, _) => f.pad("memory of a link"),
            (_, operation) => operation.fmt(f),
        }
    }
}

/// One end of the path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct End {
    /// The machine's name.
    #[serde(deserialize_with = "printable")]
    pub host: String,
    /// The RDMA device.
    #[serde(deserialize_with = "printable")]
    pub device: String,
    /// What the port is plugged into, its rate and its MTU, for people.
    #[serde(deserialize_with = "printable")]
    pub port: String,
}

/// A text of the other end, as it may be shown.
pub(crate) fn printable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Printable::from(String::deserialize(deserializer)?).into())
}

/// Everything about one run.
#[derive(Debug, Serialize)]
pub struct Run {
    /// The command line.
    pub command: String,
    /// Causeway's version.
    pub version: &'static str,
    /// When it was started, in universal time.
    pub date: String,
    /// This end's machine.
    pub machine: Machine,
    /// This end and the other one.
    pub ends: [End; 2],
    /// What is compared.
    pub sweeps: Vec<Sweep>,
    /// What was measured.
    pub records: Vec<Record>,
    /// What could not be measured, and why: sentences.
    pub errors: Vec<String>,
}

/// A case with one setting, measured by one tool.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// What was measured.
    #[serde(flatten)]
    pub case: Case,
    /// With which setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// By which tool.
    pub tool: Tool,
    /// Mean, median and spread of the samples.
    pub summary: Summary,
    /// Each repetition, in the quantity's unit.
    pub samples: Vec<f64>,
}

/// How Causeway does beside perftest, in one path and quantity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What moves the bytes.
    #[serde(flatten)]
    pub path: MeasuredPath,
    /// What is compared: medians, Causeway's over perftest's.
    pub quantity: Quantity,
    /// The ratio of each size and setting.
    pub ratios: Vec<(u64, Setting, f64)>,
    /// Their geometric mean.
    pub mean: f64,
}

impl Comparison {
    /// The ratio in which Causeway does worst: the smallest of bandwidth, the largest of latency.
    pub fn worst(&self) -> f64 {
        let ratios = self.ratios.iter().map(|(_, _, ratio)| *ratio);
        match self.quantity {
            Quantity::Bandwidth => ratios.fold(f64::INFINITY, f64::min),
            Quantity::Latency => ratios.fold(0.0, f64::max),
        }
    }
}

impl Run {
    /// What one tool found for a case with a setting.
    pub fn record(&self, case: Case, setting: Setting, tool: Tool) -> Option<&Record> {
        self.records
            .iter()
            .find(|record| record.case == case && record.setting == setting && record.tool == tool)
    }

    /// How much more bandwidth, or less latency below 0, a setting has than the base of its sweep, by the
    /// means: 0.05 is 5 % more.
    pub fn gain(&self, tool: Tool, case: Case, sweep: &Sweep, setting: Setting) -> Option<f64> {
        let base = self.record(case, sweep.settings[sweep.base], tool)?;
        let this = self.record(case, setting, tool)?;
        (base.summary.mean > 0.0).then(|| this.summary.mean / base.summary.mean - 1.0)
    }

    /// Every case of a path and quantity that was measured, in order and once.
    pub fn cases(&self, path: MeasuredPath, quantity: Quantity) -> Vec<Case> {
        let mut cases = Vec::new();
        for case in self.records.iter().map(|record| record.case) {
            if case.operation == path.operation && case.quantity == quantity && !cases.contains(&case) {
                cases.push(case);
            }
        }
        cases
    }

    /// Causeway beside perftest; nothing where perftest was not run.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let mut all = Vec::new();
        for quantity in Quantity::ALL {
            for path in MeasuredPath::ALL {
                let wanted = |record: &&Record| {
                    record.tool == path.tool
                        && record.case.quantity == quantity
                        && record.case.operation == path.operation
                };
                let ratio = |record: &Record| {
                    let theirs = self.record(record.case, record.setting, Tool::Perftest)?;
                    let ratio = record.summary.median / theirs.summary.median;
                    ratio.is_finite().then_some((record.case.bytes, record.setting, ratio))
                };
                let ratios: Vec<_> = self.records.iter().filter(wanted).filter_map(ratio).collect();
                if !ratios.is_empty() {
                    let logarithms: f64 = ratios.iter().map(|(_, _, ratio)| ratio.ln()).sum();
                    let mean = (logarithms / ratios.len() as f64).exp();
                    all.push(Comparison { path, quantity, ratios, mean });
                }
            }
        }
        all
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sweep::{Varied, settings, sweep};

    /// A run on invented cards, on which bandwidth grows with the logarithm of the capacity, and perftest is
    /// a tenth slower.
    pub(crate) fn example() -> Run {
        let end = |host: &str| End { host: host.into(), device: "card0".into(), port: "a port".into() };
        let sweeps = Varied::ALL.map(|varied| sweep(varied, 4096)).to_vec();
        let mut records = Vec::new();
        for quantity in Quantity::ALL {
            for &operation in Operation::value_variants() {
                for bytes in [2, 4096, 8 << 20] {
                    for setting in settings(&sweeps, quantity) {
                        for (tool, share) in [(Tool::Verbs, 1.0), (Tool::Link, 1.0), (Tool::Perftest, 0.9)] {
                            let base = match quantity {
                                Quantity::Bandwidth => f64::from(setting.capacity).log2(),
                                Quantity::Latency => 10.0,
                            };
                            let samples: Vec<f64> =
                                [0.9, 1.0, 1.1].iter().map(|spread| base * share * spread).collect();
                            let summary = Summary::of(&samples).expect("three samples");
                            let case = Case { operation, quantity, bytes };
                            records.push(Record { case, setting, tool, summary, samples });
                        }
                    }
                }
            }
        }
        Run {
            command: "fabric-perf --to far".into(),
            version: "0.0.0",
            date: "2000-01-01T00:00:00Z".into(),
            machine: Machine::this(),
            ends: [end("near"), end("far")],
            sweeps,
            records,
            errors: Vec::new(),
        }
    }

    #[test]
    fn gains_are_relative_to_the_base_of_the_sweep() {
        let run = example();
        let sweep = sweep(Varied::Capacity, 4096);
        let case = Case { operation: Operation::Read, quantity: Quantity::Bandwidth, bytes: 4096 };
        let gains: Vec<_> = sweep
            .settings
            .iter()
            .map(|setting| run.gain(Tool::Verbs, case, &sweep, *setting).unwrap())
            .collect();
        // The logarithms of 2 to 256 are 1 to 8.
        for (index, gain) in gains.iter().enumerate() {
            assert!((gain - index as f64).abs() < 1e-9, "{gains:?}");
        }
    }

    #[test]
    fn the_worst_ratio_is_low_for_bandwidth_and_high_for_latency() {
        let mut run = example();
        let worse = Case { operation: Operation::Send, quantity: Quantity::Bandwidth, bytes: 2 };
        for record in run.records.iter_mut().filter(|record| record.case == worse) {
            record.summary.median = 1.0;
        }
        let comparisons = run.comparisons();
        assert_eq!(comparisons.len(), 2 * MeasuredPath::ALL.len());
        let sends = &comparisons[0];
        assert!((sends.worst() - 1.0).abs() < 1e-9 && sends.mean > 1.0 && sends.mean < 1.0 / 0.9);
        let latencies = comparisons.last().unwrap();
        assert!((latencies.worst() - 1.0 / 0.9).abs() < 1e-9);
        run.records.retain(|record| record.tool != Tool::Perftest);
        assert!(run.comparisons().is_empty());
    }
}
