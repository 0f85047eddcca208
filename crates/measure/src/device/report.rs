//! Report of communicating kernels: a table for each kind of figure, with a column for each way on each
//! target; what must hold, as a table; CSV and JSON.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::case::{Case, What};
use super::plots::plots;
use super::requirements::{CheckResult, verdicts};
use super::results::{Run, columns};
use crate::files::{self, Fields, FilesError};
use crate::jobs::Record;
use crate::sizes::Size;
use crate::table::{aligned, heading, significant};

/// All tables.
pub fn text(run: &Run) -> String {
    let mut out = heading(&run.version, &run.date, &run.machine);
    for what in What::ALL {
        let table = table(run, what);
        if table.len() > 1 {
            let _ = write!(out, "\n{what}, {}\n{}", what.unit(), aligned(&table));
        }
    }
    let checks = verdicts(run);
    if !checks.is_empty() {
        let _ = write!(out, "\nwhat must hold\n{}", aligned(&check_table(run, &checks)));
    }
    for target in &run.targets {
        for skipped in &target.skipped {
            let _ = writeln!(out, "\nnot measured, {}: {skipped}", target.name);
        }
    }
    out
}

/// Medians, with their number.
fn table(run: &Run, what: What) -> Vec<Vec<String>> {
    let columns = columns(run, run.of(what));
    let mut head = vec!["size".to_owned()];
    head.extend(what.counted().map(str::to_owned));
    head.push("runs".to_owned());
    head.extend(columns.iter().map(|column| column.name.clone()));
    let mut lines: Vec<(u64, u64)> =
        run.of(what).map(|record| (record.case.bytes, record.case.count)).collect();
    lines.dedup();
    let line = |(bytes, count): (u64, u64)| {
        let records =
            || run.of(what).filter(move |record| (record.case.bytes, record.case.count) == (bytes, count));
        let runs = records().map(|record| record.summary.count).max().unwrap_or(0);
        let mut cells = vec![Size(bytes).to_string()];
        cells.extend(what.counted().map(|_| count.to_string()));
        cells.push(runs.to_string());
        cells.extend(columns.iter().map(|column| {
            let found = records().find(|record| column.has(record));
            found.map_or("-".to_owned(), |record| significant(record.summary.median))
        }));
        cells
    };
    [head].into_iter().chain(lines.into_iter().map(line)).collect()
}

fn check_table(run: &Run, checks: &[CheckResult]) -> Vec<Vec<String>> {
    let head = ["of", "on", "wanted", "", "found"].map(str::to_owned).to_vec();
    let line = |check_result: &CheckResult| {
        let is_satisfied = if check_result.is_satisfied { "met" } else { "MISSED" };
        let CheckResult { target, what, required, found, .. } = check_result;
        let fields: [&str; 5] = [what, &run.targets[*target].name, required, is_satisfied, found];
        fields.map(str::to_owned).to_vec()
    };
    [head].into_iter().chain(checks.iter().map(line)).collect()
}

/// The run as lines of CSV: one for each case on each target.
fn lines(run: &Run) -> impl Iterator<Item = Fields> {
    run.records.iter().map(|Record { case: Case { what, bytes, count, way }, target, summary, .. }| {
        let mut fields = vec![
            ("what", what.name()),
            ("unit", what.unit().to_owned()),
            ("bytes", bytes.to_string()),
            ("count", count.to_string()),
            ("way", way.clone()),
            ("target", run.targets[*target].name.clone()),
        ];
        fields.extend(summary.fields());
        fields
    })
}

/// The run as JSON, with all samples and the verdicts.
pub fn json(run: &Run) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        run: &'a Run,
        verdicts: Vec<CheckResult>,
    }
    files::as_json(&Document { run, verdicts: verdicts(run) })
}

/// Writes `device.csv`, `device.json` and the pictures; returns what was written.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, run: &Run) -> Result<Vec<PathBuf>, FilesError> {
    files::write_all(folder, "device", &files::csv(lines(run)), &json(run), &plots(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::results::tests::{result, run_of};

    fn example() -> Run {
        let mut lines = Vec::new();
        for what in What::ALL {
            for (way, factor) in [("direct", 1.0), ("proxy, host memory", 2.0)] {
                for (bytes, count) in [(8, 1), (8, 2), (4096, 8)] {
                    lines.push(result(what, way, bytes, count, factor * count as f64));
                }
            }
        }
        run_of(lines)
    }

    #[test]
    fn tables_have_a_column_for_each_way_and_say_what_must_hold() {
        let text = text(&example());
        assert!(text.contains("\nbarrier, us\n") && text.contains("ranks"), "{text}");
        let head = text.lines().find(|line| line.starts_with("size")).unwrap();
        assert!(head.contains("direct") && head.contains("proxy, host memory"), "{head}");
        assert!(text.lines().any(|line| line.contains("barrier of two") && line.contains(" met ")), "{text}");
        assert!(text.contains("4 KiB"), "{text}");
    }

    #[test]
    fn all_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let run = example();
        let written = write(folder.path(), &run).unwrap();
        assert_eq!(written.len(), 2 + 9, "{written:?}");
        let csv = std::fs::read_to_string(&written[0]).unwrap();
        assert!(
            csv.starts_with("what,unit,bytes,count,way,target,") && csv.contains(",\"proxy, host memory\",")
        );
        assert_eq!(csv.lines().count(), 1 + run.records.len());
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&written[1]).unwrap()).unwrap();
        assert_eq!(value["records"][0]["samples"].as_array().map(Vec::len), Some(1));
        assert!(value["verdicts"].as_array().is_some_and(|verdicts| !verdicts.is_empty()));
        for picture in &written[2..] {
            let text = std::fs::read_to_string(picture).unwrap();
            assert!(text.starts_with("<svg ") && text.contains("direct"), "{}", picture.display());
        }
    }
}
