//! Report of copies, waits or launches: tables, CSV and JSON.

use core::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use crate::case::{Case, Path};
use crate::files::{self, Fields, FilesError, as_json};
use crate::pipeline::{self, CheckResult, Comparison};
use crate::plots::plots;
use crate::results::{CaseRecord, CaseResult, Kind, Run};
use crate::statistics::Summary;
use crate::table::{NOTHING, aligned, heading, percent, significant};

/// All tables of a run, with what they were measured with above them.
pub fn text(run: &Run) -> String {
    let mut out = head(run);
    match run.kind {
        Kind::Copy => {
            for path in Path::ALL {
                let records = run.cases.iter().filter(|record| record.case.path() == Some(path));
                let table = table(run, records, "size", COPIES, Some(("x", times)));
                if !table.is_empty() {
                    let _ = write!(out, "\n{path}\n{table}");
                }
            }
        }
        Kind::Latency => {
            let table = table(run, run.cases.iter(), "what", WAITS, Some(("more than", more)));
            let _ = write!(out, "\n{table}");
        }
        Kind::Launch => {
            let _ = write!(out, "\n{}", table(run, run.cases.iter(), "arguments", LAUNCHES, None));
        }
        Kind::Pipeline => {
            let _ = write!(out, "\n{}", comparisons(run));
        }
    }
    for line in run.refusals() {
        let _ = writeln!(out, "\n{line}");
    }
    out
}

fn head(run: &Run) -> String {
    let mut out = heading(&run.version, &run.date, &run.machine);
    for record in &run.targets {
        let Some(introduction) = &record.introduction else { continue };
        let version = introduction.driver_version;
        let module = record.module.as_ref().map(|module| format!(" over {module}")).unwrap_or_default();
        let _ = writeln!(
            out,
            "{}: {}, CUDA {}.{}, by {}{module}",
            record.target.name,
            introduction.device,
            version / 1000,
            version % 1000 / 10,
            introduction.library
        );
    }
    out
}

/// A column of a table: its head, and what it says of a target's figures.
type Column = (&'static str, fn(&CaseResult) -> String);

const COPIES: &[Column] = &[
    ("n", |results| results.done_us.count.to_string()),
    ("GB/s", |results| or_nothing(results.gb_per_s.map(|rate| rate.median))),
    ("5th to 95th", |results| results.gb_per_s.map_or(NOTHING.to_owned(), range)),
    ("deviation", |results| percent(results.done_us.relative_deviation)),
    ("us", |results| significant(results.done_us.median)),
    ("call us", |results| or_nothing(results.returned_us.map(|summary| summary.median))),
    ("CPU s/GB", |results| or_nothing(results.processor_s_per_gb)),
];

const WAITS: &[Column] = &[
    ("n", |results| results.done_us.count.to_string()),
    ("us", |results| significant(results.done_us.median)),
    ("5th to 95th", |results| range(results.done_us)),
    ("deviation", |results| percent(results.done_us.relative_deviation)),
    ("call us", |results| significant(results.call_us().median)),
];

const LAUNCHES: &[Column] = &[
    ("n", |results| format!("{}x1000", results.done_us.count)),
    ("call us", |results| significant(results.call_us().median)),
    ("5th to 95th", |results| range(results.call_us())),
    ("deviation", |results| percent(results.call_us().relative_deviation)),
    ("done us", |results| significant(results.done_us.median)),
    ("5th to 95th", |results| range(results.done_us)),
    ("deviation", |results| percent(results.done_us.relative_deviation)),
];

fn or_nothing(value: Option<f64>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), significant)
}

fn range(summary: Summary) -> String {
    format!("{} to {}", significant(summary.p5), significant(summary.p95))
}

/// How the figures of a target compare with those of the reference.
type Comparing = fn(&CaseResult, &CaseResult) -> String;

fn times(results: &CaseResult, reference: &CaseResult) -> String {
    format!("{:.2}", reference.done_us.median / results.done_us.median)
}

fn more(results: &CaseResult, reference: &CaseResult) -> String {
    format!("{} us", significant(results.done_us.median - reference.done_us.median))
}

/// A line for each target of each record that has figures; nothing without any. The last column compares with
/// the reference, if there is something to compare.
fn table<'a>(
    run: &Run,
    records: impl Iterator<Item = &'a CaseRecord>,
    first: &str,
    columns: &[Column],
    comparing: Option<(&str, Comparing)>,
) -> String {
    let reference = run.compared_with();
    let comparing = comparing.and_then(|(head, compare)| Some((head, compare, reference?)));
    let mut head = vec![first.to_owned(), "target".to_owned()];
    head.extend(columns.iter().map(|(head, _)| (*head).to_owned()));
    head.extend(
        comparing.map(|(head, _, reference)| format!("{head} {}", run.targets[reference].target.name)),
    );
    let mut lines = vec![head];
    for record in records {
        for (target, results) in record.all_results() {
            let mut line = vec![record.case.in_table(), run.targets[target].target.name.clone()];
            line.extend(columns.iter().map(|(_, cell)| cell(results)));
            line.extend(comparing.map(|(_, compare, reference)| {
                let other = record.results(reference);
                other.map_or_else(|| NOTHING.to_owned(), |other| compare(results, other))
            }));
            lines.push(line);
        }
    }
    if lines.len() > 1 { aligned(&lines) } else { String::new() }
}

