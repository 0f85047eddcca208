//! Report for people and programs.

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use causeway_measure::files::{self, Fields, FilesError};
use causeway_measure::sizes::Size;
use causeway_measure::table::{NOTHING, aligned, by_size, heading, percent, significant};
use serde::Serialize;

use crate::averages::{Average, BANDS, averages};
use crate::case::{Case, Quantity};
use crate::plots::plots;
use crate::results::{Comparison, MeasuredPath, Record, Run};
use crate::sweep::Sweep;

/// All tables: what was measured with, each sweep, and Causeway beside perftest.
pub fn text(run: &Run) -> String {
    let mut out = heading(run.version, &run.date, &run.machine);
    for end in &run.ends {
        let _ = writeln!(out, "{}: {}, {}", end.host, end.device, end.port);
    }
    for sweep in &run.sweeps {
        for quantity in Quantity::ALL.into_iter().filter(|quantity| sweep.varied.concerns(*quantity)) {
            for path in MeasuredPath::ALL {
                let table = table(run, sweep, path, quantity);
                if !table.is_empty() {
                    let (unit, varied) = (quantity.unit(), sweep.varied);
                    let _ = write!(out, "\n{path}, {quantity} in {unit}, {varied}\n{table}");
                }
                let averages = averages(run, sweep, path);
                if quantity == Quantity::Bandwidth && !averages.is_empty() {
                    let rows = aligned(&averaged(sweep, &averages));
                    let _ = write!(out, "\n{path}, mean gain over sizes, {}\n{rows}", sweep.varied);
                }
            }
        }
    }
    for error in &run.errors {
        let _ = write!(out, "\nnot measured: {error}\n");
    }
    let comparisons = run.comparisons();
    if !comparisons.is_empty() {
        let rows = aligned(&compared(&comparisons));
        let _ = write!(out, "\nmedians of causeway over those of perftest\n{rows}");
    }
    out
}

fn gain_text(gain: Option<f64>) -> String {
    gain.map_or_else(|| NOTHING.to_owned(), |gain| format!("{:+.2} %", gain * 100.0))
}

/// A line for each band, with the mean gain of each setting.
fn averaged(sweep: &Sweep, averages: &[Average]) -> Vec<Vec<String>> {
    let names = sweep.names();
    let head = ["sizes", "n"].map(str::to_owned).into_iter();
    let mut rows = vec![head.chain(sweep.others().map(|(index, _)| names[index].clone())).collect()];
    for (band, ..) in BANDS {
        let of_band: Vec<_> = averages.iter().filter(|average| average.band == band).collect();
        let Some(count) = of_band.iter().map(|average| average.sizes).max() else { continue };
        let gain = |setting| of_band.iter().find(|average| average.setting == setting).map(|one| one.gain);
        let cells = sweep.others().map(|(_, setting)| gain_text(gain(setting)));
        rows.push([band.to_owned(), count.to_string()].into_iter().chain(cells).collect());
    }
    rows
}

/// A line for each size, with mean, relative deviation and gain of each setting.
fn table(run: &Run, sweep: &Sweep, path: MeasuredPath, quantity: Quantity) -> String {
    let heads = sweep.names().into_iter().enumerate().map(|(index, name)| {
        let gain = (index != sweep.base).then(|| "gain".to_owned());
        [name, "deviation".to_owned()].into_iter().chain(gain).collect()
    });
    let sizes: Vec<u64> = run.cases(path, quantity).iter().map(|case| case.bytes).collect();
    by_size(&sizes, &heads.collect::<Vec<_>>(), |bytes, index| {
        let (case, setting) = (Case { operation: path.operation, quantity, bytes }, sweep.settings[index]);
        let Record { summary, .. } = run.record(case, setting, path.tool)?;
        let mut cells = vec![significant(summary.mean), percent(summary.relative_deviation)];
        cells.extend((index != sweep.base).then(|| gain_text(run.gain(path.tool, case, sweep, setting))));
        Some((summary.count, cells))
    })
}

