//! Results of messages on every target.

use crate::job::BadRow;
use crate::jobs;
use crate::jobs::Line;
use core::fmt;
use serde::Serialize;

/// One way to start the measuring program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Way {
    /// Which GPU: `native`, or a server and the way to it.
    pub gpu: String,
    /// Whether each rank is in a container of its own.
    pub isolated: bool,
    /// The channel that is forced; `auto` where Causeway chooses, `none` without the interposer.
    pub channel: String,
    /// How many pairs of ranks send at once.
    pub pairs: u32,
}

/// Everything that has been measured.
pub type Run = jobs::Run<Case, Way>;

impl Run {
    /// All quantities with their kinds of memory, in the order in which they were first measured.
    pub fn parts(&self) -> Vec<&What> {
        let mut all: Vec<&What> = Vec::new();
        for record in &self.records {
            if !all.contains(&&record.case.what) {
                all.push(&record.case.what);
            }
        }
        all
    }

    /// The sizes of a quantity in a kind of memory, in ascending order.
    pub fn sizes(&self, what: &What) -> Vec<u64> {
        let of_this = self.records.iter().filter(|record| record.case.what == *what);
        let mut sizes: Vec<_> = of_this.map(|record| record.case.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The targets that have results of a quantity in a kind of memory.
    pub fn targets_of(&self, what: &What) -> Vec<usize> {
        let is_one = |target| self.records.iter().any(|one| one.target == target && one.case.what == *what);
        (0..self.targets.len()).filter(|target| is_one(*target)).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::job::{JobError, Outcome};
    use crate::jobs::{Line, measure, tests::order};

    pub fn example() -> Run {
        let way = Way { gpu: "native".to_owned(), isolated: false, channel: "any".to_owned(), pairs: 1 };
        let job = |number| {
            if number == 2 {
                return Outcome { rows: Vec::new(), error: Some(JobError::Nothing) };
            }
            let paths = if number == 0 { "vmm 75, staged 25" } else { "staged 100" };
            let row = |quantity, bytes: u64| {
                Line::Result(Case { what: what(quantity), bytes }, bytes as f64, paths.to_owned())
            };
            let rows = ["latency", "copy_latency"].map(|quantity| [row(quantity, 4096), row(quantity, 8)]);
            Outcome { rows: rows.concat(), error: None }
        };
        measure(order(&["auto", "staged", "ipc"], &way, 3), job, |_| {})
    }

    fn what(quantity: &str) -> What {
        What { quantity: quantity.to_owned(), unit: "us".to_owned(), memory: "gpu".to_owned() }
    }

    #[test]
    fn what_was_measured_has_sizes_in_order_and_targets_with_results() {
        let (run, latency) = (example(), what("latency"));
        assert_eq!(run.sizes(&latency), [8, 4096]);
        assert_eq!(run.parts(), [&latency, &what("copy_latency")]);
        assert_eq!(run.targets_of(&latency), [0, 1]);
    }
}

/// What results of several sizes are of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct What {
    /// What was measured, such as `latency` or `allreduce_by_host`.
    pub quantity: String,
    /// The unit of its results.
    pub unit: String,
    /// The kind of memory in which messages lie.
    pub memory: String,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}, memory: {}", self.quantity.replace('_', " "), self.unit, self.memory)
    }
}

/// What one value is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Case {
    /// What was measured.
    #[serde(flatten)]
    pub what: What,
    /// Bytes of a message.
    pub bytes: u64,
}

/// What a line says, if it says anything.
///
/// # Errors
/// When it begins like a row and is none.
pub fn read(line: &str) -> Result<Option<Line<Case>>, BadRow> {
    let Some(rest) = line.strip_prefix("row\t") else { return Ok(None) };
    result(rest).map(Some).ok_or_else(|| BadRow(line.to_owned()))
}

fn result(rest: &str) -> Option<Line<Case>> {
    let fields: Vec<_> = rest.split('\t').collect();
    let &[quantity, memory, bytes, value, unit, paths] = fields.as_slice() else { return None };
    let is_name = |word: &&str| word.starts_with(|first: char| first.is_ascii_alphabetic());
    let [quantity, memory] = [quantity, memory].map(|word| Some(word).filter(is_name).map(str::to_owned));
    let unit = ["us", "GB/s", "M/s"].contains(&unit).then(|| unit.to_owned())?;
    let value = value.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0)?;
    let case = Case { what: What { quantity: quantity?, unit, memory: memory? }, bytes: bytes.parse().ok()? };
    Some(Line::Result(case, value, paths.trim().to_owned()))
}

#[cfg(test)]
mod row_tests {
    use super::*;

    #[test]
    fn rows_are_read_among_other_lines() {
        let row = read("row\tcopy_latency\tgpu\t65536\t12.5\tus\tvmm 90, staged 10");
        let Ok(Some(Line::Result(case, value, paths))) = row else { panic!("{row:?}") };
        assert_eq!(case.what.to_string(), "copy latency in us, memory: gpu");
        assert_eq!((case.bytes, value, paths.as_str()), (65536, 12.5, "vmm 90, staged 10"));
        assert_eq!(read("mpirun: a row of words"), Ok(None));
    }

    #[test]
    fn what_makes_no_sense_is_no_result() {
        for fields in [
            "row\tlatency\tgpu\t65536\t12.5\tus",
            "row\tlatency\tgpu\t65536\t12.5\tms\tmpi 100",
            "row\t\tgpu\t65536\t12.5\tus\tmpi 100",
            "row\tlatency\t65536\tgpu\t12.5\tus\tmpi 100",
            "row\tlatency\tgpu\t-1\t12.5\tus\tmpi 100",
            "row\tlatency\tgpu\t1\tnan\tus\tmpi 100",
            "row\tlatency\tgpu\t1\t0\tus\tmpi 100",
        ] {
            assert_eq!(read(fields), Err(BadRow(fields.to_owned())));
        }
    }
}
