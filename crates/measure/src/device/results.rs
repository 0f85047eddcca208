//! Results of communicating kernels on every target.

use serde::Serialize;

use super::case::{Case, What};
use crate::jobs::{self, Record};

/// A GPU and the way to it are in a target's name: `native`, or `causeway` and the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ByName {}

/// Everything that has been measured.
pub type Run = jobs::Run<Case, ByName>;

impl Run {
    /// The median of a case on a target.
    pub fn median(&self, target: usize, what: What, way: &str, bytes: u64, count: u64) -> Option<f64> {
        let case = Case { what, bytes, count, way: way.to_owned() };
        self.record(&case, target).map(|record| record.summary.median)
    }

    /// All records of a kind, in the order of bytes and counts.
    pub fn of(&self, what: What) -> impl Iterator<Item = &Record<Case>> {
        let mut all: Vec<_> = self.records.iter().filter(|record| record.case.what == what).collect();
        all.sort_by_key(|record| (record.case.bytes, record.case.count));
        all.into_iter()
    }
}

/// A way on a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The target's number.
    target: usize,
    way: String,
    /// What it is called among all of them.
    pub name: String,
}

impl Column {
    fn of(run: &Run, record: &Record<Case>) -> Self {
        let (target, way) = (record.target, record.case.way.clone());
        let name = match run.targets.len() {
            1 => way.clone(),
            _ => format!("{} {way}", run.targets[target].name),
        };
        Self { target, way, name }
    }

    /// Whether a record belongs there.
    pub fn has(&self, record: &Record<Case>) -> bool {
        record.target == self.target && record.case.way == self.way
    }
}

/// Columns in the order in which they come first.
pub fn columns<'a>(run: &Run, records: impl Iterator<Item = &'a Record<Case>>) -> Vec<Column> {
    let mut columns = Vec::new();
    for record in records {
        let column = Column::of(run, record);
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::job::Outcome;
    use crate::jobs::{Line, measure, tests::order};

    pub fn figure(what: What, way: &str, bytes: u64, count: u64, figure: f64) -> Line<Case> {
        Line::Figure(Case { what, way: way.to_owned(), bytes, count }, figure, String::new())
    }

    /// One target with these figures, in one run.
    pub fn run_of(lines: Vec<Line<Case>>) -> Run {
        let job = |_| Outcome { rows: lines.clone(), error: None };
        measure(order(&["native"], &ByName {}, 1), job, |_| {})
    }

    #[test]
    fn records_of_a_kind_are_in_the_order_of_bytes_and_counts() {
        let at = |bytes, count| figure(What::Flight, "direct", bytes, count, bytes as f64);
        let run = run_of(vec![at(64, 8), at(8, 8), at(8, 1), figure(What::Post, "direct", 8, 1, 5.0)]);
        let cells: Vec<_> =
            run.of(What::Flight).map(|record| (record.case.bytes, record.case.count)).collect();
        assert_eq!(cells, [(8, 1), (8, 8), (64, 8)]);
        assert_eq!(run.median(0, What::Flight, "direct", 64, 8), Some(64.0));
    }
}
