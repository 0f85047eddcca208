//! Results: what was measured, where, and by which command.

use serde::Serialize;

use crate::case::Case;
use crate::machine::Machine;
use crate::protocol::{Introduction, Samples};
use crate::reference::Rate;
use crate::statistics::Summary;
use crate::worker_process::{Target, TargetLocation};

/// Copies below this size say nothing about processor time per byte.
const MIN_BYTES_FOR_PROCESSOR: u64 = 64 << 10;

/// Everything about one run of `causeway bench`.
#[derive(Debug, Serialize)]
pub struct Run {
    /// The subcommand.
    pub kind: Kind,
    /// The command line, without keys.
    pub command: String,
    /// Causeway's version.
    pub version: String,
    /// When it was started, in universal time.
    pub date: String,
    /// Where.
    pub machine: Machine,
    /// Rates that copies are compared with.
    pub references: Vec<Rate>,
    /// What was measured.
    pub targets: Vec<TargetRecord>,
    /// Each case with what each target did.
    pub cases: Vec<CaseRecord>,
}

/// The subcommands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `causeway bench copy`.
    Copy,
    /// `causeway bench latency`.
    Latency,
    /// `causeway bench launch`.
    Launch,
    /// `causeway bench pipeline`.
    Pipeline,
}

impl Kind {
    /// Its name on the command line and in the names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Latency => "latency",
            Self::Launch => "launch",
            Self::Pipeline => "pipeline",
        }
    }
}

/// A target and how it fared.
#[derive(Debug, Clone, Serialize)]
pub struct TargetRecord {
    /// What was measured.
    #[serde(flatten)]
    pub target: Target,
    /// What it measured with; none if it never began.
    #[serde(flatten)]
    pub introduction: Option<Introduction>,
    /// The transport that carried its calls and copies, as its client library has reported at its end.
    pub module: Option<String>,
    /// Why it was not measured to the end.
    pub error: Option<String>,
}

/// One case on all targets.
#[derive(Debug, Serialize)]
pub struct CaseRecord {
    /// The case.
    #[serde(flatten)]
    pub case: Case,
    /// What came of it, for the targets in their order; none for those that were no longer there.
    pub outcomes: Vec<Option<Outcome>>,
}

/// What came of a case on one target.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was measured.
    Measured(Box<CaseResult>),
    /// It cannot be measured there.
    Refused {
        /// Why.
        reason: String,
    },
    /// Bytes were wrong, so there are no figures.
    Wrong {
        /// What was found.
        reason: String,
    },
}

/// The figures of a case on one target.
#[derive(Debug, Serialize)]
pub struct CaseResult {
    /// Microseconds until the work was done.
    pub done_us: Summary,
    /// Microseconds until the call returned, where that may be earlier.
    pub returned_us: Option<Summary>,
    /// GB/s (1e9 bytes a second), for copies.
    pub gb_per_s: Option<Summary>,
    /// Processor seconds of the measuring process for each GB, for copies that are not small.
    pub processor_s_per_gb: Option<f64>,
    /// The times themselves, in the order in which they were measured.
    pub samples: Samples,
}

impl CaseResult {
    /// Computes the figures; none without samples.
    pub fn of(case: Case, samples: Samples) -> Option<Self> {
        let done_us = Summary::of(&samples.done_us)?;
        let returned_us = case.returns_early().then(|| Summary::of(&samples.returned_us)).flatten();
        let bytes = case.bytes();
        // Bytes in a microsecond, over 1e3, are GB in a second.
        let gb_per_s = case.path().map(|_| done_us.inverse(bytes as f64 / 1e3));
        let processor_s_per_gb = (bytes >= MIN_BYTES_FOR_PROCESSOR).then(|| {
            let gigabytes = (bytes * case.row()) as f64 * samples.processor_s.len() as f64 / 1e9;
            samples.processor_s.iter().sum::<f64>() / gigabytes
        });
        Some(Self { done_us, returned_us, gb_per_s, processor_s_per_gb, samples })
    }

    /// Microseconds until the call returned: those until the work was done where it cannot return earlier.
    pub fn call_us(&self) -> Summary {
        self.returned_us.unwrap_or(self.done_us)
    }
}

impl CaseRecord {
    /// The figures of a target.
    pub fn results(&self, target: usize) -> Option<&CaseResult> {
        match self.outcomes.get(target)?.as_ref()? {
            Outcome::Measured(results) => Some(results),
            Outcome::Refused { .. } | Outcome::Wrong { .. } => None,
        }
    }

    /// The figures of all targets that have some, with their numbers.
    pub fn all_results(&self) -> impl Iterator<Item = (usize, &CaseResult)> {
        (0..self.outcomes.len()).filter_map(|target| Some((target, self.results(target)?)))
    }
}

impl Run {
    /// The target that others are compared with: the native one, else the first.
    pub fn reference(&self) -> usize {
        self.targets.iter().position(|record| record.target.location == TargetLocation::Native).unwrap_or(0)
    }

