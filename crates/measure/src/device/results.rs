//! Results of communicating kernels on every target.

use super::case::{Case, What};
use crate::job::BadRow;
use crate::jobs::Line;
use crate::jobs::{self, Record};
use serde::Serialize;

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

    pub fn result(what: What, way: &str, bytes: u64, count: u64, value: f64) -> Line<Case> {
        Line::Result(Case { what, way: way.to_owned(), bytes, count }, value, String::new())
    }

    /// One target with these results, in one run.
    pub fn run_of(lines: Vec<Line<Case>>) -> Run {
        let job = |_| Outcome { rows: lines.clone(), error: None };
        measure(order(&["native"], &ByName {}, 1), job, |_| {})
    }

    #[test]
    fn records_of_a_kind_are_in_the_order_of_bytes_and_counts() {
        let at = |bytes, count| result(What::Flight, "direct", bytes, count, bytes as f64);
        let run = run_of(vec![at(64, 8), at(8, 8), at(8, 1), result(What::Post, "direct", 8, 1, 5.0)]);
        let cells: Vec<_> =
            run.of(What::Flight).map(|record| (record.case.bytes, record.case.count)).collect();
        assert_eq!(cells, [(8, 1), (8, 8), (64, 8)]);
        assert_eq!(run.median(0, What::Flight, "direct", 64, 8), Some(64.0));
    }
}

/// What a line says, if it says anything.
///
/// # Errors
/// When it begins like a row and is none.
pub fn read(line: &str) -> Result<Option<Line<Case>>, BadRow> {
    let fields: Vec<_> = line.split('\t').collect();
    match fields.as_slice() {
        ["row", rest @ ..] => result(rest).map(Some).ok_or_else(|| BadRow(line.to_owned())),
        ["skipped", what, why] => Ok(Some(Line::Skipped(format!("{what}: {why}")))),
        _ => Ok(None),
    }
}

fn result(fields: &[&str]) -> Option<Line<Case>> {
    let &[what, way, bytes, count, value, unit] = fields else { return None };
    let case = Case {
        what: What::named(what)?,
        way: way.to_owned(),
        bytes: bytes.parse().ok()?,
        count: count.parse().ok()?,
    };
    let value: f64 = value.parse().ok()?;
    // The counter of energy may not move in a short run.
    let is_sound = value.is_finite() && value >= 0.0 && unit == case.what.unit();
    is_sound.then(|| Line::Result(case, value, String::new()))
}

#[cfg(test)]
mod row_tests {
    use super::*;

    #[test]
    fn results_and_what_is_skipped_are_read_among_other_lines() {
        let line = "row\tflight\tproxy, host memory\t4096\t8\t12.5\tus";
        let case = Case { what: What::Flight, way: "proxy, host memory".into(), bytes: 4096, count: 8 };
        assert_eq!(read(line), Ok(Some(Line::Result(case, 12.5, String::new()))));
        let skipped = Line::Skipped("energy: no NVML".to_owned());
        assert_eq!(read("skipped\tenergy\tno NVML"), Ok(Some(skipped)));
        assert_eq!(read("a row of words"), Ok(None));
        assert!(What::ALL.into_iter().all(|what| What::named(&what.name()) == Some(what)));
    }

    #[test]
    fn what_makes_no_sense_is_no_result() {
        for fields in [
            "row\tflight\tproxy\t4096\t8\t12.5",
            "row\tflight\tproxy\t4096\t8\t12.5\tns",
            "row\tspeed\tproxy\t4096\t8\t12.5\tus",
            "row\tflight\tproxy\t-1\t8\t12.5\tus",
            "row\tflight\tproxy\t1\tx\t12.5\tus",
            "row\tflight\tproxy\t1\t1\tnan\tus",
            "row\tflight\tproxy\t1\t1\t-2\tus",
        ] {
            assert_eq!(read(fields), Err(BadRow(fields.to_owned())));
        }
    }
}