fn comparisons(run: &Run) -> String {
    let comparisons = pipeline::compare(run);
    let head = ["copy", "target", "adaptive GB/s", "best fixed GB/s", "ahead", "best fixed plan"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    let name = |target: usize| run.targets[target].target.name.clone();
    lines.extend(comparisons.iter().map(|comparison| {
        vec![
            comparison.case.to_string(),
            name(comparison.adaptive),
            significant(comparison.adaptive_gb_per_s),
            significant(comparison.best_gb_per_s),
            percent(comparison.ahead),
            name(comparison.best),
        ]
    }));
    let mut out = aligned(&lines);
    for check_result in pipeline::verdicts(&comparisons) {
        let _ = writeln!(
            out,
            "{}: {} ahead on average, {} at worst; required are 0 and {}: {}",
            name(check_result.adaptive),
            percent(check_result.mean),
            percent(check_result.worst),
            percent(-pipeline::MAY_BE_BEHIND),
            if check_result.holds { "met" } else { "MISSED" }
        );
    }
    out
}

/// Writes `KIND.csv`, `KIND.json` and the plots; returns what was written.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &std::path::Path, run: &Run) -> Result<Vec<PathBuf>, FilesError> {
    files::write_all(folder, run.kind.name(), &files::csv(lines(run)), &json(run), &plots(run))
}

/// The run as JSON.
pub fn json(run: &Run) -> String {
    /// The run, and what follows from it.
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        run: &'a Run,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        comparisons: &'a [Comparison],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        verdicts: &'a [CheckResult],
    }
    let comparisons = &pipeline::compare(run);
    as_json(&Document { run, comparisons, verdicts: &pipeline::verdicts(comparisons) })
}

/// The run as lines of CSV: one for each quantity of each case on each target. Quantities are `done` and
/// `returned`, in microseconds, and `rate`, in GB/s.
fn lines(run: &Run) -> impl Iterator<Item = Fields> {
    let all = run.cases.iter().flat_map(|record| record.all_results().map(move |found| (record.case, found)));
    all.flat_map(|(case, (target, results))| {
        let target = &run.targets[target];
        let device = target.introduction.as_ref().map_or("", |introduction| introduction.device.as_str());
        let (name, arguments) = match case {
            Case::Copy { path, .. } => (path.to_string(), String::new()),
            Case::Wait { wait } => (wait.to_string(), String::new()),
            Case::Launches { arguments } => ("launches".to_owned(), arguments.to_string()),
        };
        let quantities = [
            ("done", "us", Some(results.done_us)),
            ("returned", "us", results.returned_us),
            ("rate", "GB/s", results.gb_per_s),
        ];
        quantities.into_iter().filter_map(move |(quantity, unit, summary)| {
            let mut fields = vec![
                ("case", name.clone()),
                ("bytes", case.bytes().to_string()),
                ("arguments", arguments.clone()),
                ("target", target.target.name.clone()),
                ("device", device.to_owned()),
                ("quantity", quantity.to_owned()),
                ("unit", unit.to_owned()),
            ];
            fields.extend(summary?.fields());
            let processor = results.processor_s_per_gb.map(|value| value.to_string());
            fields.push(("processor_s_per_gb", processor.unwrap_or_default()));
            Some(fields)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn a_table_compares_with_the_native_target() {
        let text = text(&example());
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let head = lines.iter().find(|line| line.first() == Some(&"size")).expect("there is a head");
        assert_eq!(head[head.len() - 2..], ["x", "native"]);
        let of_server: Vec<_> = lines.iter().filter(|line| line.contains(&"server")).collect();
        assert!(of_server.iter().any(|line| line.last() == Some(&"0.50")), "{text}");
        assert!(text.contains("one device only"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn each_line_of_csv_has_all_fields() {
        let mut run = example();
        run.targets[1].target.name = "a \"server\", far away".into();
        let text = files::csv(lines(&run));
        assert!(text.contains("\"a \"\"server\"\", far away\""), "{text}");
        let fields = |line: &str| line.replace("\"a \"\"server\"\", far away\"", "x").split(',').count();
        assert!(text.lines().all(|line| fields(line) == 14), "{text}");
        // Eight cases on two targets and one on one: time and rate, and for nine of these the time until the
        // call returns.
        assert_eq!(text.lines().count(), 1 + 17 * 2 + 9);
    }

    #[test]
    fn json_holds_the_samples() {
        let value: serde_json::Value = serde_json::from_str(&json(&example())).unwrap();
        assert_eq!(value["cases"][1]["bytes"], 256);
        assert_eq!(value["cases"][1]["path"], "pageable_to_device");
        assert_eq!(value["targets"][1]["address"], "server:7690");
        let measured = &value["cases"][1]["outcomes"][0]["measured"];
        assert_eq!(measured["samples"]["done_us"].as_array().map(Vec::len), Some(3));
        assert!(value["cases"][8]["outcomes"][1]["refused"]["reason"].is_string());
    }

    #[test]
    fn all_files_are_written_into_a_folder_that_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("results");
        files::prepare(&folder).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        let written = write(&folder, &example()).unwrap();
        let names = ["copy.csv", "copy.json", "copy-bandwidth.svg", "copy-latency.svg"];
        let expected: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
        assert_eq!(written, expected);
        assert!(written.iter().all(|path| path.metadata().unwrap().len() > 100));
    }
}