fn compared(comparisons: &[Comparison]) -> Vec<Vec<String>> {
    let head = ["path", "quantity", "geometric mean", "worst", "at"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    for comparison in comparisons {
        let worst = comparison.worst();
        let at = comparison.ratios.iter().find(|(_, _, ratio)| *ratio == worst);
        rows.push(vec![
            comparison.path.to_string(),
            comparison.quantity.to_string(),
            format!("{:.3}", comparison.mean),
            format!("{worst:.3}"),
            at.map_or(String::new(), |(bytes, setting, _)| format!("{}, {setting}", Size(*bytes))),
        ]);
        if comparison.ratios.len() <= 32 {
            for (bytes, setting, ratio) in &comparison.ratios {
                rows.push(vec![
                    format!("  {}", Size(*bytes)),
                    String::new(),
                    format!("{ratio:.3}"),
                    String::new(),
                    setting.to_string(),
                ]);
            }
        }
    }
    rows
}

/// The run as lines of CSV: one for each case with each setting by each tool.
fn lines(run: &Run) -> impl Iterator<Item = Fields> {
    run.records.iter().map(|Record { case, setting, tool, summary, .. }| {
        let mut fields = vec![
            ("operation", case.operation.to_string()),
            ("quantity", case.quantity.to_string()),
            ("unit", case.quantity.unit().to_owned()),
            ("bytes", case.bytes.to_string()),
            ("queue_pairs", setting.queue_pairs.to_string()),
            ("capacity", setting.capacity.to_string()),
            ("mtu", setting.mtu.to_string()),
            ("tool", tool.to_string()),
        ];
        fields.extend(summary.fields());
        fields
    })
}

/// The run as JSON, with every sample and what follows from them.
pub fn json(run: &Run) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        run: &'a Run,
        averages: Vec<Average>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        comparisons: Vec<Comparison>,
    }
    let paths = |sweep| MeasuredPath::ALL.into_iter().flat_map(move |path| averages(run, sweep, path));
    let averages = run.sweeps.iter().flat_map(paths).collect();
    files::as_json(&Document { run, averages, comparisons: run.comparisons() })
}

/// Writes `fabric.csv`, `fabric.json` and the plots; returns what was written.
pub fn write(folder: &Path, run: &Run) -> Result<Vec<PathBuf>, FilesError> {
    files::write_all(folder, "fabric", &files::csv(lines(run)), &json(run), &plots(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn tables_have_every_sweep_with_gains_and_the_comparison() {
        let text = text(&example());
        for words in [
            "send, bandwidth in GB/s, queue capacity",
            "messages of a link, latency",
            "RDMA read, latency in us",
            "+700.00 %",
            "mean gain over sizes, queue pairs and capacity",
            "to 512 KiB",
            "perftest",
        ] {
            assert!(text.contains(words), "{words} is missing in\n{text}");
        }
        assert!(text.contains("1.111"), "{text}");
    }

    #[test]
    fn all_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let run = example();
        let written = write(folder.path(), &run).unwrap();
        let csv = std::fs::read_to_string(&written[0]).unwrap();
        assert!(csv.starts_with("operation,quantity,unit,bytes,queue_pairs,") && csv.contains("RDMA read,"));
        assert_eq!(csv.lines().count(), 1 + run.records.len());
        // Bandwidth of six sweeps and latency of two.
        assert_eq!(written.len(), 2 + 8);
        let value: serde_json::Value = serde_json::from_slice(&std::fs::read(&written[1]).unwrap()).unwrap();
        assert_eq!(value["records"][0]["operation"], "send");
        assert_eq!(value["records"][0]["samples"].as_array().map(Vec::len), Some(3));
        // Five paths, four bands, and 3 + 7 + 4 + 4 + 1 settings beside the bases of their sweeps.
        assert_eq!(value["averages"].as_array().map(Vec::len), Some(5 * 4 * 19));
        assert_eq!(value["comparisons"].as_array().map(Vec::len), Some(10));
    }
}
