//! Results of messages on every target.

use serde::Serialize;

use super::row::{Case, What};
use crate::jobs;

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

    /// The targets that have figures of a quantity in a kind of memory.
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
                Line::Figure(Case { what: what(quantity), bytes }, bytes as f64, paths.to_owned())
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
    fn what_was_measured_has_sizes_in_order_and_targets_with_figures() {
        let (run, latency) = (example(), what("latency"));
        assert_eq!(run.sizes(&latency), [8, 4096]);
        assert_eq!(run.parts(), [&latency, &what("copy_latency")]);
        assert_eq!(run.targets_of(&latency), [0, 1]);
    }
}
