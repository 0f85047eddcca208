//! How does a person read it in a terminal?

use core::fmt::Write as _;

use crate::case::{Case, Path};
use crate::machine::Machine;
use crate::pipeline;
use crate::results::{CaseRecord, Figures, Kind, Run};
use crate::sizes::Size;
use crate::statistics::Summary;

/// What is shown where there is no figure.
const NOTHING: &str = "-";

/// A number with three digits that matter, or all of those before the point.
pub fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits_before = value.abs().log10().floor() as i32 + 1;
    let decimals = (3 - digits_before).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// All tables of a run, with what they were measured with above them.
pub fn text(run: &Run) -> String {
    let mut out = head(run);
    match run.kind {
        Kind::Copy => {
            for path in Path::ALL {
                let records: Vec<_> =
                    run.cases.iter().filter(|record| record.case.path() == Some(path)).collect();
                if records
                    .iter()
                    .any(|record| (0..run.targets.len()).any(|target| record.figures(target).is_some()))
                {
                    let _ = write!(out, "\n{path}\n{}", copies(run, &records));
                }
            }
        }
        Kind::Latency => {
            let _ = write!(out, "\n{}", waits(run));
        }
        Kind::Launch => {
            let _ = write!(out, "\n{}", launches(run));
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

/// The first line above tables: what measured, when and where.
pub fn heading(version: &str, date: &str, machine: &Machine) -> String {
    let Machine { host, processor, processors, kernel, .. } = machine;
    format!("causeway {version}, {date}, {host}: {processor}, {processors} processors, {kernel}\n")
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

/// Lines with columns as wide as they must be: the first to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column {
            0 | 1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}

fn range(summary: &Summary) -> String {
    format!("{} to {}", significant(summary.p5), significant(summary.p95))
}

/// A share as percent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The head of the column that compares, if there is something to compare with.
fn comparison(run: &Run) -> Option<String> {
    (run.targets.len() > 1).then(|| run.targets[run.reference()].target.name.clone())
}

/// Calls `row` for each target of each record that has figures, with the figures of the reference.
fn rows<'a>(
    run: &'a Run,
    records: impl IntoIterator<Item = &'a CaseRecord>,
    mut row: impl FnMut(&'a CaseRecord, usize, &'a Figures, Option<&'a Figures>),
) {
    for record in records {
        let reference = record.figures(run.reference());
        for target in 0..run.targets.len() {
            if let Some(figures) = record.figures(target) {
                row(record, target, figures, reference);
            }
        }
    }
}

fn copies(run: &Run, records: &[&CaseRecord]) -> String {
    let mut head = ["size", "target", "n", "GB/s", "5th to 95th", "deviation", "us", "call us", "CPU s/GB"]
        .map(str::to_owned)
        .to_vec();
    head.extend(comparison(run).map(|name| format!("x {name}")));
    let compares = head.len() > 9;
    let mut lines = vec![head];
    rows(run, records.iter().copied(), |record, target, figures, reference| {
        let Some(rate) = &figures.gb_per_s else { return };
        let or_nothing = |value: Option<f64>| value.map_or_else(|| NOTHING.to_owned(), significant);
        let mut line = vec![
            Size(record.case.bytes()).to_string(),
            run.targets[target].target.name.clone(),
            rate.count.to_string(),
            significant(rate.median),
            range(rate),
            percent(figures.done_us.relative_deviation),
            significant(figures.done_us.median),
            or_nothing(figures.returned_us.map(|summary| summary.median)),
            or_nothing(figures.processor_s_per_gb),
        ];
        if compares {
            let other = reference.and_then(|figures| figures.gb_per_s);
            line.push(
                other
                    .map_or_else(|| NOTHING.to_owned(), |other| format!("{:.2}", rate.median / other.median)),
            );
        }
        lines.push(line);
    });
    aligned(&lines)
}

fn waits(run: &Run) -> String {
    let mut head =
        ["what", "target", "n", "us", "5th to 95th", "deviation", "call us"].map(str::to_owned).to_vec();
    head.extend(comparison(run).map(|name| format!("more than {name}")));
    let compares = head.len() > 7;
    let mut lines = vec![head];
    rows(run, &run.cases, |record, target, figures, reference| {
        let time = &figures.done_us;
        let call = figures.returned_us.unwrap_or(*time);
        let mut line = vec![
            record.case.to_string(),
            run.targets[target].target.name.clone(),
            time.count.to_string(),
            significant(time.median),
            range(time),
            percent(time.relative_deviation),
            significant(call.median),
        ];
        if compares {
            let more = reference.map(|other| time.median - other.done_us.median);
            line.push(more.map_or_else(|| NOTHING.to_owned(), |more| format!("{} us", significant(more))));
        }
        lines.push(line);
    });
    aligned(&lines)
}

fn launches(run: &Run) -> String {
    let mut lines = vec![
        [
            "arguments",
            "target",
            "n",
            "call us",
            "5th to 95th",
            "deviation",
            "done us",
            "5th to 95th",
            "deviation",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    rows(run, &run.cases, |record, target, figures, _| {
        let Case::Launches { arguments } = record.case else { return };
        let (done, call) = (&figures.done_us, figures.returned_us.unwrap_or(figures.done_us));
        lines.push(vec![
            Size(arguments).to_string(),
            run.targets[target].target.name.clone(),
            format!("{}x1000", done.count),
            significant(call.median),
            range(&call),
            percent(call.relative_deviation),
            significant(done.median),
            range(done),
            percent(done.relative_deviation),
        ]);
    });
    aligned(&lines)
}

fn comparisons(run: &Run) -> String {
    let comparisons = pipeline::compare(run);
    let mut lines = vec![
        ["copy", "target", "adaptive GB/s", "best fixed GB/s", "ahead", "best fixed plan"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let name = |target: usize| run.targets[target].target.name.clone();
    for comparison in &comparisons {
        lines.push(vec![
            comparison.case.to_string(),
            name(comparison.adaptive),
            significant(comparison.adaptive_gb_per_s),
            significant(comparison.best_gb_per_s),
            percent(comparison.ahead),
            name(comparison.best),
        ]);
    }
    let mut out = aligned(&lines);
    for verdict in pipeline::verdicts(&comparisons) {
        let _ = writeln!(
            out,
            "{}: {} ahead on average, {} at worst; required are 0 and {}: {}",
            name(verdict.adaptive),
            percent(verdict.mean),
            percent(verdict.worst),
            percent(-pipeline::MAY_BE_BEHIND),
            if verdict.holds { "met" } else { "MISSED" }
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn three_digits_matter() {
        let texts = [0.0, 0.000_123_46, 0.012_34, 1.0, 9.999, 55.53, 1234.5, -3.217].map(significant);
        assert_eq!(texts, ["0", "0.000123", "0.0123", "1.00", "10.00", "55.5", "1234", "-3.22"]);
    }

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
    fn columns_are_aligned() {
        let rows =
            [vec!["a".to_owned(), "b".into(), "1".into()], vec!["long".into(), "b".into(), "100".into()]];
        assert_eq!(aligned(&rows), "a     b    1\nlong  b  100\n");
    }
}
