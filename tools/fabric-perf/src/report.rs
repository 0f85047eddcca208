//! How do people and programs read it?

use core::fmt::Write as _;
use std::path::{Path, PathBuf};

use causeway_measure::files::{self, FilesError};
use causeway_measure::sizes::Size;
use causeway_measure::table::{aligned, heading, percent, significant};
use serde::Serialize;

use crate::averages::{Average, Band, averages};
use crate::case::{Case, Quantity, Setting};
use crate::figures::figures;
use crate::results::{Comparison, MeasuredPath, Record, Run};
use crate::sweep::{Sweep, Varied};

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
                if table.len() > 1 {
                    let (unit, rows) = (quantity.unit(), aligned(&table));
                    let _ = write!(out, "\n{path}, {quantity} in {unit}, {}\n{rows}", sweep.varied);
                }
                let averages = averages(run, sweep, path);
                if quantity == Quantity::Bandwidth && !averages.is_empty() {
                    let rows = aligned(&averaged(sweep, &averages));
                    let _ = write!(out, "\n{path}, mean gain over sizes, {}\n{rows}", sweep.varied);
                }
            }
        }
    }
    for trouble in &run.troubles {
        let _ = write!(out, "\nnot measured: {trouble}\n");
    }
    let comparisons = run.comparisons();
    if !comparisons.is_empty() {
        let rows = aligned(&compared(&comparisons));
        let _ = write!(out, "\nmedians of causeway over those of perftest\n{rows}");
    }
    out
}

/// What a setting is called among those of a sweep.
pub(crate) fn short(varied: Varied, setting: Setting) -> String {
    match varied {
        Varied::Nothing => setting.to_string(),
        Varied::QueuePairs if setting.queue_pairs == 1 => "1 queue pair".to_owned(),
        Varied::QueuePairs => format!("{} queue pairs", setting.queue_pairs),
        Varied::Capacity => format!("capacity {}", setting.capacity),
        Varied::Mtu | Varied::MtuOfTwo => format!("MTU {}", setting.mtu),
        Varied::Both => format!("{} x {}", setting.queue_pairs, setting.capacity),
    }
}

fn gain_text(gain: f64) -> String {
    format!("{:+.2} %", gain * 100.0)
}

/// A line for each band, with the mean gain of each setting.
fn averaged(sweep: &Sweep, averages: &[Average]) -> Vec<Vec<String>> {
    let others = || sweep.settings.iter().enumerate().filter(|(index, _)| *index != sweep.base);
    let head = ["sizes", "n"].map(str::to_owned).into_iter();
    let mut rows = vec![head.chain(others().map(|(_, setting)| short(sweep.varied, *setting))).collect()];
    for band in Band::ALL {
        let of_band: Vec<_> = averages.iter().filter(|average| average.band == band).collect();
        let Some(count) = of_band.iter().map(|average| average.sizes).max() else { continue };
        let gain = |setting: &Setting| of_band.iter().find(|average| average.setting == *setting);
        let cells =
            others().map(|(_, setting)| gain(setting).map_or("-".to_owned(), |one| gain_text(one.gain)));
        rows.push([band.to_string(), count.to_string()].into_iter().chain(cells).collect());
    }
    rows
}

/// A line for each size, with mean, relative deviation and gain of each setting.
fn table(run: &Run, sweep: &Sweep, path: MeasuredPath, quantity: Quantity) -> Vec<Vec<String>> {
    let mut head = vec!["size".to_owned(), "n".to_owned()];
    for (index, setting) in sweep.settings.iter().enumerate() {
        head.extend([short(sweep.varied, *setting), "deviation".to_owned()]);
        if index != sweep.base {
            head.push("gain".to_owned());
        }
    }
    let mut rows = vec![head];
    let wanted = |case: &Case| case.operation == path.operation && case.quantity == quantity;
    for case in run.cases().into_iter().filter(wanted) {
        let records: Vec<_> =
            sweep.settings.iter().map(|setting| run.record(case, *setting, path.tool)).collect();
        let Some(count) = records.iter().flatten().map(|record| record.summary.count).max() else { continue };
        let mut row = vec![Size(case.bytes).to_string(), count.to_string()];
        for (index, record) in records.into_iter().enumerate() {
            match record {
                Some(Record { summary, .. }) => {
                    row.extend([significant(summary.mean), percent(summary.relative_deviation)]);
                }
                None => row.extend(["-".to_owned(), "-".to_owned()]),
            }
            if index != sweep.base {
                let gain = run.gain(path.tool, case, sweep, sweep.settings[index]);
                row.push(gain.map_or("-".to_owned(), gain_text));
            }
        }
        rows.push(row);
    }
    rows
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

const COLUMNS: &str = "operation,quantity,unit,bytes,queue_pairs,capacity,mtu,tool,repetitions,mean,relative_deviation,median,p5,p95\n";

/// The run as CSV: one line for each case with each setting by each tool.
pub fn csv(run: &Run) -> String {
    let mut out = COLUMNS.to_owned();
    for Record { case, setting, tool, summary, .. } in &run.records {
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{tool},{},{},{},{},{},{}",
            case.operation,
            case.quantity,
            case.quantity.unit(),
            case.bytes,
            setting.queue_pairs,
            setting.capacity,
            setting.mtu,
            summary.count,
            summary.mean,
            summary.relative_deviation,
            summary.median,
            summary.p5,
            summary.p95,
        );
    }
    out
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
    files::write_all(folder, "fabric", &csv(run), &json(run), &figures(run))
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