    /// The same, if there are others.
    pub fn compared_with(&self) -> Option<usize> {
        (self.targets.len() > 1).then(|| self.reference())
    }

    /// What went wrong, as sentences; nothing when every target was measured to the end and no byte was
    /// wrong.
    pub fn errors(&self) -> Vec<String> {
        let lost = self.targets.iter().filter_map(|record| {
            record.error.as_ref().map(|reason| format!("{}: {reason}", record.target.name))
        });
        let wrong = self.cases.iter().flat_map(|record| {
            let outcomes = record.outcomes.iter().zip(&self.targets);
            outcomes.filter_map(move |(outcome, target)| match outcome {
                Some(Outcome::Wrong { reason }) => {
                    Some(format!("{}: {}: WRONG CONTENT: {reason}", target.target.name, record.case))
                }
                _ => None,
            })
        });
        lost.chain(wrong).collect()
    }

    /// Cases that some target cannot measure, as sentences; the same reason is reported once a target.
    pub fn refusals(&self) -> Vec<String> {
        let mut reported: Vec<(usize, &str)> = Vec::new();
        let mut lines = Vec::new();
        for record in &self.cases {
            for (target, outcome) in record.outcomes.iter().enumerate() {
                let Some(Outcome::Refused { reason }) = outcome else { continue };
                if !reported.contains(&(target, reason)) {
                    reported.push((target, reason));
                    lines.push(format!(
                        "{}: {}: not measured: {reason}",
                        self.targets[target].target.name, record.case
                    ));
                }
            }
        }
        lines
    }

    /// Whether anything at all was measured.
    pub fn has_results(&self) -> bool {
        self.cases.iter().any(|record| record.all_results().next().is_some())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::case::{Path, Wait};

    /// A run of copies: natively at 2 GB/s, with a server at 1 GB/s, which has no peer.
    pub(crate) fn example() -> Run {
        let record = |name: &str, location| TargetRecord {
            target: Target { name: name.into(), location },
            introduction: Some(Introduction {
                library: "libcuda.so.1".into(),
                device: "a GPU".into(),
                devices: 1,
                driver_version: 13000,
            }),
            module: None,
            error: None,
        };
        let results = |case: Case, rate: f64| {
            let time = |spread: f64| case.bytes() as f64 / 1e3 / rate * spread;
            let times = vec![time(0.9), time(1.0), time(1.2)];
            let samples = Samples { returned_us: times.clone(), done_us: times, processor_s: vec![1e-6; 3] };
            CaseResult::of(case, samples).map(|results| Outcome::Measured(Box::new(results)))
        };
        let copies = |path| (0..4).map(move |step| Case::Copy { path, bytes: 1 << (8 * step) });
        let mut cases: Vec<CaseRecord> = [Path::PageableToDevice, Path::PinnedFromDevice]
            .into_iter()
            .flat_map(copies)
            .map(|case| CaseRecord { case, outcomes: vec![results(case, 2.0), results(case, 1.0)] })
            .collect();
        let peer = Case::Copy { path: Path::Peer, bytes: 1 };
        let refused = Some(Outcome::Refused { reason: "there is one device only".into() });
        cases.push(CaseRecord { case: peer, outcomes: vec![results(peer, 1.0), refused] });
        Run {
            kind: Kind::Copy,
            command: "causeway bench copy --native --on server".into(),
            version: "0.0.0".into(),
            date: "2000-01-01T00:00:00Z".into(),
            machine: Machine::this(),
            references: Vec::new(),
            targets: vec![
                record("native", TargetLocation::Native),
                record(
                    "server",
                    TargetLocation::Server { address: "server:7690".into(), via: None, pipeline: None },
                ),
            ],
            cases,
        }
    }

    fn samples() -> Samples {
        Samples { returned_us: vec![1.0; 2], done_us: vec![1000.0; 2], processor_s: vec![0.5e-3; 2] }
    }

    #[test]
    fn a_megabyte_in_a_millisecond_is_a_gigabyte_in_a_second() {
        let case = Case::Copy { path: Path::PinnedToDevice, bytes: 1_000_000 };
        let results = CaseResult::of(case, samples()).unwrap();
        assert!((results.gb_per_s.unwrap().median - 1.0).abs() < 1e-9);
        assert!((results.processor_s_per_gb.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(results.returned_us.unwrap().median, 1.0);
    }

    #[test]
    fn processor_time_of_a_row_is_for_all_its_copies() {
        let case = Case::Copy { path: Path::AsyncToDevice, bytes: 1_000_000 };
        let results = CaseResult::of(case, samples()).unwrap();
        assert!((results.processor_s_per_gb.unwrap() - 0.5 / 16.0).abs() < 1e-9);
    }

    #[test]
    fn what_copies_nothing_has_no_rate() {
        let results = CaseResult::of(Case::Wait { wait: Wait::QueryIdle }, samples()).unwrap();
        assert!(results.gb_per_s.is_none() && results.processor_s_per_gb.is_none());
        assert!(results.returned_us.is_none());
    }
}
