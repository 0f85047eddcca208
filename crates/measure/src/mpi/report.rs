//! How do people and programs read it? A table and a panel for each quantity and kind of memory, with a column or a line for each target.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::case::{Case, Memory, Quantity};
use super::results::{Record, Run};
use crate::files::{self, FilesError};
use crate::plot::{Axis, Figure, Panel, Point, Series, size_place};
use crate::sizes::Size;
use crate::table::{aligned, significant};

/// All tables.
pub fn text(run: &Run) -> String {
    let Run { version, date, machine, .. } = run;
    let mut out = format!(
        "causeway {version}, {date}, {}: {}, {} processors, {}\n",
        machine.host, machine.processor, machine.processors, machine.kernel
    );
    for memory in Memory::ALL {
        for quantity in Quantity::ALL {
            let table = table(run, quantity, memory);
            if table.len() > 1 {
                let _ =
                    write!(out, "\n{quantity} in {}, memory: {memory}\n{}", quantity.unit(), aligned(&table));
            }
        }
    }
    out
}

/// Medians of all targets that have some, by size, each beside the ways that the messages went.
fn table(run: &Run, quantity: Quantity, memory: Memory) -> Vec<Vec<String>> {
    let sizes = run.sizes(quantity, memory);
    let case = |bytes: u64| Case { quantity, memory, bytes };
    let targets: Vec<_> = (0..run.targets.len())
        .filter(|target| sizes.iter().any(|bytes| run.record(case(*bytes), *target).is_some()))
        .collect();
    let mut head = vec!["size".to_owned(), "runs".to_owned()];
    head.extend(targets.iter().flat_map(|target| [run.targets[*target].name.clone(), "by".to_owned()]));
    let mut rows = vec![head];
    for bytes in sizes {
        let records: Vec<_> = targets.iter().map(|target| run.record(case(bytes), *target)).collect();
        let count = records.iter().flatten().map(|record| record.summary.count).max().unwrap_or(0);
        let mut row = vec![Size(bytes).to_string(), count.to_string()];
        row.extend(records.into_iter().flat_map(|record| match record {
            Some(Record { summary, ways, .. }) => {
                [significant(summary.median), ways.strip_suffix(" 100").unwrap_or(ways).to_owned()]
            }
            None => ["-".to_owned(), "-".to_owned()],
        }));
        rows.push(row);
    }
    rows
}

const COLUMNS: &str = "quantity,unit,memory,bytes,gpu,isolated,channel,pairs,runs,median,p5,p95,ways\n";

/// The run as CSV: one line for each case on each target.
pub fn csv(run: &Run) -> String {
    let mut out = COLUMNS.to_owned();
    for Record { case, target, summary, ways, .. } in &run.records {
        let target = &run.targets[*target];
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{},{},{}",
            case.quantity.name(),
            case.quantity.unit(),
            case.memory,
            case.bytes,
            target.gpu.replace(',', " "),
            target.isolated,
            target.channel,
            target.pairs,
            summary.count,
            summary.median,
            summary.p5,
            summary.p95,
            ways.replace(',', ""),
        );
    }
    out
}

/// The run as JSON, with every sample.
pub fn json(run: &Run) -> String {
    serde_json::to_string(run).expect("a run has no maps with keys that are not text") + "\n"
}

/// The figures: latency and what is drawn over rates, each with a panel for each kind of memory.
pub fn figures(run: &Run) -> Vec<Figure> {
    let drawn = [
        (Quantity::Latency, "mpi-latency", "Latency of messages"),
        (Quantity::Bandwidth, "mpi-bandwidth", "Bandwidth of messages"),
        (Quantity::Rate, "mpi-rate", "Messages in a second, in millions"),
        (Quantity::Bidirectional, "mpi-bidirectional", "Bandwidth of messages in both directions"),
        (Quantity::CopyLatency, "mpi-copy-latency", "Time of bare copies"),
        (Quantity::CopyBandwidth, "mpi-copy-bandwidth", "Bandwidth of bare copies"),
    ];
    let legend: Vec<_> = run.targets.iter().map(|target| target.name.clone()).collect();
    let figure = |(quantity, name, title): (Quantity, &str, &str)| {
        let panels: Vec<_> =
            Memory::ALL.into_iter().filter_map(|memory| panel(run, quantity, memory)).collect();
        let title =
            format!("{title} (medians, 5th to 95th percentile; {}, causeway {})", run.date, run.version);
        (!panels.is_empty()).then(|| Figure { name: name.to_owned(), title, legend: legend.clone(), panels })
    };
    drawn.into_iter().filter_map(figure).collect()
}

fn panel(run: &Run, quantity: Quantity, memory: Memory) -> Option<Panel> {
    let sizes = run.sizes(quantity, memory);
    let line = |target: usize| {
        let point = |bytes: &u64| {
            let record = run.record(Case { quantity, memory, bytes: *bytes }, target)?;
            Some(Point::new(size_place(*bytes), &record.summary))
        };
        Series { target, points: sizes.iter().filter_map(point).collect() }
    };
    let series: Vec<_> =
        (0..run.targets.len()).map(line).filter(|series| !series.points.is_empty()).collect();
    (!series.is_empty()).then(|| Panel {
        title: format!("memory: {memory}"),
        x: Axis::sizes(sizes.iter().copied()),
        y: Axis::quantity(quantity.unit(), series.iter().flat_map(|series| &series.points)),
        series,
        gains: None,
        rows: 0,
    })
}

/// Writes `mpi.csv`, `mpi.json` and the pictures; returns what was written.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, run: &Run) -> Result<Vec<PathBuf>, FilesError> {
    files::write_all(folder, "mpi", &csv(run), &json(run), &figures(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::results::tests::example;

    #[test]
    fn tables_have_a_column_for_each_target_with_figures() {
        let text = text(&example());
        assert!(text.contains("latency in us, memory: gpu"), "{text}");
        let head = text.lines().find(|line| line.contains("size")).unwrap();
        assert!(head.contains("auto") && head.contains("staged") && !head.contains("ipc"), "{head}");
        assert!(text.contains("vmm 75, staged 25") && text.contains("16384"), "{text}");
    }

    #[test]
    fn each_line_of_csv_has_all_fields() {
        let run = example();
        let text = csv(&run);
        assert!(text.lines().all(|line| line.split(',').count() == COLUMNS.split(',').count()), "{text}");
        assert_eq!(text.lines().count(), 1 + run.records.len());
    }

    #[test]
    fn all_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let written = write(folder.path(), &example()).unwrap();
        assert_eq!(written.len(), 2 + Quantity::ALL.len());
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&written[1]).unwrap()).unwrap();
        assert_eq!(value["records"][0]["samples"].as_array().map(Vec::len), Some(3));
        assert_eq!(value["targets"][2]["channel"], "ipc");
        let picture = std::fs::read_to_string(&written[2]).unwrap();
        assert!(picture.starts_with("<svg ") && picture.contains("memory: gpu"), "{picture}");
    }
}
